//! The records that a run is expected to contain.

use grpo_metrics::MetricTable;

/// Expected contents of a run folder.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// Folder of the trained weights, `model` or `adapter`. `None` if the run has no ledger.
    pub trained: Option<&'static str>,
    /// Number of steps between checkpoints; 0 for none.
    pub checkpoint_every: u64,
    /// Minimum increase of the mean reward for an evaluation to become the new best one.
    pub min_gain: f64,
    /// The metrics of the run. Those that depend on the machine may change when it is repeated.
    pub metrics: MetricTable,
}

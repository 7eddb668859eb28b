//! What a run should have recorded.

/// Expected contents of a run's folder.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlan {
    /// Folder of the trained weights, `model` or `adapter`; `None` if the run keeps no ledger.
    pub trained: Option<&'static str>,
    /// A checkpoint is written after the steps that are multiples of this one; 0 for none.
    pub checkpoint_every: u64,
    /// Smallest gain in mean reward by which an evaluation is better than the best before.
    pub min_gain: f64,
    /// The metrics that are not the same when a run is made again.
    pub is_machine: fn(&str) -> bool,
}

//! Results of the parts of a step that use the archive.

use grpo_data::statistics::mean;
use grpo_data::{Group, Sample};
use grpo_run::LedgerUpdate;

use crate::Update;

/// Result of the updates with replayed completions.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) updates: Vec<Update>,
    /// Mean reward of the replayed completions of each update.
    pub(crate) rewards: Vec<f64>,
}

impl Replayed {
    pub(crate) fn ledger(&self) -> impl Iterator<Item = &LedgerUpdate> {
        self.updates.iter().map(|update| &update.ledger)
    }
}

/// Use of the archive in a step.
#[derive(Clone, Debug)]
pub struct ArchiveReport {
    /// Number of distinct completions that were scored in the run so far.
    pub calls: usize,
    /// Mean of the ten highest rewards so far, or of all if there are fewer.
    pub top_10: Option<f64>,
    /// Scored proposals.
    pub proposals: Option<Group>,
    /// Means over the updates with replayed completions, if any.
    pub replay: Option<ReplayMeans>,
}

/// Means over the updates of a step with replayed completions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayMeans {
    /// Reward of the replayed completions.
    pub reward: f64,
    /// Loss.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
}

impl ArchiveReport {
    /// Returns the metrics of the report.
    pub(crate) fn metrics(&self) -> Vec<(&'static str, f64)> {
        let mut metrics = vec![("archive/calls", self.calls as f64)];
        metrics.extend(self.top_10.map(|value| ("archive/top_10", value)));
        if let Some(group) = &self.proposals {
            let rewards: Vec<f64> = group.samples.iter().filter_map(Sample::reward).collect();
            metrics.push(("proposals/count", group.samples.len() as f64));
            if !rewards.is_empty() {
                metrics.push(("proposals/reward", mean(&rewards)));
            }
        }
        if let Some(ReplayMeans { reward, loss, grad_norm }) = self.replay {
            metrics.extend([
                ("replay/reward", reward),
                ("replay/loss", loss),
                ("replay/grad_norm", grad_norm),
            ]);
        }
        metrics
    }
}

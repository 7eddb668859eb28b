//! Checkpoint settings of supervised runs.

use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The `[save]` section of a supervised run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Number of steps between checkpoints. If 0, checkpoints are written only at timed intervals
    /// and at the end.
    pub every: u32,
    /// Minutes between checkpoints, which are written at the end of a step. 0 disables this.
    pub every_minutes: f64,
    /// Number of most recent checkpoints to keep.
    pub keep_last: usize,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2 }
    }
}

impl CheckpointSection {
    /// Checks that the values are in range.
    pub fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.keep_last >= 1,
            "{}save.keep_last = 0 is out of range; expected 1 or more",
            origin.place("save.keep_last")
        );
        origin.check("save.every_minutes", self.every_minutes, 0.0..=1e6)
    }
}

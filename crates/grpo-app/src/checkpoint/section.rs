//! When checkpoints of a supervised run are written and how many are kept.

use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The section `[save]` of a supervised run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Steps between checkpoints; 0 for only by time and at the end.
    pub every: u32,
    /// Minutes after which a checkpoint is written at the end of a step; 0 for never.
    pub every_minutes: f64,
    /// Number of newest checkpoints to keep.
    pub keep_last: usize,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2 }
    }
}

impl CheckpointSection {
    /// Checks ranges.
    pub fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.keep_last >= 1,
            "{}save.keep_last = 0 is out of range; expected 1 or more",
            origin.place("save.keep_last")
        );
        origin.check("save.every_minutes", self.every_minutes, 0.0..=1e6)
    }
}

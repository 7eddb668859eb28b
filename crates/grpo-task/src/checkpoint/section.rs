//! Checkpoint settings of supervised runs.

use grpo_data::Ranges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The `[save]` section of a supervised run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Steps between checkpoints; 0 for none by steps.
    pub every: u32,
    /// Write a checkpoint at the end of the first step this many minutes after the last one; 0 for
    /// none by time.
    #[schemars(range(min = 0, max = 1e6))]
    pub every_minutes: f64,
    /// Number of newest checkpoints to keep.
    #[schemars(range(min = 1))]
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
        origin.check_ranges("save", self)
    }
}

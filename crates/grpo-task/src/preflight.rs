//! The `[preflight]` section.

use grpo_data::Ranges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The `[preflight]` section.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct PreflightSection {
    /// Completions of the trial batch, at most those of a step. With 0 there is no trial batch, and
    /// memory is predicted for completions of maximum length.
    #[schemars(range(min = 0, max = 1e6))]
    pub samples: u32,
    /// Start even if the predicted memory exceeds what is available.
    pub ignore_memory: bool,
}

impl Default for PreflightSection {
    fn default() -> Self {
        Self { samples: 64, ignore_memory: false }
    }
}

impl PreflightSection {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Returns an error that names the key of an invalid value.
    pub fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        origin.check_ranges("preflight", self)
    }
}

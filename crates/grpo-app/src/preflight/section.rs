//! The `[preflight]` section.

use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The `[preflight]` section.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreflightSection {
    /// Number of completions in the trial batch, at most as many as in one step. 0 disables it.
    pub(crate) samples: u32,
    /// Whether to start even if the estimated memory exceeds the available memory.
    pub(crate) ignore_memory: bool,
}

impl Default for PreflightSection {
    fn default() -> Self {
        Self { samples: 64, ignore_memory: false }
    }
}

impl PreflightSection {
    pub(crate) fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        origin.check("preflight.samples", self.samples.into(), 0.0..=1e6)
    }
}

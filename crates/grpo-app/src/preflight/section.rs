//! The section `[preflight]`.

use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The section `[preflight]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreflightSection {
    /// Completions of the trial batch, at most those of a step; 0 for none.
    pub(crate) samples: u32,
    /// Whether to start even if the predicted memory exceeds the available memory.
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

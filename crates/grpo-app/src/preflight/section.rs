//! The section `[preflight]`.

use serde::{Deserialize, Serialize};

use crate::config::Origin;

/// The section `[preflight]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreflightSection {
    /// Completions of the trial batch, of a step's at most; 0 for no trial.
    pub(crate) samples: u32,
    /// The run begins even where its memory plan is above what is available.
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

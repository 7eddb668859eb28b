//! Saved state of a supervised run between two steps.

use std::collections::BTreeMap;

use grpo_model::StoredTensors;
use serde::{Deserialize, Serialize};

use super::early_stopping::Validations;
use crate::GuardsState;

/// The state on which the next step depends, except configuration, input files and model weights.
pub struct SupervisedState<P> {
    /// Numeric state.
    pub progress: SupervisedProgress<P>,
    /// The optimizer's moving averages.
    pub moments: StoredTensors,
}

/// Numeric state of a [`SupervisedState`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisedProgress<P> {
    pub(super) steps: u64,
    pub(super) num_tokens: u64,
    pub(super) validations: Validations,
    pub(super) guards: GuardsState,
    /// What ended the run before its last step.
    pub(super) stopped: Option<(StopCause, String)>,
    /// State of the objective.
    pub(super) objective: P,
    /// Steps in which each parameter had a gradient.
    pub(super) optimizer_steps: BTreeMap<String, u32>,
}

/// What can end a run before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A limit of the objective.
    Limit,
    /// A guard.
    Guard,
}

//! State of a supervised run that is saved between steps.

use std::collections::BTreeMap;

use grpo_model::StoredTensors;
use serde::{Deserialize, Serialize};

use super::early_stopping::Validations;
use crate::GuardsState;

/// All state that the next step depends on, except for the configuration, input files and model
/// weights.
pub struct SupervisedState<P> {
    /// All state except tensors.
    pub progress: SupervisedProgress<P>,
    /// Moving averages of the optimizer.
    pub moments: StoredTensors,
}

/// The part of [`SupervisedState`] that contains no tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisedProgress<P> {
    pub(super) steps: u64,
    pub(super) num_tokens: u64,
    pub(super) validations: Validations,
    pub(super) guards: GuardsState,
    /// Why the run was stopped before its last step.
    pub(super) stopped: Option<(StopCause, String)>,
    /// State of the objective.
    pub(super) objective: P,
    /// Number of steps in which each parameter had a gradient.
    pub(super) optimizer_steps: BTreeMap<String, u32>,
}

/// Reasons for stopping a run before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A limit set by the objective.
    Limit,
    /// A guard.
    Guard,
}

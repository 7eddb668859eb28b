//! A supervised training run between two steps, as it is saved and resumed.

use std::collections::BTreeMap;

use grpo_model::StoredTensors;
use serde::{Deserialize, Serialize};

use super::early_stopping::Validations;
use crate::GuardsState;

/// Everything that the next step depends on besides the configuration, the files that a run reads, and the weights of the
/// model.
pub struct SupervisedState<P> {
    /// Numbers.
    pub progress: SupervisedProgress<P>,
    /// The optimizer's decaying means.
    pub moments: StoredTensors,
}

/// The numbers of a [`SupervisedState`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisedProgress<P> {
    pub(super) steps: u64,
    pub(super) num_tokens: u64,
    pub(super) validations: Validations,
    pub(super) guards: GuardsState,
    /// What ended the run before its last step.
    pub(super) stopped: Option<(StopCause, String)>,
    /// The objective's own.
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

//! Saved state of a training run between two steps.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;
use grpo_model::{LanguageModel, StoredTensors};
use serde::{Deserialize, Serialize};

use crate::learner::LearnerState;
use crate::train::{Training, TrainingProgress};
use crate::{GuardsState, TrainError};

/// The state on which the next step depends, except configuration, input files and policy weights.
///
/// Between two steps no completion waits for an update. Random numbers and the order of prompts are
/// functions of seed and step, so the step suffices.
pub struct TrainerState {
    /// Numbers.
    pub numbers: StateNumbers,
    /// The optimizer's moving averages.
    pub moments: StoredTensors,
    /// The reference, if it differs from the initial one.
    pub reference: Option<StoredTensors>,
}

/// Numeric state of a [`TrainerState`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateNumbers {
    /// Progress of the run.
    #[serde(flatten)]
    pub progress: TrainingProgress,
    /// Factor for learning rates.
    learning_rate_factor: f64,
    /// State of the guards.
    pub guards: GuardsState,
    pub(crate) learner: LearnerState,
}

/// A [`TrainerState`] read from files.
pub struct SavedState<'a> {
    /// Numbers.
    pub numbers: StateNumbers,
    /// The optimizer's moving averages by name.
    pub moments: BTreeMap<String, TensorData>,
    /// The reference, if it differs from the initial one, and its file.
    pub reference: Option<(BTreeMap<String, TensorData>, &'a Path)>,
}

impl<M: LanguageModel> Training<M> {
    /// Returns the state to save.
    pub fn state(&self) -> TrainerState {
        let (learner, moments, reference) = self.grpo.learner.remembered();
        let (progress, guards) = (self.progress.clone(), self.guards.state().clone());
        let learning_rate_factor = self.learning_rate_factor();
        let numbers = StateNumbers { progress, learning_rate_factor, guards, learner };
        TrainerState { numbers, moments, reference }
    }

    /// Continues after the `roll_backs`th roll-back with a smaller learning rate and a larger KL
    /// penalty.
    pub fn soften(&mut self, roll_backs: u32, learning_rate_factor: f64, kl_coef: f64) {
        self.progress.roll_backs = roll_backs;
        self.progress.rolled_back_to = Some(self.progress.steps);
        self.grpo.learning_rate_factor = learning_rate_factor;
        self.grpo.learner.set_kl_coef(kl_coef);
    }

    /// Restores a saved state together with `policy`, which has the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state belongs to another model or other settings.
    pub fn restore(&mut self, policy: M, saved: SavedState<'_>) -> Result<(), TrainError> {
        let SavedState { numbers, moments, reference } = saved;
        self.guards.restore(numbers.guards)?;
        let restored = self.grpo.learner.restore(policy, numbers.learner, moments, reference);
        restored.map_err(TrainError::other_state)?;
        self.version = self.grpo.learner.version();
        self.grpo.learning_rate_factor = numbers.learning_rate_factor;
        self.progress = numbers.progress;
        Ok(())
    }
}

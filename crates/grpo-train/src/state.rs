//! A training between two steps, as it is put away and taken up again.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;
use grpo_model::{LanguageModel, StoredTensors};
use serde::{Deserialize, Serialize};

use crate::learner::LearnerState;
use crate::train::{Training, TrainingProgress};
use crate::{GuardsState, TrainError};

/// Everything that the next step depends on besides the configuration, the files that a run reads, and the weights of
/// the policy.
///
/// It is of the moment between two steps: no completion waits for its update then. Random numbers and the order of the
/// prompts are functions of the seed and the step, so that a step is all that is kept of them.
pub struct TrainerState {
    /// Numbers.
    pub numbers: StateNumbers,
    /// The optimizer's decaying means.
    pub moments: StoredTensors,
    /// The reference, where it is another one than at the start.
    pub reference: Option<StoredTensors>,
}

/// The part of a [`TrainerState`] that is numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateNumbers {
    /// How far the training run is.
    #[serde(flatten)]
    pub progress: TrainingProgress,
    /// What learning rates are multiplied by.
    learning_rate_factor: f64,
    /// What the guards have counted.
    pub guards: GuardsState,
    pub(crate) learner: LearnerState,
}

/// A [`TrainerState`] as it was read.
pub struct SavedState<'a> {
    /// Numbers.
    pub numbers: StateNumbers,
    /// The optimizer's decaying means, by name.
    pub moments: BTreeMap<String, TensorData>,
    /// The reference, where it is another one than at the start, and the file that it was in.
    pub reference: Option<(BTreeMap<String, TensorData>, &'a Path)>,
}

impl<M: LanguageModel> Training<M> {
    /// What it is to be taken up with again.
    pub fn state(&self) -> TrainerState {
        let (learner, moments, reference) = self.grpo.learner.remembered();
        let (progress, guards) = (self.progress.clone(), self.guards.state().clone());
        let learning_rate_factor = self.learning_rate_factor();
        let numbers = StateNumbers { progress, learning_rate_factor, guards, learner };
        TrainerState { numbers, moments, reference }
    }

    /// Continues more carefully after it went back to here for the `roll_backs`th time: with shorter steps, and held
    /// closer to the reference.
    pub fn soften(&mut self, roll_backs: u32, learning_rate_factor: f64, kl_coef: f64) {
        self.progress.roll_backs = roll_backs;
        self.progress.rolled_back_to = Some(self.progress.steps);
        self.grpo.learning_rate_factor = learning_rate_factor;
        self.grpo.learner.set_kl_coef(kl_coef);
    }

    /// Goes on from `saved`, with `policy`, which has the weights of then.
    ///
    /// # Errors
    /// It is of another model, or of other settings.
    pub fn restore(&mut self, policy: M, saved: SavedState<'_>) -> Result<(), TrainError> {
        let SavedState { numbers, moments, reference } = saved;
        self.guards.restore(numbers.guards)?;
        let restored = self.grpo.learner.restore(policy, numbers.learner, moments, reference);
        restored.map_err(|fault| TrainError::OtherState { fault })?;
        self.version = self.grpo.learner.version();
        self.grpo.learning_rate_factor = numbers.learning_rate_factor;
        self.progress = numbers.progress;
        Ok(())
    }
}

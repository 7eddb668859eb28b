//! State of a training run that is saved between steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::tensor::TensorData;
use grpo_model::{LanguageModel, StoredTensors};
use grpo_run::BestSample;
use serde::{Deserialize, Serialize};

use crate::ahead::Ahead;
use crate::learner::LearnerState;
use crate::train::{Training, TrainingProgress};
use crate::{ArchivedCall, BestSamples, GrpoConfig, GuardsState, RolloutAhead, TrainError};

/// All state that the next step depends on, except for the configuration, input files and policy
/// weights.
///
/// State is only saved between steps. Rollouts of later steps are waited for and saved too. Random
/// numbers and the order of prompts are derived from the seed and the step number, so they don't
/// need to be saved.
pub struct TrainerState {
    /// All state except tensors.
    pub numbers: StateNumbers,
    /// Moving averages of the optimizer.
    pub moments: StoredTensors,
    /// Reference policy, if it differs from the initial reference.
    pub reference: Option<StoredTensors>,
}

/// The part of [`TrainerState`] that contains no tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateNumbers {
    /// Training progress.
    #[serde(flatten)]
    pub progress: TrainingProgress,
    /// Factor applied to learning rates.
    learning_rate_factor: f64,
    /// Number of completions in each bucket of the diversity filter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    buckets: BTreeMap<String, u32>,
    /// The completions that the diversity filter has counted, if copies are not rewarded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    rewarded: BTreeSet<String>,
    /// The distinct completions of the run, if they are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archive: Vec<ArchivedCall>,
    /// The best completions so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best_samples: Vec<BestSample>,
    /// Rollouts that were sampled ahead of their steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ahead: Vec<RolloutAhead>,
    /// Guard state.
    pub guards: GuardsState,
    pub(crate) learner: LearnerState,
}

impl StateNumbers {
    /// Checks the rollouts that were sampled ahead.
    fn check_ahead(&self, config: &GrpoConfig) -> Result<(), String> {
        let (prompts, group_size) =
            (config.train.prompts_per_step as usize, config.train.group_size);
        for (rollout, expected) in self.ahead.iter().zip(self.progress.steps..) {
            let has_shape = rollout.completions.len() == prompts
                && rollout.completions.iter().all(|group| group.len() == group_size);
            let is_later = rollout.policy_version > self.learner.policy_version();
            if rollout.step != expected || is_later || !has_shape {
                return Err(format!(
                    "the rollout of step {} is not one of this run's next steps",
                    u64::from(rollout.step) + 1
                ));
            }
        }
        Ok(())
    }
}

/// A [`TrainerState`] that was loaded from files.
pub struct SavedState<'a> {
    /// All state except tensors.
    pub numbers: StateNumbers,
    /// Moving averages of the optimizer by name.
    pub moments: BTreeMap<String, TensorData>,
    /// Reference policy and the path to its file, if it differs from the initial reference.
    pub reference: Option<(BTreeMap<String, TensorData>, &'a Path)>,
}

impl<M: LanguageModel> Training<M> {
    /// Collects the best completions of the remaining steps in `best`.
    pub fn collect_best(&mut self, best: BestSamples) {
        self.best = Some(best);
    }

    /// Returns the best completions so far, or `None` if they are not collected.
    pub fn best_samples(&self) -> Option<&BestSamples> {
        self.best.as_ref()
    }

    /// Returns the state to be saved.
    pub fn state(&self) -> TrainerState {
        let (learner, moments, reference) = self.grpo.learner.remembered();
        let (progress, guards) = (self.progress.clone(), self.guards.state().clone());
        let learning_rate_factor = self.learning_rate_factor();
        let buckets = self.grpo.filter.as_ref().map(|filter| filter.counts().clone());
        let buckets = buckets.unwrap_or_default();
        let rewarded = self.grpo.filter.as_ref().map(|filter| filter.seen().clone());
        let archive = self.grpo.archive.as_ref().map(|archive| archive.calls().to_vec());
        let best_samples = self.best.as_ref().map(|best| best.samples().to_vec());
        let numbers = StateNumbers {
            progress,
            learning_rate_factor,
            buckets,
            rewarded: rewarded.unwrap_or_default(),
            archive: archive.unwrap_or_default(),
            best_samples: best_samples.unwrap_or_default(),
            ahead: self.grpo.ahead.as_ref().map(Ahead::drained).unwrap_or_default(),
            guards,
            learner,
        };
        TrainerState { numbers, moments, reference }
    }

    /// Changes the settings after a roll-back. `roll_backs` is the total number of roll-backs so
    /// far.
    pub fn soften(&mut self, roll_backs: u32, learning_rate_factor: f64, kl_coef: f64) {
        self.progress.roll_backs = roll_backs;
        self.progress.rolled_back_to = Some(self.progress.steps);
        self.grpo.learning_rate_factor = learning_rate_factor;
        self.grpo.learner.set_kl_coef(kl_coef);
    }

    /// Restores a saved state. `policy` must already contain the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state was saved with a different model or different settings.
    pub fn restore(&mut self, policy: M, saved: SavedState<'_>) -> Result<(), TrainError> {
        let SavedState { numbers, moments, reference } = saved;
        numbers.check_ahead(&self.grpo.config).map_err(TrainError::other_state)?;
        self.guards.restore(numbers.guards)?;
        let restored = self.grpo.learner.restore(policy, numbers.learner, moments, reference);
        restored.map_err(TrainError::other_state)?;
        self.version = self.grpo.learner.version();
        self.grpo.learning_rate_factor = numbers.learning_rate_factor;
        if let Some(filter) = &mut self.grpo.filter {
            filter.restore(numbers.buckets, numbers.rewarded);
        }
        if let Some(archive) = &mut self.grpo.archive {
            archive.restore(numbers.archive);
        }
        if let Some(ahead) = &self.grpo.ahead {
            ahead.restore(numbers.ahead);
        }
        if let Some(best) = &mut self.best {
            best.restore(numbers.best_samples);
        }
        self.progress = numbers.progress;
        Ok(())
    }
}

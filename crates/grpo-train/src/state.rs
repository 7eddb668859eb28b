//! State of a training run that is saved between steps.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;

use burn::tensor::TensorData;
use grpo_model::{LanguageModel, StoredTensors};
use grpo_run::BestSample;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::learner::LearnerState;
use crate::train::{Training, TrainingProgress};
use crate::{BestSamples, GuardsState, TrainError};

/// All state that the next step depends on, except for the configuration, input files and policy
/// weights.
///
/// State is only saved between steps. Rollouts of later steps are waited for. Random
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
    /// State of the extensions by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    extensions: BTreeMap<String, Value>,
    /// State of extensions in files written by older versions.
    #[serde(default, skip_serializing)]
    buckets: BTreeMap<String, u32>,
    /// See `buckets`.
    #[serde(default, skip_serializing)]
    rewarded: BTreeSet<String>,
    /// See `buckets`.
    #[serde(default, skip_serializing)]
    archive: Value,
    /// The best completions so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best_samples: Vec<BestSample>,
    /// See `buckets`.
    #[serde(default, skip_serializing)]
    ahead: Value,
    /// Guard state.
    pub guards: GuardsState,
    pub(crate) learner: LearnerState,
}

impl StateNumbers {
    /// Removes and returns the state of the extension of this name.
    pub fn take_extension(&mut self, name: &str) -> Value {
        let mut extensions = self.take_extensions();
        let state = extensions.remove(name).unwrap_or_default();
        self.extensions = extensions;
        state
    }

    /// Removes and returns the state of the extensions, which older versions knew by name.
    fn take_extensions(&mut self) -> BTreeMap<String, Value> {
        let mut extensions = mem::take(&mut self.extensions);
        let (buckets, rewarded) = (mem::take(&mut self.buckets), mem::take(&mut self.rewarded));
        if !buckets.is_empty() {
            let state = json!({"buckets": buckets, "rewarded": rewarded});
            extensions.insert("diversity_filter".to_owned(), state);
        }
        for (name, state) in [("archive", &mut self.archive), ("staleness", &mut self.ahead)] {
            let state = mem::take(state);
            if !state.is_null() {
                extensions.insert(name.to_owned(), state);
            }
        }
        extensions
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
        let extensions = self.grpo.extensions.iter();
        let extensions = extensions.map(|of| (of.name().to_owned(), of.state()));
        let best_samples = self.best.as_ref().map(|best| best.samples().to_vec());
        let numbers = StateNumbers {
            progress,
            learning_rate_factor,
            extensions: extensions.filter(|(_, state)| !state.is_null()).collect(),
            buckets: BTreeMap::new(),
            rewarded: BTreeSet::new(),
            archive: Value::Null,
            best_samples: best_samples.unwrap_or_default(),
            ahead: Value::Null,
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
        let SavedState { mut numbers, moments, reference } = saved;
        let mut extensions = numbers.take_extensions();
        self.guards.restore(numbers.guards)?;
        let restored = self.grpo.learner.restore(policy, numbers.learner, moments, reference);
        restored.map_err(TrainError::other_state)?;
        self.version = self.grpo.learner.version();
        self.grpo.learning_rate_factor = numbers.learning_rate_factor;
        for extension in &mut self.grpo.extensions {
            let name = extension.name();
            let state = extensions.remove(name).unwrap_or_default();
            let restored = extension
                .restore(state)
                .and_then(|()| extension.check_restored(numbers.progress.steps, self.version));
            restored.map_err(|fault| TrainError::other_state(format!("{name}: {fault}")))?;
        }
        if let Some(name) = extensions.keys().next() {
            let fault = format!("it has the state of `{name}`, which this run does not use");
            return Err(TrainError::other_state(fault));
        }
        if let Some(best) = &mut self.best {
            best.restore(numbers.best_samples);
        }
        self.progress = numbers.progress;
        Ok(())
    }
}

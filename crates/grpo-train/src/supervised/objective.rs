//! What a supervised training run minimises.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use grpo_model::Dropout;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TrainError;

/// The data and the loss of a supervised training run, and what is measured on held-out data.
///
/// All methods are functions of their arguments: an objective keeps nothing from step to step but its
/// [`Progress`](Self::Progress), which the driver saves with the run.
pub trait Objective {
    /// What is trained.
    type Model: Module;
    /// The result of a validation, as it is written to `metrics.jsonl`.
    type Measures: Clone + Serialize;
    /// What the objective carries from step to step; `()` for nothing.
    type Progress: Clone + Default + Serialize + DeserializeOwned;

    /// The numbers that guards can watch: names of [`StepGradients::parts`] and of [`Self::Measures`]. Times are not
    /// among them.
    fn metric_names(&self) -> &'static [&'static str];

    /// Computes the loss of step `step`, counted from 0, and its gradients.
    ///
    /// # Errors
    /// A loss that is not finite; data that nothing can be learned from.
    fn gradients(
        &self,
        model: &Self::Model,
        step: u64,
        dropout: &mut Dropout,
        progress: &mut Self::Progress,
    ) -> Result<StepGradients, TrainError>;

    /// Measures `model` on held-out data after `steps` optimizer steps.
    ///
    /// # Errors
    /// A measure that is not finite.
    fn validate(
        &self,
        model: &Self::Model,
        steps: u64,
        progress: &mut Self::Progress,
    ) -> Result<Self::Measures, TrainError>;

    /// Returns the number by which validations are compared: the lower one is the better.
    fn selection_loss(&self, measures: &Self::Measures) -> f64;

    /// Holds a validation after `steps` optimizer steps against the objective's own limits.
    fn review(
        &self,
        _steps: u64,
        _measures: &Self::Measures,
        _progress: &mut Self::Progress,
    ) -> Review {
        Review::default()
    }

    /// Returns whether the parameter at `path` belongs to the trunk that a training run begins with, rather than to a head
    /// of its own.
    fn is_of_trunk(&self, _path: &str) -> bool {
        false
    }
}

/// The loss of one step.
pub struct StepGradients {
    /// What is minimised.
    pub loss: f64,
    /// Its gradients.
    pub gradients: GradientsParams,
    /// Tokens that count for the step.
    pub tokens: usize,
    /// Further numbers of the step, by the names under which they are written.
    pub parts: BTreeMap<&'static str, f64>,
}

/// What an objective finds wrong with a validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Review {
    /// Sentences to show.
    pub warnings: Vec<String>,
    /// Why the run ends, if it does.
    pub stop: Option<String>,
}

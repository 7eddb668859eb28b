//! Objectives of supervised training.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use grpo_model::Dropout;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TrainError;

/// The data, the loss and the validation of a supervised run.
///
/// All methods are functions of their arguments. An objective has no state between steps except its
/// [`Progress`](Self::Progress), which the trainer saves with the run.
pub trait Objective {
    /// What is trained.
    type Model: Module;
    /// The result of a validation, as it is written to `metrics.jsonl`.
    type Measures: Clone + Serialize;
    /// State between steps; `()` for none.
    type Progress: Clone + Default + Serialize + DeserializeOwned;

    /// Returns the metrics that guards can watch: names of [`StepGradients::parts`] and of
    /// [`Self::Measures`], without times.
    fn metric_names(&self) -> &'static [&'static str];

    /// Computes loss and gradients of step `step`, counted from 0.
    ///
    /// # Errors
    /// Returns an error if the loss is not finite or the data cannot be used.
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
    /// Returns an error if a measure is not finite.
    fn validate(
        &self,
        model: &Self::Model,
        steps: u64,
        progress: &mut Self::Progress,
    ) -> Result<Self::Measures, TrainError>;

    /// Returns the number that selects the best validation; lower is better.
    fn selection_loss(&self, measures: &Self::Measures) -> f64;

    /// Checks a validation after `steps` optimizer steps against the objective's limits.
    fn review(
        &self,
        _steps: u64,
        _measures: &Self::Measures,
        _progress: &mut Self::Progress,
    ) -> Review {
        Review::default()
    }

    /// Returns whether the parameter at `path` belongs to the pre-trained trunk rather than to a
    /// new head.
    fn is_of_trunk(&self, _path: &str) -> bool {
        false
    }
}

/// The loss of one step.
pub struct StepGradients {
    /// The minimised loss.
    pub loss: f64,
    /// Its gradients.
    pub gradients: GradientsParams,
    /// Number of tokens, for schedules that count tokens.
    pub tokens: usize,
    /// Additional numbers by metric name.
    pub parts: BTreeMap<&'static str, f64>,
}

/// Problems that an objective finds in a validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Review {
    /// Messages to show.
    pub warnings: Vec<String>,
    /// Reason to end the run, if any.
    pub stop: Option<String>,
}

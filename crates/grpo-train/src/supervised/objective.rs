//! Objectives for supervised training.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use grpo_metrics::{MetricGroup, MetricSpec};
use grpo_model::{Dropout, ProductPrecision};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::TrainError;

/// Defines the data, the loss and the validation for a supervised training run.
///
/// Methods must only depend on their arguments. The only state between steps is
/// [`Progress`](Self::Progress), which the trainer saves with the run.
pub trait Objective {
    /// The module that is trained.
    type Model: Module;
    /// Validation result, written to `metrics.jsonl`.
    type Measures: Clone + Serialize;
    /// State between steps. Use `()` if there is none.
    type Progress: Clone + Default + Serialize + DeserializeOwned;

    /// Returns the metrics: those in [`StepGradients::parts`] and [`Self::Measures`].
    fn metrics(&self) -> Vec<MetricGroup>;

    /// Returns whether the run measures one of these metrics.
    fn measures(&self, metric: &MetricSpec) -> bool {
        let _ = metric;
        true
    }

    /// Returns the precision of products that [`Self::prepare`] sets.
    fn product_precision(&self) -> ProductPrecision {
        ProductPrecision::F32
    }

    /// Changes how a model computes before it is trained, but not its weights.
    fn prepare(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// Computes the loss and gradients for `step`, counted from 0.
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

    /// Evaluates `model` on held-out data after `steps` optimizer steps.
    ///
    /// # Errors
    /// Returns an error if a metric is not finite.
    fn validate(
        &self,
        model: &Self::Model,
        steps: u64,
        progress: &mut Self::Progress,
    ) -> Result<Self::Measures, TrainError>;

    /// Returns the value that is minimised when the best validation is selected.
    fn selection_loss(&self, measures: &Self::Measures) -> f64;

    /// Checks a validation after `steps` optimizer steps against limits that are specific to this
    /// objective.
    fn review(
        &self,
        _steps: u64,
        _measures: &Self::Measures,
        _progress: &mut Self::Progress,
    ) -> Review {
        Review::default()
    }

    /// Returns whether the parameter at `path` belongs to the pre-trained trunk and not to a new
    /// head.
    fn is_of_trunk(&self, _path: &str) -> bool {
        false
    }
}

/// Loss and gradients for one step.
pub struct StepGradients {
    /// Minimised loss.
    pub loss: f64,
    /// Gradients of the loss.
    pub gradients: GradientsParams,
    /// Number of tokens, used by schedules that count tokens.
    pub tokens: usize,
    /// Additional values by metric name.
    pub parts: BTreeMap<&'static str, f64>,
}

/// Problems found by [`Objective::review`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Review {
    /// Warnings to show.
    pub warnings: Vec<String>,
    /// Reason to stop the run.
    pub stop: Option<String>,
}

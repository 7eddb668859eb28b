//! Supervised training with next-token cross-entropy and an optional diversity term.

mod batch;
mod condition_dropout;
mod config;
mod diversity;
mod limits;
mod samples;

use std::marker::PhantomData;

use grpo_data::{Augmentation, Codec, Example, Examples};
use grpo_metrics::{MetricGroup, MetricSpec};
use grpo_model::{Dropout, LanguageModel, ModelSetting, ProductPrecision};
use grpo_runtime::awake;
use serde::{Deserialize, Serialize};

use self::batch::validation_loss;
pub use self::batch::{CrossEntropy, LossWeights, cross_entropy};
use self::diversity::DiversityTerm;
use self::samples::SampledEvaluation;
use crate::error::supported;
use crate::supervised::{
    GradientSum, Objective, Review, ScheduleUnit, StepGradients, SupervisedPlan, SupervisedTrainer,
};
use crate::{EpochBatches, Schedule, TrainError, TransferConfig};

pub use self::condition_dropout::ConditionDropout;
pub use self::config::{
    DiversityConfig, LimitAction, LossLimits, PretrainConfig, SampledEvalConfig,
    ScoreFunctionConfig,
};
pub use self::samples::{SampleRow, SampledMeasures};

/// Validation result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PretrainMeasures {
    /// Number of completed epochs, including fractions.
    pub epoch: f64,
    /// Mean cross-entropy in nats over training tokens since the last validation.
    pub train_loss: f64,
    /// Mean cross-entropy in nats over validation tokens, without dropout.
    pub eval_loss: f64,
    /// Metrics for sampled completions, if sampling is enabled.
    #[serde(flatten)]
    pub sampled: Option<SampledMeasures>,
    /// Examples of sampled completions.
    #[serde(skip)]
    pub rows: Vec<SampleRow>,
}

static METRICS: [MetricSpec; 3] = [
    MetricSpec::new("epoch", "", "epochs completed, with their fraction").hidden(),
    MetricSpec::new(
        "train_loss",
        "nats",
        "in lines of evaluations: mean of `step_train_loss` over the tokens since the last evaluation",
    ),
    MetricSpec::new(
        "eval_loss",
        "nats",
        "mean cross-entropy over the validation tokens, without dropout",
    )
    .curve("Supervised loss", "validation"),
];

/// Returns the metrics of next-token training, in addition to those of each supervised run.
pub fn pretrain_metrics() -> [MetricGroup; 3] {
    let group = |name, metrics| MetricGroup { name, section: "pretrain", metrics };
    [
        group("pretrain", &METRICS),
        group("pretrain_diversity", &diversity::METRICS),
        group("pretrain_samples", &samples::METRICS),
    ]
}

/// Supervised training state that is saved with the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainProgress {
    /// Training loss summed over all tokens since the last validation.
    loss: f64,
    /// Number of tokens in `loss`.
    tokens: u64,
    /// Limits for which a warning has already been shown.
    told: [bool; 3],
}

/// Next-token cross-entropy objective.
pub struct NextTokenObjective<'a, M> {
    examples: &'a Examples,
    /// Validation examples with the conditions that are kept.
    validation: Vec<Example>,
    config: &'a PretrainConfig,
    seed: u64,
    batches: EpochBatches,
    augmentation: Option<Augmentation>,
    diversity: Option<DiversityTerm>,
    evaluation: Option<SampledEvaluation>,
    model: PhantomData<fn(&M)>,
}

impl<'a, M: LanguageModel> NextTokenObjective<'a, M> {
    /// Creates a trainer for `model`. `codec` is used to decode sampled completions.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or not supported by the model, if a prompt is too
    /// long for sampling, or if an embedder cannot be loaded.
    pub fn trainer(
        model: M,
        codec: &Codec,
        examples: &'a Examples,
        config: &'a PretrainConfig,
        seed: u64,
    ) -> Result<SupervisedTrainer<Self>, TrainError> {
        config.check()?;
        let checkpointing = config.activation_checkpointing;
        supported(&model, "activation_checkpointing", ModelSetting::Checkpointing, checkpointing)?;
        let is_rounded = config.precision != ProductPrecision::default();
        supported(&model, "precision", ModelSetting::ProductPrecision, is_rounded)?;
        let train = &examples.train;
        let conditions = config.condition_dropout.unwrap_or_default();
        conditions.check_examples(&model, train.iter().chain(&examples.validation))?;
        let kept = |(index, example): (usize, &Example)| {
            conditions.apply(example, seed, u32::MAX, index as u32)
        };
        let validation = examples.validation.iter().enumerate().map(kept).collect();
        let diversity = config.diversity.as_ref();
        let diversity = diversity
            .map(|diversity| DiversityTerm::new(diversity, config, &model, codec, train, seed))
            .transpose()?;
        let evaluation = config.eval.as_ref();
        let evaluation = evaluation
            .map(|eval| SampledEvaluation::new(eval, &model, codec, &examples.validation, seed))
            .transpose()?;
        let length = |example: &Example| example.prefix.ids.len() + example.ids.len();
        let lengths = train.iter().map(length).collect();
        let mixture = examples.mixture();
        let batches = EpochBatches::by_length(mixture, lengths, config.batch_size, seed);
        let plan = config.plan(&batches, examples, seed);
        let objective = Self {
            examples,
            validation,
            config,
            seed,
            batches,
            augmentation: None,
            diversity,
            evaluation,
            model: PhantomData,
        };
        Ok(SupervisedTrainer::new(model, objective, plan))
    }

    /// Returns the examples of a batch as they are read in this epoch: random variants with the
    /// conditions that are kept.
    fn read(&self, items: &[usize], step: u64) -> Vec<Example> {
        let epoch = (step / self.batches.steps_per_epoch()) as u32;
        let conditions = self.config.condition_dropout.unwrap_or_default();
        let of = |&item: &usize| {
            let (example, index) = (&self.examples.train[item], item as u32);
            let augmentation = self.augmentation.as_ref();
            let variant =
                augmentation.and_then(|augmentation| augmentation.variant(example, index, epoch));
            conditions.apply(variant.as_ref().unwrap_or(example), self.seed, epoch, index)
        };
        items.iter().map(of).collect()
    }
}

impl<M: LanguageModel> SupervisedTrainer<NextTokenObjective<'_, M>> {
    /// Trains on random variants of the examples, redrawn in each epoch.
    #[must_use]
    pub fn with_augmentation(self, augmentation: Option<Augmentation>) -> Self {
        self.map_objective(|objective| NextTokenObjective { augmentation, ..objective })
    }
}

impl PretrainConfig {
    fn plan(&self, batches: &EpochBatches, examples: &Examples, seed: u64) -> SupervisedPlan {
        let epoch_tokens = epoch_tokens(examples);
        let steps_per_epoch = batches.steps_per_epoch();
        SupervisedPlan {
            seed,
            steps: steps_per_epoch * u64::from(self.epochs),
            eval_every: if self.eval_every > 0 { self.eval_every } else { steps_per_epoch },
            dropout: self.dropout,
            optimizer: self.optimizer,
            schedule: Schedule {
                warmup: self.warmup_epochs * epoch_tokens,
                total: f64::from(self.epochs) * epoch_tokens,
                floor: self.learning_rate_floor,
                decay: self.learning_rate_decay,
            },
            schedule_unit: ScheduleUnit::Tokens,
            early_stopping: self.early_stopping(),
            transfer: TransferConfig::default(),
        }
    }
}

/// Returns the number of tokens that contribute to the loss of an epoch, on average.
fn epoch_tokens(Examples { train, mixture, .. }: &Examples) -> f64 {
    let Some(mixture) = mixture else { return targets(train) as f64 };
    let of = |(item, example): (usize, &Example)| {
        mixture.frequency(item) * example.targets().len() as f64
    };
    train.iter().enumerate().map(of).sum()
}

/// Returns the number of tokens that contribute to the loss.
fn targets<'a>(examples: impl IntoIterator<Item = &'a Example>) -> usize {
    examples.into_iter().map(|example| example.targets().len()).sum()
}

impl<M: LanguageModel> Objective for NextTokenObjective<'_, M> {
    type Model = M;
    type Measures = PretrainMeasures;
    type Progress = PretrainProgress;

    fn product_precision(&self) -> ProductPrecision {
        self.config.precision
    }

    fn prepare(&self, model: M) -> M {
        model.with_product_precision(self.product_precision())
    }

    fn metrics(&self) -> Vec<MetricGroup> {
        pretrain_metrics().into()
    }

    fn measures(&self, metric: &MetricSpec) -> bool {
        match metric.requires {
            diversity::REQUIRED => self.diversity.is_some(),
            diversity::SAMPLES_REQUIRED => {
                matches!(self.diversity, Some(DiversityTerm::ScoreFunction(_)))
            }
            samples::REQUIRED => self.evaluation.is_some(),
            _ => true,
        }
    }

    fn gradients(
        &self,
        model: &M,
        step: u64,
        dropout: &mut Dropout,
        progress: &mut PretrainProgress,
    ) -> Result<StepGradients, TrainError> {
        let items = self.batches.batch(step);
        let batch = self.read(&items, step);
        let batch: Vec<&Example> = batch.iter().collect();
        let tokens = targets(batch.iter().copied());
        let entropy = self.diversity.as_ref().and_then(DiversityTerm::entropy_coef);
        let weights = LossWeights { loss: 1.0, entropy };
        let mut gradients = GradientSum::default();
        let computed = awake(|| {
            cross_entropy(model, &batch, weights, self.config.cut(), dropout, &mut gradients)
        })?;
        let diversity = self.diversity.as_ref();
        let diversity = diversity
            .map(|term| term.add(model, &batch, step, &computed, &mut gradients))
            .transpose()?;
        let mut parts = diversity.unwrap_or_default();
        parts.insert("epoch", self.batches.epochs(step + 1));
        progress.loss += computed.loss * tokens as f64;
        progress.tokens += tokens as u64;
        Ok(StepGradients { loss: computed.loss, gradients: gradients.finish(), tokens, parts })
    }

    fn validate(
        &self,
        model: &M,
        steps: u64,
        progress: &mut PretrainProgress,
    ) -> Result<PretrainMeasures, TrainError> {
        let eval_loss = validation_loss(&model.valid(), &self.validation, self.config)?;
        let train_loss = progress.loss / progress.tokens as f64;
        (progress.loss, progress.tokens) = (0.0, 0);
        let sampled = self.evaluation.as_ref().map(|evaluation| evaluation.of(model, steps));
        let (sampled, rows) = sampled.transpose()?.unzip();
        Ok(PretrainMeasures {
            epoch: self.batches.epochs(steps),
            train_loss,
            eval_loss,
            sampled,
            rows: rows.unwrap_or_default(),
        })
    }

    fn selection_loss(&self, measures: &PretrainMeasures) -> f64 {
        measures.eval_loss
    }

    fn review(
        &self,
        steps: u64,
        measures: &PretrainMeasures,
        progress: &mut PretrainProgress,
    ) -> Review {
        let PretrainMeasures { train_loss, eval_loss, .. } = *measures;
        self.config.limits.map_or_else(Review::default, |limits| {
            limits.review(steps, train_loss, eval_loss, &mut progress.told)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_needs_patience_and_limits_are_some() {
        let refused = |keys: serde_json::Value| {
            let mut config = serde_json::json!({
                "epochs": 1, "batch_size": 1, "optimizer": {"learning_rate": 1e-3},
            });
            config.as_object_mut().unwrap().append(&mut keys.as_object().unwrap().clone());
            let config: PretrainConfig = serde_json::from_value(config).unwrap();
            config.check().unwrap_err().to_string()
        };
        assert!(refused(serde_json::json!({"min_gain": 0.01})).contains("patience = 0"));
        let nothing = serde_json::json!({"limits": {"action": "warn"}});
        assert!(refused(nothing).starts_with("pretrain.limits has no limit; "));
        let negative = serde_json::json!({"limits": {"action": "stop", "max_gap": -1.0}});
        assert_eq!(
            refused(negative),
            "pretrain.limits.max_gap = -1 is out of range; expected 0 or more"
        );
    }
}

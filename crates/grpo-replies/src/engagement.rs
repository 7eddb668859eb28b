//! Trains engagement models, which predict how well a reply is received.
//!
//! The embedder is frozen, so each tweet and reply is embedded only once. Two sets of tweets are
//! held out: one for selecting the weights and one for evaluating them.

mod examples;
mod preferences;
mod target;

use grpo_data::statistics::{mean, pearson, spearman};
use grpo_data::{ConfigFault, Ranges};
use std::collections::BTreeMap;

use crate::{EngagementGate, EngagementMeasures, EngagementObjective};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use grpo_model::{Dropout, Perceptron};
use grpo_runtime::awake;
use grpo_train::{
    Decay, EarlyStopping, EpochBatches, GradientSum, MetricGroup, MetricSpec, Objective,
    OptimizerConfig, Schedule, ScheduleUnit, StepGradients, SupervisedPlan, SupervisedTrainer,
    TrainError, TransferConfig, finite_loss, in_range,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::examples::Side;
use self::preferences::{Preference, bradley_terry, bradley_terry_loss};
use self::target::Targets;

pub use self::examples::EngagementData;
pub use self::target::{EngagementReply, engagement_score};

/// Configuration of a training run.
#[derive(Clone, Debug, PartialEq)]
pub struct EngagementConfig {
    /// The training objective.
    pub objective: EngagementObjective,
    /// Number of epochs, batch size and optimizer settings.
    pub training: EngagementTraining,
    /// Minimum quality for use as a reward.
    pub gate: EngagementGate,
}

/// Duration and optimizer settings of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct EngagementTraining {
    /// Each is followed by a validation; the epoch with the lowest loss is kept.
    #[serde(default = "default_epochs")]
    #[schemars(range(min = 1, max = 1e5))]
    pub epochs: u32,
    /// Replies, or pairs of replies, per step.
    #[serde(default = "default_batch_size")]
    #[schemars(range(min = 1, max = 1e6))]
    pub batch_size: usize,
    /// After each hidden layer.
    #[serde(default = "default_dropout")]
    #[schemars(range(min = 0, max = 0.9))]
    pub dropout: f32,
    /// End training after this many consecutive epochs without an improvement; 0 for never.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub patience: u32,
    /// Minimum improvement over the last loss that counted; needs `patience`.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_gain: f64,
    /// AdamW settings. The learning rate is constant.
    pub optimizer: OptimizerConfig,
}

impl EngagementTraining {
    fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    fn plan(&self, steps_per_epoch: u64, seed: u64) -> SupervisedPlan {
        let steps = u64::from(self.epochs) * steps_per_epoch;
        SupervisedPlan {
            seed,
            steps,
            eval_every: steps_per_epoch,
            dropout: self.dropout,
            optimizer: self.optimizer,
            schedule: Schedule {
                warmup: 0.0,
                total: steps as f64,
                floor: 1.0,
                decay: Decay::default(),
            },
            schedule_unit: ScheduleUnit::Steps,
            early_stopping: self.early_stopping(),
            transfer: TransferConfig::default(),
        }
    }
}

fn default_epochs() -> u32 {
    10
}
fn default_batch_size() -> usize {
    32
}
fn default_dropout() -> f32 {
    0.2
}

impl EngagementConfig {
    /// Checks that all settings are within their valid ranges.
    ///
    /// # Errors
    /// Returns an error for the first setting that is out of range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        match self.objective {
            EngagementObjective::Log { scale } => in_range("objective.scale", scale, 1e-3..=1e9)?,
            EngagementObjective::Pairwise { margin } => {
                in_range("objective.margin", margin, 0.0..=100.0)?;
            }
            EngagementObjective::Rank {} => {}
        }
        let training = &self.training;
        training.check_ranges("training")?;
        training.early_stopping().check("training")?;
        training.optimizer.check("training.optimizer")?;
        self.gate.check_ranges("gate")
    }
}

/// The training objective of an engagement head.
pub struct EngagementHeadObjective<'a> {
    train: Side<'a>,
    validation: Side<'a>,
    /// Batches of replies or, for the pairwise objective, of reply pairs.
    batches: EpochBatches,
    objective: &'a EngagementObjective,
}

impl<'a> EngagementHeadObjective<'a> {
    /// Creates a trainer for `head`. Its input size must match the number of features per reply.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, if a tweet is in more than one split, or if a
    /// split does not have enough replies.
    pub fn trainer(
        head: Perceptron,
        data: &'a EngagementData,
        config: &'a EngagementConfig,
        seed: u64,
    ) -> Result<SupervisedTrainer<Self>, TrainError> {
        config.check()?;
        let (objective, training) = (&config.objective, &config.training);
        data.check(objective)?;
        let targets = Targets::new(objective, data.train.iter().map(|reply| reply.score));
        let side = |replies: &'a [EngagementReply]| Side::new(replies, &targets, objective);
        let (train, validation) = (side(&data.train), side(&data.validation));
        let items = match objective {
            EngagementObjective::Pairwise { .. } => train.pairs.len(),
            EngagementObjective::Log { .. } | EngagementObjective::Rank {} => train.replies.len(),
        };
        let batches = EpochBatches::new(items, training.batch_size, seed);
        let plan = training.plan(batches.steps_per_epoch(), seed);
        let objective = Self { train, validation, batches, objective };
        Ok(SupervisedTrainer::new(head, objective, plan))
    }
}

/// Evaluates `head` on the test tweets, which were used neither for training nor for model
/// selection.
///
/// # Errors
/// Returns an error if the settings are invalid or a metric is not finite.
pub fn measure_engagement(
    head: &Perceptron,
    data: &EngagementData,
    config: &EngagementConfig,
) -> Result<EngagementMeasures, TrainError> {
    config.check()?;
    let targets = Targets::new(&config.objective, data.train.iter().map(|reply| reply.score));
    let test = Side::new(&data.test, &targets, &config.objective);
    awake(|| measures_of(&head.valid(), &test, &config.objective))
}

fn measures_of(
    head: &Perceptron,
    side: &Side<'_>,
    objective: &EngagementObjective,
) -> Result<EngagementMeasures, TrainError> {
    // Compute each reply separately, like the reward does.
    let logits: Vec<f64> = side.replies.par_iter().map(|it| head.logit(&it.features)).collect();
    let outputs: Vec<f64> = logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect();
    let scores: Vec<f64> = side.replies.iter().map(|reply| reply.score).collect();
    let eval_loss = match objective {
        EngagementObjective::Pairwise { .. } => mean(
            &side.pairs.iter().map(|pair| bradley_terry_loss(pair, &logits)).collect::<Vec<_>>(),
        ),
        EngagementObjective::Log { .. } | EngagementObjective::Rank {} => {
            let squares = outputs.iter().zip(&side.targets).map(|(o, t)| (o - t).powi(2));
            mean(&squares.collect::<Vec<_>>())
        }
    };
    if !eval_loss.is_finite() {
        return Err(TrainError::Diverged { what: "validation loss", value: eval_loss });
    }
    let won = side.pairs.iter().map(|pair| pair.won(&logits)).sum::<f64>();
    Ok(EngagementMeasures {
        eval_loss,
        pearson: pearson(&outputs, &side.targets).unwrap_or(0.0),
        pearson_score: pearson(&outputs, &scores).unwrap_or(0.0),
        spearman: spearman(&outputs, &scores).unwrap_or(0.0),
        pair_accuracy: (!side.pairs.is_empty()).then(|| won / side.pairs.len() as f64),
        replies: side.replies.len(),
        tweets: side.tweets(),
        pairs: side.pairs.len(),
    })
}

/// Metrics of the training of an engagement model, in addition to those of each supervised run.
pub const ENGAGEMENT_METRICS: MetricGroup =
    MetricGroup { name: "engagement", section: "training", metrics: &METRICS };

static METRICS: [MetricSpec; 9] = [
    MetricSpec::new("epoch", "count", "epochs completed, with their fraction").hidden(),
    MetricSpec::new("eval_loss", "", "loss on the validation tweets, without dropout")
        .curve("Supervised loss", "validation"),
    MetricSpec::new("pearson", "−1 to 1", "correlation of the outputs with the targets"),
    MetricSpec::new("pearson_score", "−1 to 1", "correlation of the outputs with the scores"),
    MetricSpec::new("spearman", "−1 to 1", "rank correlation of the outputs with the scores"),
    MetricSpec::new(
        "pair_accuracy",
        "0 to 1",
        "fraction of pairs whose better reply has the higher output; ties count half; `null` without pairs",
    ),
    MetricSpec::new("replies", "count", "number of replies these figures are based on"),
    MetricSpec::new("tweets", "count", "number of tweets these figures are based on"),
    MetricSpec::new("pairs", "count", "number of pairs these figures are based on"),
];

impl Objective for EngagementHeadObjective<'_> {
    type Model = Perceptron;
    type Measures = EngagementMeasures;
    type Progress = ();

    fn metrics(&self) -> Vec<MetricGroup> {
        vec![ENGAGEMENT_METRICS]
    }

    fn gradients(
        &self,
        head: &Perceptron,
        step: u64,
        dropout: &mut Dropout,
        _: &mut (),
    ) -> Result<StepGradients, TrainError> {
        awake(|| self.step(head, step, dropout))
    }

    fn validate(
        &self,
        head: &Perceptron,
        _: u64,
        _: &mut (),
    ) -> Result<EngagementMeasures, TrainError> {
        awake(|| measures_of(&head.valid(), &self.validation, self.objective))
    }

    fn selection_loss(&self, measures: &EngagementMeasures) -> f64 {
        measures.eval_loss
    }
}

impl EngagementHeadObjective<'_> {
    fn step(
        &self,
        head: &Perceptron,
        step: u64,
        dropout: &mut Dropout,
    ) -> Result<StepGradients, TrainError> {
        let batch = self.batches.batch(step);
        let loss = match self.objective {
            EngagementObjective::Pairwise { .. } => {
                let pairs: Vec<&Preference> =
                    batch.iter().map(|&place| &self.train.pairs[place]).collect();
                let of = |which: fn(&Preference) -> usize| -> Vec<usize> {
                    pairs.iter().map(|pair| which(pair)).collect()
                };
                // Evaluate both replies of each pair in a single forward pass, with the better
                // replies first.
                let both = [of(|pair| pair.better), of(|pair| pair.worse)].concat();
                let logits = head.logits(self.features(head, &both), dropout);
                bradley_terry(logits, &pairs)
            }
            EngagementObjective::Log { .. } | EngagementObjective::Rank {} => {
                let outputs = head.forward(self.features(head, &batch), dropout);
                let targets: Vec<f32> =
                    batch.iter().map(|&place| self.train.targets[place] as f32).collect();
                let targets = TensorData::new(targets, [batch.len()]);
                (outputs - Tensor::from_data(targets, &head.device())).square().mean()
            }
        };
        let value = finite_loss(loss.clone())?;
        let mut sum = GradientSum::default();
        sum.add(head, GradientsParams::from_grads(loss.backward(), head));
        let parts = BTreeMap::from([("epoch", self.batches.epochs(step + 1))]);
        // The head reads vectors, so there are no tokens to count.
        Ok(StepGradients { loss: value, gradients: sum.finish(), tokens: 0, parts })
    }

    /// Returns the features of the given replies, `[replies, features]`.
    fn features(&self, head: &Perceptron, replies: &[usize]) -> Tensor<2> {
        let rows = replies.iter().map(|&place| self.train.replies[place].features.as_slice());
        let rows: Vec<f32> = rows.flatten().copied().collect();
        let shape = [replies.len(), rows.len() / replies.len()];
        Tensor::from_data(TensorData::new(rows, shape), &head.device())
    }
}

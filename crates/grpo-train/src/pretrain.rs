//! Supervised training: next-token cross-entropy on examples, with a term for diversity where one is asked for.

mod batch;
mod config;
mod diversity;
mod samples;
mod watch;

use std::time::Instant;

use grpo_data::{Codec, EpochOrder, Example, Examples};
use grpo_kernels::awake;
use grpo_model::{Dropout, LanguageModel};
use serde::Serialize;

use self::batch::validation_loss;
pub(crate) use self::batch::{Weights, cross_entropy};
use self::diversity::DiversityTerm;
use self::samples::SampledEvaluation;
use self::watch::Watch;
use crate::batches::epoch_batches;
use crate::steps::GradientSum;
use crate::{Optimizer, TrainError, WarmupCosine};

pub use self::config::{
    DiversityConfig, LimitAction, LossLimits, PretrainConfig, SampledEvalConfig,
};
pub use self::diversity::DiversityStep;
pub use self::samples::{SampleRow, SampledMeasures};

/// One optimizer step of pre-training.
#[derive(Clone, Debug, Serialize)]
pub struct PretrainStep {
    /// Optimizer steps done, this one among them.
    pub train_step: u64,
    /// Epoch, from 0, with its fraction done.
    pub epoch: f64,
    /// Mean cross-entropy over the tokens of the step, in nats.
    pub step_train_loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// What was used in this step.
    pub learning_rate: f64,
    /// Tokens trained on so far.
    pub num_tokens: u64,
    /// Seconds.
    pub step_time: f64,
    /// Of the diversity term, in a step that has it.
    #[serde(flatten)]
    pub diversity: Option<DiversityStep>,
}

/// A look at the validation examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PretrainEvaluation {
    /// Optimizer steps done.
    pub train_step: u64,
    /// Epochs done, with their fraction.
    pub epoch: f64,
    /// Mean cross-entropy over the training tokens since the last evaluation, in nats.
    pub train_loss: f64,
    /// Mean cross-entropy over the validation tokens, in nats, without dropout.
    pub eval_loss: f64,
    /// Whether it is the lowest validation loss so far.
    pub best: bool,
    /// Of sampled completions, where some were.
    #[serde(flatten)]
    pub sampled: Option<SampledMeasures>,
    /// Some of those completions.
    #[serde(skip)]
    pub rows: Vec<SampleRow>,
    /// Limits that it is beyond, where that is not said already and does not end the training.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Who is told how a pre-training goes.
pub trait PretrainObserver<M> {
    /// After each optimizer step. `steps` is how many the whole training has.
    ///
    /// # Errors
    /// Ends the training.
    fn step(&mut self, step: &PretrainStep, steps: u64) -> Result<(), TrainError>;
    /// After each evaluation, with the model as it is now.
    ///
    /// # Errors
    /// Ends the training.
    fn evaluated(&mut self, evaluation: &PretrainEvaluation, model: &M) -> Result<(), TrainError>;
}

/// Why a pre-training ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PretrainEnding {
    /// All epochs are done.
    Finished,
    /// The validation loss does not become lower any more.
    NoGain {
        /// Optimizer steps done.
        step: u64,
        /// Steps that were done at the lowest validation loss, and that loss.
        best: (u64, f64),
    },
    /// An evaluation is beyond a limit that ends the training.
    Limit {
        /// What it found, in one sentence.
        message: String,
    },
}

/// What came of a pre-training.
#[derive(Debug)]
pub struct Pretrained<M> {
    /// After the last step; the best one is what an observer kept.
    pub model: M,
    /// Why it ended.
    pub ending: PretrainEnding,
}

/// A pre-training before its first step: all of its settings are good ones.
pub struct Pretraining<'a, M> {
    model: M,
    examples: &'a Examples,
    config: &'a PretrainConfig,
    seed: u64,
    diversity: Option<DiversityTerm>,
    evaluation: Option<SampledEvaluation>,
}

/// Trains `model` on the examples; `codec` is what makes text of what it samples.
///
/// # Errors
/// What [`Pretraining::new`] and [`Pretraining::run`] say.
pub fn pretrain<M: LanguageModel>(
    model: M,
    codec: &Codec,
    examples: &Examples,
    config: &PretrainConfig,
    seed: u64,
    observer: &mut dyn PretrainObserver<M>,
) -> Result<Pretrained<M>, TrainError> {
    Pretraining::new(model, codec, examples, config, seed)?.run(observer)
}

impl<'a, M: LanguageModel> Pretraining<'a, M> {
    /// Checks the settings against the model and the examples, and reads the embedders that they name.
    ///
    /// # Errors
    /// Settings that are out of range; prompts that are too long for what is to be sampled behind them; an embedder
    /// that cannot be read.
    pub fn new(
        model: M,
        codec: &Codec,
        examples: &'a Examples,
        config: &'a PretrainConfig,
        seed: u64,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let diversity = config.diversity.as_ref().map(|diversity| {
            DiversityTerm::new(diversity, config, &model, codec, &examples.train, seed)
        });
        let evaluation = config
            .eval
            .as_ref()
            .map(|eval| SampledEvaluation::new(eval, &model, codec, &examples.validation, seed));
        Ok(Self {
            diversity: diversity.transpose()?,
            evaluation: evaluation.transpose()?,
            model,
            examples,
            config,
            seed,
        })
    }

    /// Takes the steps.
    ///
    /// # Errors
    /// A loss or gradient that is not finite; a text that no vector can be made of; whatever the observer says.
    pub fn run(self, observer: &mut dyn PretrainObserver<M>) -> Result<Pretrained<M>, TrainError> {
        let Self { mut model, examples, config, seed, diversity, evaluation } = self;
        let train = &examples.train;
        let lengths: Vec<usize> = train.iter().map(|example| example.ids.len()).collect();
        let epoch_tokens =
            train.iter().map(|example| example.targets().len()).sum::<usize>() as f64;
        let schedule = WarmupCosine {
            warmup: config.warmup_epochs * epoch_tokens,
            total: f64::from(config.epochs) * epoch_tokens,
            floor: config.learning_rate_floor,
        };
        let mut optimizer = Optimizer::new(&model, &config.optimizer);
        let mut order = EpochOrder::new(seed, train.len());
        let steps_of_epoch = lengths.len().div_ceil(config.batch_size) as u64;
        let steps = steps_of_epoch * u64::from(config.epochs);
        let eval_every = if config.eval_every > 0 { config.eval_every } else { steps_of_epoch };
        let (mut step, mut tokens) = (0_u64, 0_u64);
        // Of the training loss since the last evaluation.
        let (mut sum, mut summed) = (0.0, 0_usize);
        let mut watch = Watch::new(config);

        for _epoch in 0..config.epochs {
            for batch in epoch_batches(&lengths, config.batch_size, seed, &mut order) {
                let started = Instant::now();
                let batch: Vec<&Example> = batch.iter().map(|&i| &train[i]).collect();
                let targets = batch.iter().map(|example| example.targets().len()).sum::<usize>();
                tokens += targets as u64;
                let learning_rate =
                    config.optimizer.learning_rate * schedule.multiplier(tokens as f64);
                let mut dropout = Dropout::new(seed, step as u32, config.dropout);
                let entropy_coef = diversity.as_ref().and_then(DiversityTerm::entropy_coef);
                let weights = Weights { loss: 1.0, entropy: entropy_coef };
                let mut gradients = GradientSum::default();
                let taught = awake(|| {
                    let (cut, all) = (config.cut(), &mut gradients);
                    cross_entropy(&model, &batch, weights, cut, &mut dropout, all)
                })?;
                let of_diversity = match &diversity {
                    Some(term) => term.add(&model, &batch, step, &taught, &mut gradients)?,
                    None => None,
                };
                let grad_norm;
                (model, grad_norm) = optimizer.step(model, gradients.finish(), learning_rate)?;
                sum += taught.loss * targets as f64;
                summed += targets;
                step += 1;
                let epoch = step as f64 / steps_of_epoch as f64;
                let report = PretrainStep {
                    train_step: step,
                    epoch,
                    step_train_loss: taught.loss,
                    grad_norm,
                    learning_rate,
                    num_tokens: tokens,
                    step_time: started.elapsed().as_secs_f64(),
                    diversity: of_diversity,
                };
                observer.step(&report, steps)?;
                if !step.is_multiple_of(eval_every) && step != steps {
                    continue;
                }
                let eval_loss = validation_loss(&model.valid(), &examples.validation, config)?;
                let train_loss = sum / summed as f64;
                (sum, summed) = (0.0, 0);
                let seen = watch.observe(step, train_loss, eval_loss);
                let looked = evaluation.as_ref().map(|evaluation| evaluation.of(&model, step));
                let (sampled, rows) = looked.transpose()?.unzip();
                let report = PretrainEvaluation {
                    train_step: step,
                    epoch,
                    train_loss,
                    eval_loss,
                    best: seen.is_best,
                    sampled,
                    rows: rows.unwrap_or_default(),
                    warnings: seen.warnings,
                };
                observer.evaluated(&report, &model)?;
                if let Some(ending) = seen.ending {
                    return Ok(Pretrained { model, ending });
                }
            }
        }
        Ok(Pretrained { model, ending: PretrainEnding::Finished })
    }
}

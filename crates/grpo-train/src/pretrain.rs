//! Supervised training: next-token cross-entropy on examples.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};
use grpo_data::{EpochOrder, Example, Examples};
use grpo_kernels::awake;
use grpo_kernels::gather_rows;
use grpo_logprob::{Targets, score};
use grpo_model::{Dropout, LanguageModel, TokenBatch};
use serde::{Deserialize, Serialize};

use crate::batches::epoch_batches;
use crate::error::{finite_loss, in_range};
use crate::steps::{GradientSum, by_tokens};
use crate::{Optimizer, OptimizerConfig, TrainError, WarmupCosine};

/// Settings of a pre-training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Passes over the training examples.
    pub epochs: u32,
    /// Examples of one optimizer step.
    pub batch_size: usize,
    /// Tokens that are computed at the same time; decides memory, and the result only by the rounding of a sum and by
    /// the masks of dropout. All of the step's where it is left out; an example that has more is computed alone.
    #[serde(default)]
    pub micro_batch_tokens: Option<usize>,
    /// What is in a block of the model is computed once more on the way back, instead of being kept: less memory, a
    /// third more time.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Length of the warm-up, as a part of one epoch's tokens.
    #[serde(default = "default_warmup")]
    pub warmup_epochs: f64,
    /// The learning rate never falls below this part of its highest value after the warm-up.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Probability of dropping an element, in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// AdamW.
    pub optimizer: OptimizerConfig,
}

fn default_warmup() -> f64 {
    0.1
}
fn default_floor() -> f64 {
    0.1
}

impl PretrainConfig {
    /// Checks ranges once.
    ///
    /// # Errors
    /// The first key that is out of its range.
    pub fn check(&self) -> Result<(), TrainError> {
        in_range("pretrain.epochs", f64::from(self.epochs), 1.0..=1e6)?;
        in_range("pretrain.batch_size", self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range("pretrain.micro_batch_tokens", micro as f64, 1.0..=1e9)?;
        in_range("pretrain.warmup_epochs", self.warmup_epochs, 0.0..=f64::from(self.epochs))?;
        in_range("pretrain.learning_rate_floor", self.learning_rate_floor, 0.0..=1.0)?;
        in_range("pretrain.dropout", f64::from(self.dropout), 0.0..=0.9)?;
        self.optimizer.check("pretrain.optimizer")
    }
}

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
}

/// The end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PretrainEpoch {
    /// Epochs done.
    pub epoch: u32,
    /// Mean cross-entropy over the epoch's training tokens, in nats.
    pub epoch_train_loss: f64,
    /// Mean cross-entropy over the validation tokens, in nats.
    pub epoch_valid_loss: f64,
    /// Whether it is the lowest validation loss so far.
    pub best: bool,
}

/// Who is told how a pre-training goes.
pub trait PretrainObserver<M> {
    /// After each optimizer step. `steps` is how many the whole training has.
    ///
    /// # Errors
    /// Ends the training.
    fn step(&mut self, step: &PretrainStep, steps: u64) -> Result<(), TrainError>;
    /// After each epoch, with the model as it is now.
    ///
    /// # Errors
    /// Ends the training.
    fn epoch(&mut self, epoch: &PretrainEpoch, model: &M) -> Result<(), TrainError>;
}

/// Trains `model` on the examples.
///
/// # Errors
/// A loss or gradient that is not finite; whatever the observer says.
pub fn pretrain<M: LanguageModel>(
    mut model: M,
    examples: &Examples,
    config: &PretrainConfig,
    seed: u64,
    observer: &mut dyn PretrainObserver<M>,
) -> Result<M, TrainError> {
    config.check()?;
    let train = &examples.train;
    let lengths: Vec<usize> = train.iter().map(|example| example.ids.len()).collect();
    let epoch_tokens = train.iter().map(|example| example.targets().len()).sum::<usize>() as f64;
    let schedule = WarmupCosine {
        warmup: config.warmup_epochs * epoch_tokens,
        total: f64::from(config.epochs) * epoch_tokens,
        floor: config.learning_rate_floor,
    };
    let mut optimizer = Optimizer::new(&model, &config.optimizer);
    let mut order = EpochOrder::new(seed, train.len());
    let steps_of_epoch = lengths.len().div_ceil(config.batch_size) as u64;
    let steps = steps_of_epoch * u64::from(config.epochs);
    let (mut step, mut tokens, mut best) = (0_u64, 0_u64, f64::INFINITY);

    for epoch in 0..config.epochs {
        let mut epoch_loss = 0.0;
        for batch in epoch_batches(&lengths, config.batch_size, seed, &mut order) {
            let started = Instant::now();
            let batch: Vec<&Example> = batch.iter().map(|&i| &train[i]).collect();
            let targets = batch.iter().map(|example| example.targets().len()).sum::<usize>();
            tokens += targets as u64;
            let learning_rate = config.optimizer.learning_rate * schedule.multiplier(tokens as f64);
            let mut dropout = Dropout::new(seed, step as u32, config.dropout);
            let (value, gradients) =
                awake(|| gradients(&model, &batch, targets, config, &mut dropout))?;
            let grad_norm;
            (model, grad_norm) = optimizer.step(model, gradients, learning_rate)?;
            epoch_loss += value * targets as f64;
            step += 1;
            let report = PretrainStep {
                train_step: step,
                epoch: step as f64 / steps_of_epoch as f64,
                step_train_loss: value,
                grad_norm,
                learning_rate,
                num_tokens: tokens,
                step_time: started.elapsed().as_secs_f64(),
            };
            observer.step(&report, steps)?;
        }
        let valid = validation_loss(&model.valid(), &examples.validation, config)?;
        let report = PretrainEpoch {
            epoch: epoch + 1,
            epoch_train_loss: epoch_loss / epoch_tokens,
            epoch_valid_loss: valid,
            best: valid < best,
        };
        best = best.min(valid);
        observer.epoch(&report, &model)?;
    }
    Ok(model)
}

/// Mean loss over the targets of a step, and its gradients, added up over micro-batches.
fn gradients<M: LanguageModel>(
    model: &M,
    batch: &[&Example],
    targets: usize,
    config: &PretrainConfig,
    dropout: &mut Dropout,
) -> Result<(f64, GradientsParams), TrainError> {
    let (mut value, mut sum) = (0.0, GradientSum::default());
    for rows in by_tokens(batch, config.micro_batch_tokens, inputs) {
        let micro = MicroBatch::new(rows);
        let forward = model.forward(&micro.inputs, dropout, config.activation_checkpointing);
        let loss = micro.loss(model, &forward.hidden, targets);
        value += finite_loss(loss.clone())?;
        for part in forward.backward(loss, model) {
            sum.add(model, part);
        }
    }
    Ok((value, sum.finish()))
}

fn validation_loss<M: LanguageModel>(
    model: &M,
    examples: &[Example],
    config: &PretrainConfig,
) -> Result<f64, TrainError> {
    let mut sorted: Vec<&Example> = examples.iter().collect();
    sorted.sort_by_key(|example| example.ids.len());
    let (mut sum, mut tokens) = (0.0, 0);
    let batches = sorted.chunks(config.batch_size);
    for rows in batches.flat_map(|batch| by_tokens(batch, config.micro_batch_tokens, inputs)) {
        let micro = MicroBatch::new(rows);
        let hidden = model.hidden(&micro.inputs, None, &mut Dropout::off());
        let count = micro.next.len();
        sum += finite_loss(micro.loss(model, &hidden, count))? * count as f64;
        tokens += count;
    }
    Ok(sum / tokens as f64)
}

/// Tokens of an example that a model reads.
fn inputs(example: &&Example) -> usize {
    example.ids.len() - 1
}

/// Examples one behind another, and their next tokens.
struct MicroBatch {
    inputs: TokenBatch,
    /// The places among the tokens that have a next token to learn, `[n]`, and that token.
    places: Vec<i32>,
    next: Vec<u32>,
}

impl MicroBatch {
    fn new(rows: &[&Example]) -> Self {
        let inputs: TokenBatch =
            rows.iter().map(|example| &example.ids[..example.ids.len() - 1]).collect();
        let (mut places, mut next) = (Vec::new(), Vec::new());
        for (row, example) in rows.iter().enumerate() {
            next.extend_from_slice(example.targets());
            let targets = example.first_target..example.ids.len();
            places.extend(targets.map(|target| (inputs.rows(row).start + target - 1) as i32));
        }
        Self { inputs, places, next }
    }

    /// `−Σ log p(next token) / tokens`, `[1]`.
    fn loss<M: LanguageModel>(&self, model: &M, hidden: &Tensor<2>, tokens: usize) -> Tensor<1> {
        let places: Tensor<1, Int> = Tensor::from_data(self.places.as_slice(), &hidden.device());
        let targets = Targets::new(self.next.clone(), model.vocabulary_size());
        let scores = score(gather_rows(hidden.clone(), places), &model.head(), &targets);
        scores.logprobs.sum() * (-1.0 / tokens as f64)
    }
}

//! Supervised pre-training: next-token cross-entropy on a corpus (MolGPT's first stage).

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};
use grpo_data::{Corpus, EpochOrder};
use grpo_logprob::{Targets, score};
use grpo_model::{CausalLm, Dropout};
use serde::{Deserialize, Serialize};

use crate::batches::{PaddedIds, epoch_batches};
use crate::error::{finite_loss, in_range};
use crate::{Optimizer, OptimizerConfig, TrainError, WarmupCosine};

/// Settings of a pre-training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Passes over the training molecules.
    pub epochs: u32,
    /// Molecules of one optimizer step.
    pub batch_size: usize,
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

/// Trains `model` on `corpus`; `boundary` begins and ends each molecule.
///
/// The loss is over the molecule's tokens and its end mark. (The published code also trains on the padding
/// behind the end mark; here the first one is enough, since sampling stops there.)
///
/// # Errors
/// A loss or gradient that is not finite; whatever the observer says.
pub fn pretrain<M: CausalLm>(
    mut model: M,
    corpus: &Corpus,
    boundary: u32,
    config: &PretrainConfig,
    seed: u64,
    observer: &mut dyn PretrainObserver<M>,
) -> Result<M, TrainError> {
    config.check()?;
    let lengths: Vec<usize> = corpus.train.iter().map(|ids| ids.len() + 1).collect();
    let epoch_tokens = lengths.iter().sum::<usize>() as f64;
    let schedule = WarmupCosine {
        warmup: config.warmup_epochs * epoch_tokens,
        total: f64::from(config.epochs) * epoch_tokens,
        floor: config.learning_rate_floor,
    };
    let mut optimizer = Optimizer::new(&model, &config.optimizer);
    let mut order = EpochOrder::new(seed, corpus.train.len());
    let steps_of_epoch = lengths.len().div_ceil(config.batch_size) as u64;
    let steps = steps_of_epoch * u64::from(config.epochs);
    let (mut step, mut tokens, mut best) = (0_u64, 0_u64, f64::INFINITY);

    for epoch in 0..config.epochs {
        let mut epoch_loss = 0.0;
        for batch in epoch_batches(&lengths, config.batch_size, seed, &mut order) {
            let started = Instant::now();
            let batch = Batch::new(batch.iter().map(|&i| corpus.train[i].as_slice()), boundary);
            tokens += batch.tokens as u64;
            let learning_rate = config.optimizer.learning_rate * schedule.multiplier(tokens as f64);
            let mut dropout = Dropout::new(seed, step as u32, config.dropout);
            let loss = batch.loss(&model, &mut dropout);
            let value = finite_loss(loss.clone())?;
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let grad_norm;
            (model, grad_norm) = optimizer.step(model, gradients, learning_rate)?;
            epoch_loss += value * batch.tokens as f64;
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
        let valid = validation_loss(&model.valid(), &corpus.validation, boundary, config)?;
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

fn validation_loss<M: CausalLm>(
    model: &M,
    sequences: &[Vec<u32>],
    boundary: u32,
    config: &PretrainConfig,
) -> Result<f64, TrainError> {
    let mut sorted: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    sorted.sort_by_key(|ids| ids.len());
    let (mut sum, mut tokens) = (0.0, 0);
    for rows in sorted.chunks(config.batch_size) {
        let batch = Batch::new(rows.iter().copied(), boundary);
        sum += finite_loss(batch.loss(model, &mut Dropout::off()))? * batch.tokens as f64;
        tokens += batch.tokens;
    }
    Ok(sum / tokens as f64)
}

/// Sequences padded to one length, and their next tokens.
struct Batch {
    inputs: PaddedIds,
    /// The places among `b · t` that have a next token, `[n]`, and that token.
    places: Vec<i32>,
    next: Vec<u32>,
    /// n.
    tokens: usize,
}

impl Batch {
    fn new<'a>(rows: impl ExactSizeIterator<Item = &'a [u32]> + Clone, boundary: u32) -> Self {
        let inputs: Vec<Vec<u32>> = rows.clone().map(|ids| [&[boundary], ids].concat()).collect();
        let inputs = PaddedIds::new(inputs.iter().map(Vec::as_slice), boundary);
        let (mut places, mut next) = (Vec::new(), Vec::new());
        for (row, ids) in rows.enumerate() {
            next.extend(ids.iter().copied().chain([boundary]));
            places.extend((0..=ids.len()).map(|t| (row * inputs.columns + t) as i32));
        }
        Self { inputs, tokens: places.len(), places, next }
    }

    /// Mean of `−log p(next token)`, `[1]`.
    fn loss<M: CausalLm>(&self, model: &M, dropout: &mut Dropout) -> Tensor<1> {
        let device = model.device();
        let hidden = model.hidden(self.inputs.clone().tensor(&device), None, dropout);
        let places: Tensor<1, Int> = Tensor::from_data(self.places.as_slice(), &device);
        let targets = Targets::new(self.next.clone(), model.vocabulary_size());
        let scores = score(hidden.select(0, places), &model.head(), &targets);
        scores.logprobs.sum() * (-1.0 / self.tokens as f64)
    }
}

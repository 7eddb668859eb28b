//! Packed batches of examples and their cross-entropy.

use burn::tensor::{Int, Tensor};
use grpo_data::Example;
use grpo_kernels::gather_rows;
use grpo_logprob::{Scores, Targets, score};
use grpo_model::{Dropout, LanguageModel, TokenBatch};

use crate::error::finite_loss;
use crate::supervised::{Cut, GradientSum, by_tokens};
use crate::{PretrainConfig, TrainError};

/// Cross-entropy of one step.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    /// Mean cross-entropy over target tokens.
    pub loss: f64,
    /// Mean entropy of the next-token distribution over target tokens, if it is part of the loss.
    pub entropy: Option<f64>,
}

/// Loss weights.
#[derive(Clone, Copy, Debug)]
pub struct LossWeights {
    /// Weight of the cross-entropy.
    pub loss: f64,
    /// Weight of the entropy, which is subtracted. `None` disables the term.
    pub entropy: Option<f64>,
}

/// Returns the mean cross-entropy and, if it has a weight, the mean entropy of a batch. Adds their
/// weighted gradients to `gradients`.
///
/// # Errors
/// Returns an error if the loss is not finite.
pub fn cross_entropy<M: LanguageModel>(
    model: &M,
    batch: &[&Example],
    weights: LossWeights,
    cut: Cut,
    dropout: &mut Dropout,
    gradients: &mut GradientSum,
) -> Result<CrossEntropy, TrainError> {
    let targets = batch.iter().map(|example| example.targets().len()).sum::<usize>();
    let (mut loss, mut entropy) = (0.0, 0.0);
    for rows in by_tokens(batch, cut.tokens, inputs) {
        let micro = MicroBatch::new(rows);
        let forward = model.forward(&micro.inputs, dropout, cut.checkpointing);
        let scores = micro.scores(model, &forward.hidden);
        let mut part = mean_loss(scores.logprobs, targets);
        loss += finite_loss(part.clone())?;
        // This is exact if the weight is 1.
        part = part * weights.loss;
        if let Some(weight) = weights.entropy {
            let of_part = scores.entropies.sum() * (1.0 / targets as f64);
            entropy += finite_loss(of_part.clone())?;
            // Skip a weight of 0, so that the result is bit-for-bit the same as without the term.
            if weight != 0.0 {
                part = part - of_part * weight;
            }
        }
        gradients.add_of(forward, part, model);
    }
    Ok(CrossEntropy { loss, entropy: weights.entropy.map(|_| entropy) })
}

/// Returns the mean cross-entropy over target tokens in `examples`, without dropout.
pub(super) fn validation_loss<M: LanguageModel>(
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
        let hidden = model.hidden(&micro.inputs, &mut Dropout::off());
        let count = micro.next.len();
        let loss = mean_loss(micro.scores(model, &hidden).logprobs, count);
        sum += finite_loss(loss)? * count as f64;
        tokens += count;
    }
    Ok(sum / tokens as f64)
}

/// Computes `−Σ log p(next token) / tokens`, `[1]`.
fn mean_loss(logprobs: Tensor<1>, tokens: usize) -> Tensor<1> {
    logprobs.sum() * (-1.0 / tokens as f64)
}

/// Returns the number of input tokens in an example.
fn inputs(example: &&Example) -> usize {
    example.prefix.ids.len() + example.ids.len() - 1
}

/// Concatenated examples and the tokens to predict.
struct MicroBatch {
    inputs: TokenBatch,
    /// Positions that predict a target token, `[n]`, and the target tokens themselves.
    places: Vec<i32>,
    next: Vec<u32>,
}

impl MicroBatch {
    fn new(rows: &[&Example]) -> Self {
        let mut inputs = TokenBatch::new();
        for example in rows {
            inputs.push_conditional(&example.prefix, &example.ids[..example.ids.len() - 1]);
        }
        let (mut places, mut next) = (Vec::new(), Vec::new());
        for (row, example) in rows.iter().enumerate() {
            next.extend_from_slice(example.targets());
            let targets = example.first_target..example.ids.len();
            places.extend(targets.map(|target| (inputs.rows(row).start + target - 1) as i32));
        }
        Self { inputs, places, next }
    }

    /// Computes scores for the target tokens, `[n]`.
    fn scores<M: LanguageModel>(&self, model: &M, hidden: &Tensor<2>) -> Scores {
        let places: Tensor<1, Int> = Tensor::from_data(self.places.as_slice(), &hidden.device());
        let targets = Targets::new(self.next.clone(), model.vocabulary_size());
        score(gather_rows(hidden.clone(), places), &model.head(), &targets)
    }
}

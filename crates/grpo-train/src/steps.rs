//! Supervised training in a number of steps: what a masked language model and a judge share.

use grpo_data::ConfigFault;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use grpo_core::accumulate;
use grpo_kernels::awake;
use grpo_model::{Dropout, Forward, LanguageModel};
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::transfer::Trunk;
use crate::{Optimizer, OptimizerConfig, TrainError, TransferConfig, WarmupCosine};

/// Settings of a supervised training in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    /// Optimizer steps.
    pub steps: u64,
    /// Passages of one step.
    pub batch_size: usize,
    /// Tokens that are computed at the same time; decides memory, and the result only by the rounding of a sum and by
    /// the masks of dropout. All of the step's where it is left out; a passage that has more is computed alone.
    #[serde(default)]
    pub micro_batch_tokens: Option<usize>,
    /// Steps over which the learning rate rises.
    #[serde(default)]
    pub warmup_steps: u64,
    /// The learning rate never falls below this part of its highest value after the warm-up.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Probability of dropping an element, in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Steps from one look at the validation half to the next; there is one after the last step too.
    pub eval_every: u64,
    /// AdamW.
    pub optimizer: OptimizerConfig,
}

fn default_floor() -> f64 {
    0.1
}

impl StepsConfig {
    /// Checks ranges once; `section` names the place in the configuration.
    ///
    /// # Errors
    /// The first key that is out of its range.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        in_range(&key("steps"), self.steps as f64, 1.0..=1e9)?;
        in_range(&key("batch_size"), self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range(&key("micro_batch_tokens"), micro as f64, 1.0..=1e9)?;
        in_range(&key("warmup_steps"), self.warmup_steps as f64, 0.0..=self.steps as f64)?;
        in_range(&key("learning_rate_floor"), self.learning_rate_floor, 0.0..=1.0)?;
        in_range(&key("dropout"), f64::from(self.dropout), 0.0..=0.9)?;
        in_range(&key("eval_every"), self.eval_every as f64, 1.0..=1e9)?;
        self.optimizer.check(&key("optimizer"))
    }
}

/// One optimizer step.
#[derive(Clone, Debug, Serialize)]
pub struct OptimizerStep {
    /// Optimizer steps done, this one among them.
    pub train_step: u64,
    /// What was minimised.
    pub step_train_loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// What was used in this step.
    pub learning_rate: f64,
    /// Tokens read so far.
    pub num_tokens: u64,
    /// Seconds.
    pub step_time: f64,
    /// What else there is to say of this kind of training.
    #[serde(flatten)]
    pub parts: BTreeMap<&'static str, f64>,
}

/// A look at the validation half.
#[derive(Clone, Debug, Serialize)]
pub struct Validated<E> {
    /// Optimizer steps done.
    pub train_step: u64,
    /// What was seen.
    #[serde(flatten)]
    pub measures: E,
    /// Whether it is the lowest loss so far.
    pub best: bool,
}

/// Who is told how a training in steps goes.
pub trait StepsObserver<M, E> {
    /// After each optimizer step. `steps` is how many the whole training has.
    ///
    /// # Errors
    /// Ends the training.
    fn step(&mut self, step: &OptimizerStep, steps: u64) -> Result<(), TrainError>;
    /// After each look at the validation half, with the model as it is now.
    ///
    /// # Errors
    /// Ends the training.
    fn validated(&mut self, validated: &Validated<E>, model: &M) -> Result<(), TrainError>;
}

/// What is learned in the steps.
pub(crate) trait Lesson<M> {
    /// Of the validation half.
    type Measures;

    /// What step `step`, from 0, has to say to `model`.
    fn gradients(
        &self,
        model: &M,
        step: u64,
        dropout: &mut Dropout,
    ) -> Result<StepGradients, TrainError>;

    /// Looks at the validation half, with its loss.
    fn validate(&self, model: &M) -> Result<(f64, Self::Measures), TrainError>;

    /// Whether the parameter at `path` is of the trunk, and of no head that is this training's own.
    fn is_of_trunk(&self, path: &str) -> bool;
}

/// What a step does to a model.
pub(crate) struct StepGradients {
    pub(crate) loss: f64,
    pub(crate) gradients: GradientsParams,
    /// Tokens that the model read.
    pub(crate) tokens: usize,
    pub(crate) parts: BTreeMap<&'static str, f64>,
}

/// Takes the steps, and gives the model of the last one.
pub(crate) fn train_in_steps<M: Module, L: Lesson<M>>(
    mut model: M,
    lesson: &L,
    config: &StepsConfig,
    transfer: &TransferConfig,
    seed: u64,
    observer: &mut dyn StepsObserver<M, L::Measures>,
) -> Result<M, TrainError> {
    let schedule = WarmupCosine {
        warmup: config.warmup_steps as f64,
        total: config.steps as f64,
        floor: config.learning_rate_floor,
    };
    let trunk = Trunk::of(&model, transfer, |path| lesson.is_of_trunk(path));
    let mut optimizer =
        Optimizer::new(&model, &config.optimizer).with_factor(trunk.learning_rate_factor());
    let (mut tokens, mut lowest) = (0, f64::INFINITY);
    for step in 0..config.steps {
        let started = Instant::now();
        let done = step + 1;
        let learning_rate = config.optimizer.learning_rate * schedule.multiplier(done as f64);
        let mut dropout = Dropout::new(seed, step as u32, config.dropout);
        let taught = awake(|| lesson.gradients(&model, step, &mut dropout))?;
        let gradients = trunk.admit(&model, taught.gradients, step);
        let grad_norm;
        (model, grad_norm) = optimizer.step(model, gradients, learning_rate)?;
        tokens += taught.tokens as u64;
        let report = OptimizerStep {
            train_step: done,
            step_train_loss: taught.loss,
            grad_norm,
            learning_rate,
            num_tokens: tokens,
            step_time: started.elapsed().as_secs_f64(),
            parts: taught.parts,
        };
        observer.step(&report, config.steps)?;
        if done.is_multiple_of(config.eval_every) || done == config.steps {
            let (loss, measures) = awake(|| lesson.validate(&model.valid()))?;
            let best = loss < lowest;
            lowest = lowest.min(loss);
            observer.validated(&Validated { train_step: done, measures, best }, &model)?;
        }
    }
    Ok(model)
}

/// How a batch is cut into parts that are computed one behind another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Tokens of a part, at most; all where there is no limit.
    pub(crate) tokens: Option<usize>,
    /// Whether what is in a block of the model is computed once more on the way back.
    pub(crate) checkpointing: bool,
}

/// Gradients of the parts of a batch, added up.
#[derive(Default)]
pub(crate) struct GradientSum {
    sum: Option<GradientsParams>,
    /// Time that [`Self::add_of`] took.
    backward: Duration,
}

impl GradientSum {
    pub(crate) fn add<M: Module>(&mut self, model: &M, part: GradientsParams) {
        self.sum = Some(accumulate(model, self.sum.take(), part));
    }

    /// Adds the gradients of a loss that was made of what `forward` gave.
    pub(crate) fn add_of<M: LanguageModel>(
        &mut self,
        forward: Forward<M>,
        loss: Tensor<1>,
        model: &M,
    ) {
        let started = Instant::now();
        for part in forward.backward(loss, model) {
            self.add(model, part);
        }
        self.backward += started.elapsed();
    }

    /// Time that the gradients took so far, which [`Self::add_of`] added.
    pub(crate) fn backward(&self) -> Duration {
        self.backward
    }

    /// None at all where nothing was added.
    pub(crate) fn finish(self) -> GradientsParams {
        self.sum.unwrap_or_default()
    }
}

/// Cuts a batch where a part would have more than `tokens` tokens to read; one that has more by itself is alone.
pub(crate) fn by_tokens<T>(
    batch: &[T],
    tokens: Option<usize>,
    length: impl Fn(&T) -> usize,
) -> Vec<&[T]> {
    let most = tokens.unwrap_or(usize::MAX);
    let (mut parts, mut first, mut sum) = (Vec::new(), 0, 0);
    for (place, item) in batch.iter().enumerate() {
        let own = length(item);
        if place > first && sum + own > most {
            parts.push(&batch[first..place]);
            (first, sum) = (place, 0);
        }
        sum += own;
    }
    parts.push(&batch[first..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_at_most_so_many_tokens() {
        let check = |tokens, expected: &[&[usize]]| {
            assert_eq!(by_tokens(&[3, 4, 9, 1, 1], tokens, |&length| length), expected);
        };
        check(None, &[&[3, 4, 9, 1, 1]]);
        check(Some(7), &[&[3, 4], &[9], &[1, 1]]);
        check(Some(1), &[&[3], &[4], &[9], &[1], &[1]]);
    }
}

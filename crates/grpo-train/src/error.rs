//! Why training cannot start or cannot go on.

use std::ops::RangeInclusive;

use burn::tensor::Tensor;
use grpo_core::{AdvantageError, ConfigError};
use grpo_model::{OtherParameters, WeightPrecision};
use grpo_rewards::{EmbedderConfigError, RewardConfigError};
use grpo_rollout::RolloutError;

/// A training that ended with a reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A setting out of its range.
    #[error("{key} = {value} is out of range; expected {expected}")]
    Range {
        /// Path of the key in the configuration.
        key: String,
        /// What it was.
        value: f64,
        /// What would do.
        expected: String,
    },
    /// Distances of vectors that nothing makes.
    #[error(
        "{section}.measure = \"semantic\" compares vectors of texts: name what makes them, for example {section}.embedder = {{ type = \"hashed_ngrams\" }}, or use another measure"
    )]
    NoEmbedder {
        /// Where in the configuration.
        section: &'static str,
    },
    /// Vectors that nothing compares.
    #[error("{section}.embedder is for the measure \"semantic\" alone; leave it out")]
    IdleEmbedder {
        /// Where in the configuration.
        section: &'static str,
    },
    /// More than one optimizer step on the completions of a step, of a combined training.
    #[error(
        "train.updates_per_rollout = {updates} does not go with [combined]: its diversity term is for what the policy itself sampled, so that each rollout has one update; set it to 1, and use combined.every for more optimizer steps"
    )]
    CombinedUpdates {
        /// What it was.
        updates: u32,
    },
    /// Optimizer steps of nothing.
    #[error(
        "combined.every = {every} asks for optimizer steps of examples alone, and combined.supervised_weight = 0 leaves nothing to learn in them; set combined.every to 1, or give the examples a weight"
    )]
    NothingSupervised {
        /// What it was.
        every: u32,
    },
    /// A combined training without anything to supervise by.
    #[error("combined.file: {} has no example", file.display())]
    NoExamples {
        /// The file.
        file: std::path::PathBuf,
    },
    /// A text that cannot be compared with others.
    #[error(transparent)]
    Embed(#[from] grpo_text::EmbedError),
    /// A reward that cannot be what is meant.
    #[error(transparent)]
    RewardSettings(#[from] RewardConfigError),
    /// Settings that cannot be sampled with, or a policy that cannot be sampled any more.
    #[error("sampling: {0}")]
    Rollout(#[from] RolloutError),
    /// A loss that cannot be what is meant.
    #[error("loss: {fault}")]
    Loss {
        /// Its key in the section.
        key: String,
        /// Why.
        fault: ConfigError,
    },
    /// A constant of a surrogate that the loss does not have.
    #[error(
        "loss: {key} belongs to the {owner} surrogate, but the loss (preset = \"{preset}\") has another one; leave it out, or choose another preset"
    )]
    OtherSurrogate {
        /// The key.
        key: &'static str,
        /// The surrogate that has it.
        owner: &'static str,
        /// The preset.
        preset: grpo_core::Preset,
    },
    /// Advantages that cannot be what is meant.
    #[error("advantage: {0}")]
    AdvantageSettings(ConfigError),
    /// A scale that nothing is divided by.
    #[error(
        "advantage: scale has no effect with aggregation = \"normalize_then_sum\", which divides by the deviation of each group and then of the batch; leave it out"
    )]
    ScaleOfParts,
    /// Weights that make the sampler another policy, and a run that ends where it is one.
    #[error(
        "sampling: weights = \"{weights}\" samples from another policy than the one that is trained, which ends a run with sampler_check.above = \"stop\"; set loss.mismatch, or sampler_check.above = \"correct\""
    )]
    UncorrectedWeights {
        /// The key.
        weights: WeightPrecision,
    },
    /// A distribution that cannot be sampled.
    #[error("sampling: {0}")]
    Sampling(#[from] grpo_sampling::DistributionError),
    /// Rewards that no advantage can be made of.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// Too many rewards failed.
    #[error(
        "the reward failed for {failed} of {all} completions of step {step}; the first reason: {reason}"
    )]
    Reward {
        /// Step, from 1.
        step: u64,
        /// Completions that were not scored because of a failure.
        failed: usize,
        /// Completions of the step.
        all: usize,
        /// The first failure.
        reason: String,
    },
    /// Too many rewards of an evaluation failed.
    #[error(
        "the reward failed for {failed} of the {all} completions of an evaluation; the first reason: {reason}"
    )]
    EvaluationReward {
        /// Completions that were not scored because of a failure.
        failed: usize,
        /// Completions of the evaluation.
        all: usize,
        /// The first failure.
        reason: String,
    },
    /// Early stopping without what it looks at.
    #[error(
        "eval.patience counts evaluations, and eval.every = 0 makes none during the training; set eval.every to a number of steps"
    )]
    PatienceWithoutEvaluations,
    /// A gain that nothing waits for.
    #[error(
        "{section}.min_gain is what {section}.patience waits for, and patience = 0 waits for nothing; set {section}.patience, or leave min_gain out"
    )]
    GainWithoutPatience {
        /// Where in the configuration.
        section: String,
    },
    /// A section that limits nothing.
    #[error(
        "pretrain.limits has no limit; set max_gap, min_valid_loss or max_valid_loss, or leave the section out"
    )]
    NoLimits,
    /// An embedder that cannot be what is meant, or cannot be read.
    #[error("{section}.{fault}")]
    Embedder {
        /// Where in the configuration.
        section: &'static str,
        /// What is wrong with it.
        fault: EmbedderConfigError,
    },
    /// Completions that cannot be sampled in a supervised training.
    #[error("{section}: {fault}")]
    Samples {
        /// Where in the configuration.
        section: &'static str,
        /// Why.
        fault: RolloutError,
    },
    /// A state that is not of this training.
    #[error("the state of the trainer does not fit: {fault}")]
    OtherState {
        /// What.
        fault: String,
    },
    /// The training was asked to end.
    #[error("the training was interrupted")]
    Interrupted,
    /// The sampler computes something else than the trainer.
    #[error("step {step}: the sampler recorded the log-probability {sampler:.6} at position {position} of prompt {prompt}, sample {sample}, and with the same weights the trainer computes {trainer:.6}, which is further than sampler_check.tolerance = {tolerance}; {}", what_to_do(*sampler, *trainer))]
    SamplerMismatch {
        /// Step, from 1.
        step: u64,
        /// The prompt's place in the step, from 0.
        prompt: u32,
        /// The completion's place in its group, from 0.
        sample: u32,
        /// The token's place in the sequence, from 0, behind the prompt's.
        position: usize,
        /// What was recorded.
        sampler: f64,
        /// What it should be.
        trainer: f64,
        /// How far apart the two may be.
        tolerance: f64,
    },
    /// A number that is not finite any more. The weights of the step before are whole.
    #[error(
        "the {what} became {value}: training has diverged; lower the learning rate, or look at the data and the rewards"
    )]
    Diverged {
        /// What.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
    },
    /// A guard that cannot be what is meant.
    #[error("guards[{guard}]: {fault}")]
    Guard {
        /// Its place in the list, from 0.
        guard: usize,
        /// The key that has to change.
        key: &'static str,
        /// Why.
        fault: String,
    },
    /// What guards remember, of another run.
    #[error(
        "the checkpoint was saved by a run with {saved} guards, and this one has {guards}; put config.toml back as it was"
    )]
    GuardsState {
        /// In the checkpoint.
        saved: usize,
        /// In the configuration.
        guards: usize,
    },
    /// A controller of the KL coefficient that cannot be what is meant.
    #[error("{0}")]
    KlController(ConfigError),
    /// A step that takes the coefficient too far.
    #[error(
        "kl_controller.horizon = {horizon} is less than the {completions} completions of a step; a horizon of some steps follows the KL without swinging"
    )]
    Horizon {
        /// The key.
        horizon: f64,
        /// Completions of a step.
        completions: f64,
    },
    /// A trunk that was never frozen.
    #[error(
        "transfer.unfreeze_at_step has no effect without transfer.freeze_trunk = true; leave it out, or freeze the trunk"
    )]
    UnfreezeOfNothing,
    /// A factor that no step uses.
    #[error(
        "transfer.unfreeze_learning_rate_factor has no effect without transfer.unfreeze_at_step; leave it out, or say when the trunk is trained again"
    )]
    UnfreezeFactorOfNothing,
    /// Weights of a judge that is not there.
    #[error(
        "modifiers.judge weighs texts by a judge, and there is none; load it, or leave the section out"
    )]
    NoWeighingJudge,
    /// A judge that weighs nothing.
    #[error(
        "there is a judge, and without modifiers.judge it weighs nothing; leave it out, or add the section"
    )]
    IdleJudge,
    /// A judge that reads the beginning of texts alone.
    #[error(
        "modifiers.judge.model: the judge sees {sees} characters of a text, and texts have up to {length} (data.length); lower data.length, or take a judge that was trained on longer texts"
    )]
    ShortJudge {
        /// Characters that it sees.
        sees: usize,
        /// Characters of the longest text.
        length: usize,
    },
    /// A frozen trunk with nothing on it to train.
    #[error(
        "transfer.freeze_trunk = true leaves nothing to train: the head of an infiller is its table of characters; add [critic] with a model that has one, or transfer.unfreeze_at_step"
    )]
    NothingLearns,
    /// A section for a head that is not there.
    #[error(
        "[critic] trains a critic, and the model has none; set model.critic = true, or leave the section out"
    )]
    NoCritic,
    /// A head that no section is for.
    #[error(
        "the model has a critic, and no section [critic] says how it learns; add it, or make a model without one"
    )]
    IdleCritic,
    /// How blanks are filled for a judge.
    #[error("fill: {0}")]
    Fill(grpo_sampling::DistributionError),
    /// Critic steps in the wrong order.
    #[error("critic.warmup_to = {to} is before critic.warmup_from = {from}")]
    CriticWarmup {
        /// The key.
        from: u64,
        /// The key.
        to: u64,
    },
    /// Lines in the place of characters.
    #[error(
        "masking.stages[{stage}] replaces whole lines, and leaves nothing to fill in; it is for judges, so take it out"
    )]
    LineStage {
        /// Its place in the list, from 0.
        stage: usize,
    },
    /// Texts that nothing can be learned from.
    #[error(transparent)]
    Data(#[from] grpo_data::DataError),
    /// Logits that nothing can be drawn from.
    #[error(transparent)]
    Logits(#[from] grpo_logprob::NotFinite),
    /// Too few replies for an engagement model.
    #[error(
        "the {side} part has {found} replies, and an engagement model needs {needed} there; take a file with more, or change [data]"
    )]
    FewReplies {
        /// Which part.
        side: &'static str,
        /// Its replies.
        found: usize,
        /// How many would do.
        needed: usize,
    },
    /// What is held out would be known.
    #[error(
        "the tweet {tweet} is in two parts, so that held-out figures would be too good; split by whole tweets"
    )]
    TweetOnTwoSides {
        /// Its id.
        tweet: String,
    },
    /// Nothing to compare.
    #[error(
        "in the {side} part no tweet has two replies that were received differently, and objective.type = \"pairwise\" compares those; choose \"rank\" or \"log\""
    )]
    NoPreferences {
        /// Which part.
        side: &'static str,
    },
    /// Two times at which a reference changes.
    #[error(
        "reference.every_steps and reference.every_epochs are two periods of one reference; leave one of them out"
    )]
    TwoPeriods,
    /// A mix without a time.
    #[error(
        "reference.mix has no effect on a reference that stays what it is; add reference.every_steps or reference.every_epochs, or leave it out"
    )]
    MixOfNothing,
    /// A reference that cannot follow the policy.
    #[error(transparent)]
    Reference(#[from] OtherParameters),
    /// What the caller does with progress (writing a line, saving a checkpoint) failed.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
}

/// What helps against a sampler that is not the trainer.
fn what_to_do(sampler: f64, trainer: f64) -> &'static str {
    if (sampler - trainer).is_finite() {
        "find out in what the two differ, or set sampler_check.above = \"correct\" to weigh the tokens of such a step by the quotient of the two"
    } else {
        "no weight corrects that: the model, or what computes it, is broken"
    }
}

/// Checks one number of a configuration.
///
/// # Errors
/// It is outside of `range`; the error names `key`.
pub fn in_range(
    key: &str,
    value: f64,
    range: RangeInclusive<f64>,
) -> Result<(), TrainError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = (range.start(), range.end());
    let expected =
        if *high >= f64::MAX / 2.0 { format!("{low} or more") } else { format!("{low} to {high}") };
    Err(TrainError::Range { key: key.to_owned(), value, expected })
}

/// Returns the value of a loss, `[1]`.
///
/// # Errors
/// It is not finite.
pub fn finite_loss(loss: Tensor<1>) -> Result<f64, TrainError> {
    finite(f64::from(loss.into_scalar::<f32>()))
}

/// Returns the value of a loss.
///
/// # Errors
/// It is not finite.
pub(crate) fn finite(value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::Diverged { what: "loss", value }) }
}

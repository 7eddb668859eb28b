//! Configuration of a GRPO run.

mod rounding;

use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{AdvantageConfig, KlController};
use grpo_data::{ConfigFault, Ranges};
use grpo_kernels::adds_in_one_order;
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{LanguageModel, ProductPrecision, RolloutActivations, WeightPrecision};
use grpo_rollout::{Decode, Engine, EngineFactory, EngineRequest, create_checked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{TrainError, distribution_fault};
use crate::{
    AdvantageSettings, EvalConfig, GuardAction, GuardConfig, LossSettings, OptimizerConfig,
    ReferenceSettings, SamplerCheck, ScheduleConfig, default_guards,
};

/// Bytes of activations that the first update of a step takes from the rollout at most. A larger share
/// of a step would hardly save more time, because the memory is written and read. Does not change a bit
/// of the result.
pub const MOST_KEPT_ACTIVATIONS: usize = 1_024_000_000;

/// Configuration sections used by the trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrpoConfig {
    /// The `[train]` section.
    pub train: TrainConfig,
    /// The `[sampling]` section.
    pub sampling: SamplingConfig,
    /// The `[advantage]` section.
    #[serde(default)]
    pub advantage: AdvantageSettings,
    /// The `[loss]` section.
    #[serde(default)]
    pub loss: LossSettings,
    /// The `[kl_controller]` section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_controller: Option<KlController>,
    /// Choice and update schedule of the reference policy.
    #[serde(default)]
    pub reference: ReferenceSettings,
    /// The `[sampler_check]` section.
    #[serde(default)]
    pub sampler_check: SamplerCheck,
    /// The `[optimizer]` section.
    pub optimizer: OptimizerConfig,
    /// The `[schedule]` section.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// Actions to take when a metric leaves its range. An empty list disables the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<Vec<GuardConfig>>,
    /// When and on which prompts the policy is evaluated.
    #[serde(default)]
    pub eval: EvalConfig,
}

/// The `[train]` section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Rollouts, each followed by its updates. Either `steps` or `epochs` is required.
    #[schemars(range(min = 1, max = 1e9), extend("x-basic" = true))]
    pub steps: u32,
    /// Groups per step.
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    pub prompts_per_step: u32,
    /// Completions per group (k); at most 1e6 completions per step.
    #[schemars(range(min = 2, max = 1e6), extend("x-basic" = true))]
    pub group_size: usize,
    /// Optimizer steps per rollout (μ); 1 with the `reinforce` surrogate, which has no ratio.
    #[serde(default = "default_updates")]
    #[schemars(range(min = 1, max = 1000))]
    pub updates_per_rollout: u32,
    /// Tokens computed at the same time in an update; affects memory and speed, and the result only
    /// by rounding. A shared prompt counts once, the last token of a completion not at all; a
    /// longer completion is computed alone.
    #[serde(default = "default_micro_batch_tokens")]
    #[schemars(range(min = 1, max = 1e9))]
    pub micro_batch_tokens: usize,
    /// Recompute each block in the backward pass: less memory, more time, [the same
    /// gradient](decisions/0011-recomputing-by-blocks.md).
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Factors of the matrix products with the weights of the blocks, for policy and reference, in
    /// sampling and training. Sums, weights, adapters, attention and log-probabilities stay in f32
    /// ([decision 38](decisions/0038-bf16-products.md)).
    #[serde(default, skip_serializing_if = "ProductPrecision::is_f32")]
    pub precision: ProductPrecision,
    /// Seconds for the rewards of a step.
    #[serde(default = "default_reward_time_limit")]
    #[schemars(range(min = 0.001, max = 1e6))]
    pub reward_time_limit: f64,
    /// Number of [roll-backs](#guards) after which another one ends the run.
    #[serde(default = "default_max_roll_backs")]
    pub max_roll_backs: u32,
    /// The run ends if the reward fails for a larger fraction of a step's completions.
    #[serde(default = "default_max_failed")]
    #[schemars(range(min = 0, max = 1))]
    pub max_failed_rewards: f64,
}

fn default_updates() -> u32 {
    1
}
fn default_micro_batch_tokens() -> usize {
    4096
}
fn default_reward_time_limit() -> f64 {
    60.0
}
fn default_max_roll_backs() -> u32 {
    3
}
fn default_max_failed() -> f64 {
    0.1
}

// The first keys are those of `SamplingSettings`, which has their comments and ranges. They are repeated,
// because serde can neither name the key of a wrong value nor list the known keys of a flattened struct.
/// The `[sampling]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// [`SamplingSettings::temperature`].
    pub temperature: f32,
    /// [`SamplingSettings::top_k`].
    pub top_k: Option<usize>,
    /// [`SamplingSettings::top_p`].
    pub top_p: Option<f32>,
    /// [`SamplingSettings::min_p`].
    pub min_p: Option<f32>,
    /// [`SamplingSettings::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// Maximum length of a completion including its end token; prompt and completion may exceed the
    /// context by one token. At most the model's context. Required, unless the prompts have blanks.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    pub max_new_tokens: usize,
    /// Ends a completion with the token that completes one of these strings. The token and the
    /// string stay in the text and are seen by the reward. Only the completion's text is searched:
    /// not the prompt, not across the boundary, not special tokens. Not available without a
    /// tokenizer. No string may be empty.
    #[schemars(extend("x-basic" = true))]
    pub stop: Vec<String>,
    /// Completions sampled at the same time; affects memory and speed, [not a bit of the
    /// result](decisions/0014-batch-invariant-sampling.md).
    #[schemars(range(min = 1, max = 1e6))]
    pub batch_size: usize,
    /// Precision of the block matrices while sampling; adapters stay f32.
    pub weights: WeightPrecision,
}

impl Default for SamplingConfig {
    /// Returns settings that sample from the unmodified model distribution.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            max_new_tokens: 0,
            stop: Vec::new(),
            batch_size: 256,
            weights: WeightPrecision::F32,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is required by serde")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl SamplingConfig {
    /// Returns the sampling settings, excluding the `forbidden` ids.
    pub fn settings(&self, forbidden: &[u32]) -> SamplingSettings {
        SamplingSettings {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            forbidden: forbidden.to_vec(),
        }
    }

    /// Returns the sampling distribution over `vocabulary` tokens, excluding the `forbidden` ids.
    ///
    /// # Errors
    /// Returns an error if [`SamplingSettings::checked`] fails.
    pub fn distribution(
        &self,
        vocabulary: usize,
        forbidden: &[u32],
    ) -> Result<SamplingDistribution, ConfigFault> {
        let checked = self.settings(forbidden).checked(vocabulary);
        checked.map_err(|fault| distribution_fault("sampling", &fault))
    }
}

impl GrpoConfig {
    /// Returns whether an updated reference may have to be reset to the initial one.
    pub(crate) fn can_move_back(&self) -> bool {
        let goes_back = |guard: &GuardConfig| guard.action == GuardAction::RollBack;
        self.reference.follows() && self.guards().iter().any(goes_back)
    }

    /// Returns the guards for this run with all defaults filled in.
    pub fn guards(&self) -> Vec<GuardConfig> {
        let guards = self.guards.clone().unwrap_or_else(default_guards);
        guards.iter().map(GuardConfig::resolved).collect()
    }

    /// Returns the advantage settings. Unset values are taken from the loss preset.
    ///
    /// # Errors
    /// Returns an error if [`AdvantageConfig::checked`] fails.
    pub fn advantages(&self) -> Result<AdvantageConfig, ConfigFault> {
        self.advantage.resolve(self.loss.preset)
    }

    /// Creates the engine that samples completions.
    ///
    /// # Errors
    /// Returns an error if the settings are incompatible with the model.
    pub fn sampler<M: LanguageModel>(
        &self,
        policy: &M,
        engine: &dyn EngineFactory<M>,
        group_size: usize,
        longest_prompt: usize,
        decode: &Decode,
    ) -> Result<Arc<dyn Engine<M>>, TrainError> {
        let SamplingConfig { max_new_tokens, batch_size, ref stop, .. } = self.sampling;
        self.sampling.weights.check_on(&policy.device()).map_err(|error| {
            ConfigFault::from_sentence("sampling.weights", format!("sampling.weights: {error}"))
        })?;
        self.refuse_uncorrected_products(adds_in_one_order(&policy.device()))?;
        let sampling = &self.sampling.settings(&[]);
        let request = EngineRequest {
            group_size,
            longest_prompt,
            sampling,
            max_new_tokens,
            batch_size,
            stop,
            decode,
        };
        Ok(create_checked(engine, policy, &request)?)
    }

    /// Returns whether a run on the CPU keeps activations of a rollout, up to
    /// [`MOST_KEPT_ACTIVATIONS`]. It does not if the policy samples with other weights than it is
    /// trained with, or if the update discards activations anyway.
    pub fn keeps_activations(&self) -> bool {
        !self.train.activation_checkpointing && self.sampling.weights == WeightPrecision::F32
    }

    /// Returns a store for the activations of rollouts, if the device samples and trains with the same
    /// bits.
    pub(crate) fn rollout_activations(&self, device: &Device) -> Option<RolloutActivations> {
        (self.keeps_activations() && adds_in_one_order(device))
            .then(|| RolloutActivations::new(MOST_KEPT_ACTIVATIONS))
    }

    /// Returns the learning rate for `step`, counted from 0. It is positive even in the first
    /// warm-up step.
    pub fn learning_rate(&self, step: u32) -> f64 {
        self.optimizer.learning_rate * self.schedule.learning_rate_factor(step, self.train.steps)
    }
}

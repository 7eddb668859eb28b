//! Configuration of a GRPO run.

mod rounding;

use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{AdvantageConfig, KlController, Surrogate};
use grpo_data::ConfigFault;
use grpo_kernels::adds_in_one_order;
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{LanguageModel, ProductPrecision, RolloutActivations, WeightPrecision};
use grpo_rollout::{Decode, Engine, EngineFactory, EngineRequest, StopStrings};
use serde::{Deserialize, Serialize};

use crate::conditional_metrics::refuse_missing;
use crate::error::{TrainError, distribution_fault, in_range};
use crate::guard_config::Guarded;
use crate::{
    AdvantageSettings, EvalConfig, ExtensionMetrics, GuardAction, GuardConfig, LossSettings,
    OptimizerConfig, ReferenceSettings, SamplerCheck, ScheduleConfig, default_guards,
};

/// Configuration sections used by the trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpoConfig {
    /// Number of steps, prompts and completions.
    pub train: TrainConfig,
    /// Sampling distribution.
    pub sampling: SamplingConfig,
    /// How advantages are computed from rewards.
    #[serde(default)]
    pub advantage: AdvantageSettings,
    /// Loss function.
    #[serde(default)]
    pub loss: LossSettings,
    /// Adaptive KL coefficient. The coefficient is constant if this section is omitted.
    pub kl_controller: Option<KlController>,
    /// Reference policy and how often it is updated.
    #[serde(default)]
    pub reference: ReferenceSettings,
    /// Actions for metrics that leave their valid range. If omitted, [`default_guards`] are used.
    pub guards: Option<Vec<GuardConfig>>,
    /// What to do if log-probabilities from the sampler and the trainer differ.
    #[serde(default)]
    pub sampler_check: SamplerCheck,
    /// AdamW settings.
    pub optimizer: OptimizerConfig,
    /// Schedules of the learning rate and of coefficients.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// Evaluation and early stopping.
    #[serde(default)]
    pub eval: EvalConfig,
}

/// The `[train]` section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Number of rollouts. Each rollout is followed by one or more updates.
    pub steps: u32,
    /// Number of prompts, and therefore groups, per step.
    pub prompts_per_step: u32,
    /// Number of completions per group (k).
    pub group_size: usize,
    /// Number of optimizer steps per rollout (μ).
    #[serde(default = "default_updates")]
    pub updates_per_rollout: u32,
    /// Maximum number of tokens per micro-batch, where a shared prompt counts once. This affects
    /// memory usage but not the result. A completion that exceeds the limit is processed alone.
    #[serde(default = "default_micro_batch_tokens")]
    pub micro_batch_tokens: usize,
    /// Recomputes transformer blocks in the backward pass. Uses less memory but takes about a third
    /// longer.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Memory in megabytes for activations of the rollout that the first update uses instead of
    /// computing them again. Affects speed but not the result.
    #[serde(default = "default_reuse_activations_mb")]
    pub reuse_activations_mb: u32,
    /// Precision of the matrix products with the weights of policy and reference, in sampling,
    /// scoring and training.
    #[serde(default, skip_serializing_if = "ProductPrecision::is_f32")]
    pub precision: ProductPrecision,
    /// Time limit in seconds for computing the rewards of a step.
    #[serde(default = "default_reward_time_limit")]
    pub reward_time_limit: f64,
    /// Maximum number of times that guards may roll the run back to a checkpoint.
    #[serde(default = "default_max_roll_backs")]
    pub max_roll_backs: u32,
    /// Maximum fraction of completions per step for which the reward may fail. The run stops if it
    /// is exceeded.
    #[serde(default = "default_max_failed")]
    pub max_failed_rewards: f64,
}

fn default_updates() -> u32 {
    1
}
fn default_micro_batch_tokens() -> usize {
    4096
}
fn default_reuse_activations_mb() -> u32 {
    1024
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

/// The `[sampling]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// Softmax temperature.
    pub temperature: f32,
    /// Only samples from the `k` most probable tokens. Scoring is restricted to the same tokens.
    pub top_k: Option<usize>,
    /// Only samples from the smallest set of most probable tokens whose total probability reaches
    /// this value.
    pub top_p: Option<f32>,
    /// Only samples from tokens whose probability is at least this fraction of the maximum.
    pub min_p: Option<f32>,
    /// Values above 1 make tokens that already occurred in the sequence less probable.
    pub repetition_penalty: Option<f32>,
    /// Maximum completion length in tokens, including the end token. If the model fills masked
    /// positions, this is the maximum length of the text.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_new_tokens: usize,
    /// Strings that end a completion, in addition to the end token. The token that completes such a
    /// string remains part of the completion.
    pub stop: Vec<String>,
    /// Number of completions sampled at the same time. Affects speed and memory usage.
    pub batch_size: usize,
    /// Precision of the policy's weight matrices during sampling. Any value other than f32 changes
    /// the policy, so the loss has to be corrected.
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
    /// Validates all settings of a run without extensions.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.check_with(&ExtensionMetrics::default())
    }

    /// Validates all settings. Guards can watch the metrics of extensions.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check_with(&self, extensions: &ExtensionMetrics) -> Result<(), ConfigFault> {
        let train = &self.train;
        in_range("train.steps", f64::from(train.steps), 1.0..=1e9)?;
        in_range("train.prompts_per_step", f64::from(train.prompts_per_step), 1.0..=1e6)?;
        in_range("train.group_size", train.group_size as f64, 2.0..=1e6)?;
        let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
        in_range("train.prompts_per_step × train.group_size", completions, 2.0..=1e6)?;
        in_range("train.updates_per_rollout", f64::from(train.updates_per_rollout), 1.0..=1e3)?;
        in_range("train.micro_batch_tokens", train.micro_batch_tokens as f64, 1.0..=1e9)?;
        in_range("train.reward_time_limit", train.reward_time_limit, 1e-3..=1e6)?;
        in_range("train.max_failed_rewards", train.max_failed_rewards, 0.0..=1.0)?;
        let settings = self.sampling.settings(&[]);
        settings.check().map_err(|fault| distribution_fault("sampling", &fault))?;
        StopStrings::check(&self.sampling.stop).map_err(|fault| {
            ConfigFault::from_sentence("sampling.stop", format!("sampling: {fault}"))
        })?;
        in_range("sampling.max_new_tokens", self.sampling.max_new_tokens as f64, 1.0..=1e6)?;
        in_range("sampling.batch_size", self.sampling.batch_size as f64, 1.0..=1e6)?;
        self.advantages()?;
        let loss = self.loss.resolve()?;
        self.schedule.check(&loss, self.kl_controller.is_some())?;
        let updates = train.updates_per_rollout;
        if matches!(loss.surrogate, Surrogate::Reinforce {}) && updates > 1 {
            return Err(ConfigFault::new(
                "train.updates_per_rollout",
                format!(
                    "train.updates_per_rollout = {updates}: the reinforce surrogate has no importance ratio, so every update but the first would be off-policy without correction"
                ),
                "set it to 1, or choose a loss with a ratio",
            ));
        }
        let kl_coef = loss.kl.coef;
        if let Some(controller) = &self.kl_controller {
            controller.check(kl_coef).map_err(|fault| {
                let key = match fault.setting() {
                    "kl_coef" => "loss.kl_coef",
                    key => key,
                };
                ConfigFault::from_sentence(key, fault.to_string())
            })?;
            if controller.horizon < completions {
                let horizon = controller.horizon;
                return Err(ConfigFault::new(
                    "kl_controller.horizon",
                    format!(
                        "kl_controller.horizon = {horizon} is less than the {completions} completions per step"
                    ),
                    "use a horizon of several steps to avoid oscillation",
                ));
            }
        }
        self.reference.check()?;
        let evaluates = self.eval.every > 0;
        for (place, guard) in self.guards.iter().flatten().enumerate() {
            guard.check(place, &Guarded::Grpo { kl_coef, evaluates, extensions })?;
        }
        let corrects = self.sampler_check.corrects(&loss);
        refuse_missing(&self.guards(), &loss, corrects)?;
        self.sampler_check.check()?;
        self.eval.check()?;
        self.refuse_uncorrected()?;
        self.optimizer.check("optimizer")
    }

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
        Ok(engine.create(policy, &request)?)
    }

    /// Returns the maximum size in bytes of the activations that a run on the CPU keeps from a rollout.
    /// It is 0 if the policy samples with other weights than it is trained with, or if the update
    /// discards activations anyway.
    pub fn kept_activations(&self) -> usize {
        let TrainConfig { reuse_activations_mb, activation_checkpointing, .. } = self.train;
        let keeps = !activation_checkpointing && self.sampling.weights == WeightPrecision::F32;
        if keeps { reuse_activations_mb as usize * 1_000_000 } else { 0 }
    }

    /// Returns a store for the activations of rollouts, if the device samples and trains with the same
    /// bits.
    pub(crate) fn rollout_activations(&self, device: &Device) -> Option<RolloutActivations> {
        let budget = self.kept_activations();
        (budget > 0 && adds_in_one_order(device)).then(|| RolloutActivations::new(budget))
    }

    /// Returns the learning rate for `step`, counted from 0. It is positive even in the first
    /// warm-up step.
    pub fn learning_rate(&self, step: u32) -> f64 {
        self.optimizer.learning_rate * self.schedule.learning_rate_factor(step, self.train.steps)
    }
}

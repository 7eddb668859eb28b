//! Settings of a GRPO run, read from TOML and checked once.

use std::sync::Arc;

use grpo_core::{AdvantageConfig, KlController, Surrogate};
use grpo_data::ConfigFault;
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{LanguageModel, WeightPrecision};
use grpo_rollout::{Actions, Decode, Rollout, RolloutRequest, StopStrings};
use serde::{Deserialize, Serialize};

use crate::error::{TrainError, distribution_fault, in_range};
use crate::guard_config::Guarded;
use crate::{
    AboveTolerance, AdvantageSettings, CombinedConfig, DiversityBonusConfig, EvalConfig,
    GuardAction, GuardConfig, LossSettings, OptimizerConfig, ReferenceSettings, SamplerCheck,
    WarmupCosine, default_guards,
};

/// The sections of a configuration that the training itself needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpoConfig {
    /// How long, how many, how often.
    pub train: TrainConfig,
    /// What tokens are drawn from.
    pub sampling: SamplingConfig,
    /// A bonus for completions that are unlike the others of their group.
    pub diversity_bonus: Option<DiversityBonusConfig>,
    /// What is learned besides.
    pub combined: Option<CombinedConfig>,
    /// How rewards become advantages.
    #[serde(default)]
    pub advantage: AdvantageSettings,
    /// The loss.
    #[serde(default)]
    pub loss: LossSettings,
    /// What makes the coefficient of the KL penalty follow the KL; without it, it stays what it is.
    pub kl_controller: Option<KlController>,
    /// What holds the policy back, and when that changes.
    #[serde(default)]
    pub reference: ReferenceSettings,
    /// What is done where a metric leaves its range; without it [`default_guards`].
    pub guards: Option<Vec<GuardConfig>>,
    /// What is done where the sampler is not the trainer.
    #[serde(default)]
    pub sampler_check: SamplerCheck,
    /// AdamW.
    pub optimizer: OptimizerConfig,
    /// The learning rate over the run.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// When the training is evaluated.
    #[serde(default)]
    pub eval: EvalConfig,
}

/// The section `[train]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Rollouts, each followed by its updates.
    pub steps: u32,
    /// Groups of a step.
    pub prompts_per_step: u32,
    /// Completions of a group (k).
    pub group_size: usize,
    /// Optimizer steps on each rollout (μ).
    #[serde(default = "default_updates")]
    pub updates_per_rollout: u32,
    /// Tokens that are computed at the same time in an update, a shared prompt counted once; decides memory, not the
    /// result. A completion that has more is computed alone.
    #[serde(default = "default_micro_batch_tokens")]
    pub micro_batch_tokens: usize,
    /// What is in a block of the model is computed once more on the way back, instead of being kept: less memory, a
    /// third more time.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Seconds that the reward of a step may take.
    #[serde(default = "default_reward_time_limit")]
    pub reward_time_limit: f64,
    /// Times that guards may send the run back to a checkpoint.
    #[serde(default = "default_max_roll_backs")]
    pub max_roll_backs: u32,
    /// The run stops where the reward fails for more than this part of a step's completions.
    #[serde(default = "default_max_failed")]
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

/// The section `[sampling]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// Logits are divided by this.
    pub temperature: f32,
    /// Draws are from the most probable tokens only; scoring then uses the same ones.
    pub top_k: Option<usize>,
    /// Draws are from the fewest most probable tokens that have this probability together.
    pub top_p: Option<f32>,
    /// Draws are from the tokens with at least this part of the largest probability.
    pub min_p: Option<f32>,
    /// Above 1 it makes tokens rarer that a sequence has already.
    pub repetition_penalty: Option<f32>,
    /// Longest completion, in tokens, its end mark among them; where masked positions are filled, the most that a text can have.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_new_tokens: usize,
    /// Strings that end a completion, besides the end mark. The token that completes one is its last, and stays part
    /// of it.
    pub stop: Vec<String>,
    /// Completions that are sampled at the same time; decides speed and memory.
    pub batch_size: usize,
    /// What the policy's matrices are rounded to while it samples. In anything but f32 it is another policy, so that
    /// the loss must be corrected.
    pub weights: WeightPrecision,
}

impl Default for SamplingConfig {
    /// The model's own distribution.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl SamplingConfig {
    /// The part of the section that is about the distribution, without the ids of `forbidden`.
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

    /// The distribution over a vocabulary of `vocabulary` tokens, without the ids of `forbidden`.
    ///
    /// # Errors
    /// What [`SamplingSettings::checked`] refuses.
    pub fn distribution(
        &self,
        vocabulary: usize,
        forbidden: &[u32],
    ) -> Result<SamplingDistribution, ConfigFault> {
        let checked = self.settings(forbidden).checked(vocabulary);
        checked.map_err(|fault| distribution_fault("sampling", &fault))
    }
}

/// The section `[schedule]`, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// Steps of linear warm-up.
    pub warmup_steps: u32,
    /// The learning rate falls along a half cosine to this part of its highest value; 1 keeps it constant.
    pub floor: f64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self { warmup_steps: 0, floor: 1.0 }
    }
}

impl GrpoConfig {
    /// Checks all ranges once.
    ///
    /// # Errors
    /// The first key that is out of its range.
    pub fn check(&self) -> Result<(), ConfigFault> {
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
        let warmup = self.schedule.warmup_steps;
        if warmup > train.steps {
            let (key, expected) =
                ("schedule.warmup_steps", format!("0 to {} (train.steps)", train.steps));
            return Err(ConfigFault::out_of_range(key, warmup.into(), &expected));
        }
        in_range("schedule.floor", self.schedule.floor, 0.0..=1.0)?;
        let loss = self.loss.resolve()?;
        let updates = train.updates_per_rollout;
        if matches!(loss.surrogate, Surrogate::Reinforce {}) && updates > 1 {
            return Err(ConfigFault::new(
                "train.updates_per_rollout",
                format!(
                    "train.updates_per_rollout = {updates}: the reinforce surrogate has no importance ratio, so that every update but the first would be off-policy and not corrected"
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
                        "kl_controller.horizon = {horizon} is less than the {completions} completions of a step"
                    ),
                    "a horizon of some steps follows the KL without swinging",
                ));
            }
        }
        self.combined.iter().try_for_each(|combined| combined.check(updates))?;
        self.diversity_bonus.iter().try_for_each(DiversityBonusConfig::check)?;
        self.reference.check()?;
        let evaluates = self.eval.every > 0;
        for (place, guard) in self.guards.iter().flatten().enumerate() {
            guard.check(place, &Guarded::Grpo { kl_coef, evaluates })?;
        }
        self.sampler_check.check()?;
        self.eval.check()?;
        self.refuse_uncorrected()?;
        self.optimizer.check("optimizer")
    }

    /// A policy that samples with rounded weights is above any tolerance that would find a fault.
    fn refuse_uncorrected(&self) -> Result<(), ConfigFault> {
        let weights = self.sampling.weights;
        let above = self.sampler_check.resolved(self.loss.mismatch).above;
        if weights != WeightPrecision::F32 && above == Some(AboveTolerance::Stop) {
            return Err(ConfigFault::new(
                "sampling.weights",
                format!(
                    "sampling: weights = \"{weights}\" samples from another policy than the one that is trained, which ends a run with sampler_check.above = \"stop\""
                ),
                "set loss.mismatch, or sampler_check.above = \"correct\"",
            ));
        }
        Ok(())
    }

    /// Whether a reference that has become another one may have to be that of the start again.
    pub(crate) fn can_move_back(&self) -> bool {
        let goes_back = |guard: &GuardConfig| guard.action == GuardAction::RollBack;
        self.reference.follows() && self.guards().iter().any(goes_back)
    }

    /// The guards of the run, with all that counts written out.
    pub fn guards(&self) -> Vec<GuardConfig> {
        let guards = self.guards.clone().unwrap_or_else(default_guards);
        guards.iter().map(GuardConfig::resolved).collect()
    }

    /// How rewards become advantages: the section, or what the loss preset says.
    ///
    /// # Errors
    /// What [`AdvantageConfig::checked`] refuses.
    pub fn advantages(&self) -> Result<AdvantageConfig, ConfigFault> {
        self.advantage.resolve(self.loss.preset)
    }

    /// How the completions of a step are sampled.
    ///
    /// # Errors
    /// Settings that do not fit the model.
    pub fn sampler<M: LanguageModel>(
        &self,
        policy: &M,
        actions: &dyn Actions<M>,
        group_size: usize,
        longest_prompt: usize,
        decode: &Decode,
    ) -> Result<Arc<dyn Rollout<M>>, TrainError> {
        let SamplingConfig { max_new_tokens, batch_size, ref stop, .. } = self.sampling;
        let sampling = &self.sampling.settings(&[]);
        let request = RolloutRequest {
            group_size,
            longest_prompt,
            sampling,
            max_new_tokens,
            batch_size,
            stop,
            decode,
        };
        Ok(actions.rollout(policy, &request)?)
    }

    /// The learning rate of `step`, from 0. The first step of a warm-up already moves.
    pub fn learning_rate(&self, step: u32) -> f64 {
        let schedule = WarmupCosine {
            warmup: f64::from(self.schedule.warmup_steps),
            total: f64::from(self.train.steps),
            floor: self.schedule.floor,
        };
        let done = if step < self.schedule.warmup_steps { step + 1 } else { step };
        self.optimizer.learning_rate * schedule.multiplier(f64::from(done))
    }
}

//! The `[advantage]` and `[loss]` sections, which select a preset and override parts of it.

use grpo_core::{
    AdvantageConfig, Aggregation, Baseline, ConfigError, Deviation, EntropyBonus, KlConfig,
    KlEstimator, KlPlacement, LossConfig, MismatchCorrection, Preset, RatioLevel, Reduction,
    RewardScale, Surrogate,
};
use grpo_data::ConfigFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[advantage]` section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageSettings {
    /// Normalise the weighted sum of the reward's terms, or each term before summing (GDPO; refused
    /// with `[replay]`).
    pub aggregation: Aggregation,
    /// What is subtracted: mean of the group, of the step or of the others in the group, a quantile
    /// of the group, or nothing. `none` needs `scale = "none"`. `batch` is refused with `scale =
    /// "group"`; `batch` and `quantile` are refused with `normalize_then_sum`.
    pub baseline: Baseline,
    /// Level of the quantile; refused with another baseline.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub quantile: Option<f64>,
    /// Standard deviation that centred rewards are divided by; refused with `normalize_then_sum`.
    #[schemars(extend("x-basic" = true))]
    pub scale: Option<RewardScale>,
    /// Standard deviation over n − 1 or n; refused if nothing is divided.
    pub deviation: Deviation,
    /// Added to the standard deviation; refused if nothing is divided.
    #[schemars(range(min = 0))]
    pub epsilon: f64,
    /// Advantages are clipped to ± this value.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip: Option<f64>,
}

impl Default for AdvantageSettings {
    fn default() -> Self {
        let AdvantageConfig { aggregation, baseline, deviation, epsilon, clip, .. } =
            AdvantageConfig::default();
        Self { aggregation, baseline, quantile: None, scale: None, deviation, epsilon, clip }
    }
}

impl AdvantageSettings {
    /// Resolves the advantage settings.
    ///
    /// # Errors
    /// Returns an error if `scale` or `quantile` is set but has no effect, or if [`AdvantageConfig::checked`]
    /// fails.
    pub fn resolve(&self, preset: Preset) -> Result<AdvantageConfig, ConfigFault> {
        let Self { aggregation, baseline, quantile, scale, deviation, epsilon, clip } = *self;
        if scale.is_some() && aggregation == Aggregation::NormalizeThenSum {
            return Err(ConfigFault::new(
                "advantage.scale",
                "advantage: scale has no effect with aggregation = \"normalize_then_sum\", which divides by the deviation of each group and then of the batch",
                "remove it",
            ));
        }
        let scale = scale.unwrap_or(preset.reward_scale());
        let default = AdvantageConfig::default();
        let is_scaled = scale != RewardScale::None || aggregation == Aggregation::NormalizeThenSum;
        let of_deviation = [
            ("epsilon", epsilon != default.epsilon),
            ("deviation", deviation != default.deviation),
        ];
        if let Some((key, _)) = of_deviation.iter().find(|(_, is_given)| *is_given && !is_scaled) {
            return Err(ConfigFault::new(
                format!("advantage.{key}"),
                format!("advantage: {key} has no effect with scale = \"none\""),
                "remove it",
            ));
        }
        if quantile.is_some() && baseline != Baseline::Quantile {
            return Err(ConfigFault::new(
                "advantage.quantile",
                "advantage: quantile has no effect without baseline = \"quantile\"",
                "remove it, or set baseline = \"quantile\"",
            ));
        }
        let quantile = quantile.unwrap_or(default.quantile);
        let config =
            AdvantageConfig { aggregation, baseline, quantile, scale, deviation, epsilon, clip };
        config.checked().map_err(|fault| section_fault("advantage", fault.setting(), &fault))
    }

    /// Fills in defaults from the preset.
    #[must_use]
    pub fn resolved(self, preset: Preset) -> Self {
        let scale = match self.aggregation {
            Aggregation::SumThenNormalize => self.scale.or(Some(preset.reward_scale())),
            Aggregation::NormalizeThenSum => None,
        };
        let of_quantile = AdvantageConfig::default().quantile;
        let quantile = match self.baseline {
            Baseline::Quantile => self.quantile.or(Some(of_quantile)),
            _ => None,
        };
        Self { quantile, scale, ..self }
    }
}

/// The `[loss]` section: a preset and overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossSettings {
    /// Set of choices, each of which another key of the section can override ([table of
    /// presets](algorithm.md#9-the-loss)).
    #[schemars(extend("x-basic" = true))]
    pub preset: Preset,
    /// Surrogate with all its constants. Default: that of the preset.
    pub surrogate: Option<Surrogate>,
    /// `clipped` only: the lower clip bound is 1 − this. Default: that of the surrogate.
    #[schemars(range(min = 0, max = 1))]
    pub epsilon_low: Option<f64>,
    /// `clipped` only: the upper clip bound is 1 + this. Default: that of the surrogate.
    #[schemars(range(min = 0))]
    pub epsilon_high: Option<f64>,
    /// `clipped` only: upper bound of the ratio also for negative advantages. Default: none.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub delta: Option<f64>,
    /// `cispo` only: largest ratio. Default: that of the surrogate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cap: Option<f64>,
    /// Ratio per token, or its geometric mean over a completion. `sequence` is refused for
    /// `reinforce` and `vespo`, unless the corrected KL penalty uses it. Default: that of the preset.
    pub ratio_level: Option<RatioLevel>,
    /// [How tokens are averaged](algorithm.md#5-collate-weights-w_it). Default: that of the preset.
    pub reduction: Option<Reduction>,
    /// β, weight of the KL penalty.
    #[schemars(range(min = 0), extend("x-basic" = true))]
    pub kl_coef: Option<f64>,
    /// [KL estimator](algorithm.md#8-the-kl-penalty). `k1` in the loss with β > 0 needs the
    /// correction. `exact` covers the whole vocabulary (at the temperature, without forbidden ids,
    /// ignoring kept sets) and holds its logits, even if `kl_coef` is 0.
    pub kl_estimator: Option<KlEstimator>,
    /// Penalty in the loss of each token or in the reward of a completion.
    pub kl_placement: Option<KlPlacement>,
    /// Multiply the estimate by the differentiated ratio; true is refused for `exact` and in the
    /// reward. Default: true for `k1` and `k3` in the loss, else false.
    pub kl_bias_correction: Option<bool>,
    /// Drop completions with a negative advantage whose mean log-probability has fallen by more
    /// than this (nats) since sampling.
    #[schemars(range(min = 0))]
    pub off_policy_threshold: Option<f64>,
    /// Only this fraction of the step's tokens, those with the highest entropy, has a surrogate;
    /// costs a forward pass per update.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub high_entropy_share: Option<f64>,
    /// Correction for a sampler whose probabilities differ from the trainer's.
    pub mismatch: Option<MismatchCorrection>,
    /// Reward for entropy.
    pub entropy_bonus: Option<EntropyBonus>,
}

impl LossSettings {
    /// Resolves the loss settings.
    ///
    /// # Errors
    /// Returns an error if a constant belongs to a different surrogate, or if
    /// [`LossConfig::checked`] fails.
    pub fn resolve(&self) -> Result<LossConfig, ConfigFault> {
        let preset = self.preset.config();
        let config = LossConfig {
            surrogate: self.surrogate(preset.surrogate)?,
            ratio_level: self.ratio_level.unwrap_or(preset.ratio_level),
            kl: self.kl(preset.kl),
            reduction: self.reduction.unwrap_or(preset.reduction),
            off_policy_threshold: self.off_policy_threshold,
            high_entropy_share: self.high_entropy_share,
            mismatch: self.mismatch,
            entropy_bonus: self.entropy_bonus,
        };
        let has_ratio_level =
            !matches!(config.surrogate, Surrogate::Reinforce {} | Surrogate::Vespo { .. });
        let corrects_kl = config.kl.in_loss() && config.kl.bias_correction;
        if config.ratio_level == RatioLevel::Sequence && !has_ratio_level && !corrects_kl {
            return Err(ConfigFault::new(
                "loss.ratio_level",
                "loss: ratio_level = \"sequence\" has no effect with this surrogate",
                "remove it, or choose another preset",
            ));
        }
        config.checked().map_err(|fault| section_fault("loss", &self.key_of(&fault), &fault))
    }

    /// Fills in all values so that the loss is unaffected by future changes to the preset.
    ///
    /// # Errors
    /// Returns an error if [`LossSettings::resolve`] fails.
    pub fn resolved(&self) -> Result<Self, ConfigFault> {
        let LossConfig {
            surrogate,
            ratio_level,
            kl,
            reduction,
            off_policy_threshold,
            high_entropy_share,
            mismatch,
            entropy_bonus,
        } = self.resolve()?;
        Ok(Self {
            preset: self.preset,
            surrogate: Some(surrogate),
            epsilon_low: None,
            epsilon_high: None,
            delta: None,
            cap: None,
            ratio_level: Some(ratio_level),
            reduction: Some(reduction),
            kl_coef: Some(kl.coef),
            kl_estimator: Some(kl.estimator),
            kl_placement: Some(kl.placement),
            kl_bias_correction: Some(kl.bias_correction),
            off_policy_threshold,
            high_entropy_share,
            mismatch,
            entropy_bonus,
        })
    }

    /// Returns the key in this section that caused an error.
    fn key_of(&self, fault: &ConfigError) -> String {
        let setting = fault.setting();
        let given = match setting {
            "epsilon_low" => self.epsilon_low,
            "epsilon_high" => self.epsilon_high,
            "delta" => self.delta,
            "cap" => self.cap,
            "temperature_positive"
            | "temperature_negative"
            | "k_positive"
            | "k_negative"
            | "lambda_positive"
            | "lambda_negative" => None,
            _ => return setting.to_owned(),
        };
        if given.is_some() { setting.to_owned() } else { format!("surrogate.{setting}") }
    }

    fn surrogate(&self, of_preset: Surrogate) -> Result<Surrogate, ConfigFault> {
        let mut surrogate = self.surrogate.unwrap_or(of_preset);
        let Self { epsilon_low, epsilon_high, delta, cap, .. } = *self;
        let is_clipped = matches!(surrogate, Surrogate::Clipped { .. });
        let is_cispo = matches!(surrogate, Surrogate::Cispo { .. });
        let given = [
            ("epsilon_low", epsilon_low, is_clipped, "clipped"),
            ("epsilon_high", epsilon_high, is_clipped, "clipped"),
            ("delta", delta, is_clipped, "clipped"),
            ("cap", cap, is_cispo, "cispo"),
        ];
        for (key, value, fits, owner) in given {
            if value.is_some() && !fits {
                let preset = self.preset;
                return Err(ConfigFault::new(
                    format!("loss.{key}"),
                    format!(
                        "loss: {key} is only valid for the {owner} surrogate, but the loss (preset = \"{preset}\") uses another one"
                    ),
                    "remove it, or choose another preset",
                ));
            }
        }
        match &mut surrogate {
            Surrogate::Clipped { epsilon_low: low, epsilon_high: high, delta: bound } => {
                *low = epsilon_low.unwrap_or(*low);
                *high = epsilon_high.unwrap_or(*high);
                *bound = delta.or(*bound);
            }
            Surrogate::Cispo { cap: largest } => *largest = cap.unwrap_or(*largest),
            Surrogate::Sapo { .. } | Surrogate::Vespo { .. } | Surrogate::Reinforce {} => {}
        }
        Ok(surrogate)
    }

    fn kl(&self, of_preset: KlConfig) -> KlConfig {
        let estimator = self.kl_estimator.unwrap_or(of_preset.estimator);
        let placement = self.kl_placement.unwrap_or(of_preset.placement);
        // k2 is differentiated directly. Multiplied by the ratio, its gradient would no longer be
        // that of a divergence.
        let can_be_corrected = placement == KlPlacement::Loss
            && matches!(estimator, KlEstimator::K1 | KlEstimator::K3);
        KlConfig {
            coef: self.kl_coef.unwrap_or(of_preset.coef),
            estimator,
            placement,
            bias_correction: self
                .kl_bias_correction
                .unwrap_or(of_preset.bias_correction && can_be_corrected),
        }
    }
}

/// Converts an error so that it refers to the configuration section.
fn section_fault(section: &str, key: &str, fault: &ConfigError) -> ConfigFault {
    ConfigFault::from_sentence(format!("{section}.{key}"), format!("{section}: {fault}"))
}

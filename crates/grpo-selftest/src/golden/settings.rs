//! Converts TRL settings to grpo-core settings.

use grpo_core::{
    ConfigError, KlConfig, KlEstimator, KlPlacement, LossConfig, MismatchCorrection, MismatchMode,
    RatioLevel, Reduction, Surrogate,
};
use serde::Deserialize;

/// The `config` key of a case. Unknown keys are ignored, because future versions of TRL may add
/// more of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object with named values")]
pub(super) struct Settings {
    loss_type: LossType,
    importance_sampling_level: RatioLevel,
    pub(super) beta: f64,
    epsilon: f64,
    epsilon_high: Option<f64>,
    delta: Option<f64>,
    use_bias_correction_kl: bool,
    top_entropy_quantile: f64,
    off_policy_mask_threshold: Option<f64>,
    pub(super) entropy_coef: f64,
    sapo_temperature_pos: f64,
    sapo_temperature_neg: f64,
    vespo_k_pos: f64,
    vespo_lambda_pos: f64,
    vespo_k_neg: f64,
    vespo_lambda_neg: f64,
    pub(super) max_completion_length: usize,
    pub(super) gradient_accumulation_steps: usize,
    pub(super) steps_per_generation: usize,
    is_correction: Option<Correction>,
    is_clip_min: Option<f64>,
    is_clip_max: Option<f64>,
    /// Whether `log π_old` was passed to TRL.
    pub(super) old_logprobs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LossType {
    Grpo,
    Bnpo,
    DrGrpo,
    Dapo,
    Cispo,
    Sapo,
    Vespo,
    Luspo,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Correction {
    TokenTruncate,
    TokenMask,
    SequenceTruncate,
    SequenceMask,
}

impl Settings {
    pub(super) fn loss_config(&self) -> Result<LossConfig, ConfigError> {
        LossConfig {
            surrogate: self.surrogate(),
            ratio_level: self.importance_sampling_level,
            kl: KlConfig {
                coef: self.beta,
                estimator: KlEstimator::K3,
                placement: KlPlacement::Loss,
                bias_correction: self.use_bias_correction_kl,
            },
            reduction: self.reduction(),
            off_policy_threshold: self.off_policy_mask_threshold,
            high_entropy_share: self.high_entropy_share(),
            mismatch: self.is_correction.map(|correction| self.mismatch(correction)),
            // The coefficient is an input of the case, see `LossCase::entropy_coef`.
            entropy_bonus: None,
        }
        .checked()
    }

    /// Applies to the whole batch. In TRL, a value of 1 disables the mask.
    pub(super) fn high_entropy_share(&self) -> Option<f64> {
        (self.top_entropy_quantile != 1.0).then_some(self.top_entropy_quantile)
    }

    /// Returns whether TRL divides the loss by the number of accumulation steps and not by a token
    /// count.
    pub(super) fn divides_by_accumulation(&self) -> bool {
        !matches!(self.loss_type, LossType::Dapo | LossType::Cispo | LossType::Vespo)
    }

    /// Returns a one-line description of a case.
    pub(super) fn label(&self, [rows, width]: [usize; 2]) -> String {
        let mut label =
            format!("{:?} {:?} {rows}×{width}", self.loss_type, self.importance_sampling_level)
                .to_lowercase();
        let mut say = |applies: bool, words: String| {
            if applies {
                label.push_str(", ");
                label.push_str(&words);
            }
        };
        let correction = if self.use_bias_correction_kl { "" } else { " uncorrected" };
        say(self.beta != 0.0, format!("β {}{correction}", self.beta));
        say(self.delta.is_some(), format!("δ {}", self.delta.unwrap_or_default()));
        say(self.top_entropy_quantile != 1.0, format!("ρ {}", self.top_entropy_quantile));
        let threshold = self.off_policy_mask_threshold;
        say(threshold.is_some(), format!("off-policy {}", threshold.unwrap_or_default()));
        say(self.entropy_coef != 0.0, format!("entropy {}", self.entropy_coef));
        let steps = self.gradient_accumulation_steps;
        say(steps != 1, format!("GA {steps}"));
        if let Some(correction) = self.is_correction {
            say(true, format!("{correction:?}"));
        }
        say(!self.old_logprobs, "first update".to_owned());
        label
    }

    fn surrogate(&self) -> Surrogate {
        let epsilon_high = self.epsilon_high.unwrap_or(self.epsilon);
        match self.loss_type {
            LossType::Grpo
            | LossType::Bnpo
            | LossType::DrGrpo
            | LossType::Dapo
            | LossType::Luspo => {
                Surrogate::Clipped { epsilon_low: self.epsilon, epsilon_high, delta: self.delta }
            }
            // For this loss, ε_high is an absolute bound in TRL.
            LossType::Cispo => Surrogate::Cispo { cap: epsilon_high },
            LossType::Sapo => Surrogate::Sapo {
                temperature_positive: self.sapo_temperature_pos,
                temperature_negative: self.sapo_temperature_neg,
            },
            LossType::Vespo => Surrogate::Vespo {
                k_positive: self.vespo_k_pos,
                lambda_positive: self.vespo_lambda_pos,
                k_negative: self.vespo_k_neg,
                lambda_negative: self.vespo_lambda_neg,
            },
        }
    }

    fn reduction(&self) -> Reduction {
        match self.loss_type {
            LossType::Grpo | LossType::Sapo => Reduction::SequenceMean,
            LossType::Bnpo => Reduction::MicroBatchTokenMean,
            LossType::DrGrpo => Reduction::Constant,
            LossType::Dapo | LossType::Cispo | LossType::Vespo => Reduction::TokenMean,
            LossType::Luspo => Reduction::SequenceSum,
        }
    }

    fn mismatch(&self, correction: Correction) -> MismatchCorrection {
        let (level, mode) = match correction {
            Correction::TokenTruncate => (RatioLevel::Token, MismatchMode::Truncate),
            Correction::TokenMask => (RatioLevel::Token, MismatchMode::Mask),
            Correction::SequenceTruncate => (RatioLevel::Sequence, MismatchMode::Truncate),
            Correction::SequenceMask => (RatioLevel::Sequence, MismatchMode::Mask),
        };
        MismatchCorrection {
            level,
            mode,
            min: self.is_clip_min.unwrap_or(0.0),
            max: self.is_clip_max.unwrap_or(f64::MAX),
        }
    }
}

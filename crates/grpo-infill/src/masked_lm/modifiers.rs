//! Loss weighting for masked language models.
//!
//! Weights are computed without gradients. They use the platform's `powf` and `ln`, so results are
//! only reproducible bit for bit on the same platform. This is true of f32 runs in general.

use grpo_data::{ConfigFault, Ranges};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::judge::corruption_target;
use grpo_train::in_range;

/// Modifications of the cross-entropy. Missing ones have no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct ModifierConfig {
    /// Share of the target spread evenly over the characters (none for MASK, PAD, CLS).
    #[schemars(range(min = 0, max = 0.99))]
    pub label_smoothing: f64,
    /// Higher weights for positions where the model is confident in one wrong character.
    pub entropy: Option<EntropyWeighting>,
    /// Weights of texts by their fraction of masked characters.
    pub mask_ratio: Option<MaskRatioWeighting>,
    /// Weights of texts by the output of a judge.
    pub judge: Option<JudgeWeighting>,
}

/// The weight `1 + scale · (1 − H / ln(n − 1))`, where H is the entropy of the model's distribution
/// over the n − 1 wrong characters.
///
/// It is 1 if the wrong characters are all equally likely, and 1 + scale if one of them has all the
/// probability mass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct EntropyWeighting {
    /// Added to the weight of a position where the model is confident in one wrong character.
    #[schemars(range(min = 0, max = 1000))]
    pub scale: f64,
}

impl Default for EntropyWeighting {
    fn default() -> Self {
        Self { scale: 1.0 }
    }
}

/// The weight `1 / ratio^exponent`, clamped to `min` and `max`. It prevents texts with many blanks
/// from dominating those with few.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MaskRatioWeighting {
    /// Weight of a text is `1 / ratio^exponent` within the bounds.
    #[schemars(range(min = 0, max = 10))]
    pub exponent: f64,
    /// Lower bound of the weight.
    #[schemars(range(min = 0, max = 1e6))]
    pub min: f64,
    /// Upper bound of the weight, at least `min`.
    #[schemars(range(min = 0, max = 1e6))]
    pub max: f64,
}

impl Default for MaskRatioWeighting {
    fn default() -> Self {
        Self { exponent: 0.5, min: 0.1, max: 10.0 }
    }
}

/// The weight `(judge / target(ratio))^exponent`, clamped to `min` and `max`. `judge` is the score
/// of the filled text, and `target` is the judge's training target for the replaced fraction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeWeighting {
    /// Judge folder. The judge must read at least `data.length` characters.
    pub model: PathBuf,
    /// Weight of a text is `(judge / target(ratio))^exponent` within the bounds.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    pub exponent: f64,
    /// Lower bound of the weight.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0, max = 1e6))]
    pub min: f64,
    /// Upper bound of the weight, at least `min`.
    #[serde(default = "ten")]
    #[schemars(range(min = 0, max = 1e6))]
    pub max: f64,
    /// Accept a judge that did not pass its gate.
    #[serde(default)]
    pub accept_failed_judge: bool,
}

fn one() -> f64 {
    1.0
}
fn tenth() -> f64 {
    0.1
}
fn ten() -> f64 {
    10.0
}

impl ModifierConfig {
    /// Validates the settings. `section` is the section name in the configuration.
    pub(crate) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        self.check_ranges(section)?;
        if let Some(entropy) = self.entropy {
            entropy.check_ranges(&key("entropy"))?;
        }
        let bounds = |name: &str, exponent: f64, min: f64, max: f64| {
            in_range(&key(&format!("{name}.exponent")), exponent, 0.0..=10.0)?;
            in_range(&key(&format!("{name}.min")), min, 0.0..=1e6)?;
            in_range(&key(&format!("{name}.max")), max, min..=1e6)
        };
        if let Some(MaskRatioWeighting { exponent, min, max }) = self.mask_ratio {
            bounds("mask_ratio", exponent, min, max)?;
        }
        match &self.judge {
            Some(judge) => bounds("judge", judge.exponent, judge.min, judge.max),
            None => Ok(()),
        }
    }
}

impl EntropyWeighting {
    /// Returns the weight of a position. `logprob` is the log-probability of the correct character,
    /// and `entropy` is the entropy of the distribution over `characters` characters.
    ///
    /// If the correct character has probability p, then
    /// H(p) = −p ln p − (1 − p) ln(1 − p) + (1 − p) H. This gives H without access to the full
    /// distribution.
    pub(crate) fn weight(&self, logprob: f64, entropy: f64, characters: usize) -> f64 {
        let wrong = -logprob.exp_m1(); // 1 − p
        // With fewer than two wrong characters there is no uncertainty about them. If the model is
        // almost certain of the correct character, only rounding errors are left.
        if characters < 3 || wrong < 1e-4 {
            return 1.0;
        }
        let of_wrong = (entropy + (1.0 - wrong) * logprob + wrong * wrong.ln()) / wrong;
        let part = (of_wrong / ((characters - 1) as f64).ln()).clamp(0.0, 1.0);
        1.0 + self.scale * (1.0 - part)
    }
}

impl MaskRatioWeighting {
    /// Returns the weight of a text with this fraction of characters to fill.
    pub(crate) fn weight(&self, ratio: f64) -> f64 {
        ratio.powf(-self.exponent).clamp(self.min, self.max)
    }
}

impl JudgeWeighting {
    /// Returns the weight of a text, given the judge's score and the fraction of filled characters.
    pub(crate) fn weight(&self, score: f64, ratio: f64) -> f64 {
        if ratio == 0.0 {
            return 1.0; // there were no blanks to fill
        }
        (score / corruption_target(ratio)).powf(self.exponent).clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entropy(distribution: &[f64]) -> f64 {
        -distribution.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>()
    }

    proptest! {
        /// Compares with the entropy computed from the full distribution.
        #[test]
        fn entropy_weights_are_those_of_the_wrong_characters(
            numbers in proptest::collection::vec(0.01..1.0_f64, 3..10),
            scale in 0.0..5.0_f64,
        ) {
            let total: f64 = numbers.iter().sum();
            let all: Vec<f64> = numbers.iter().map(|number| number / total).collect();
            let (truth, wrong) = (all[0], &all[1..]);
            let wrong: Vec<f64> = wrong.iter().map(|p| p / (1.0 - truth)).collect();
            let expected = 1.0 + scale * (1.0 - entropy(&wrong) / (wrong.len() as f64).ln());
            let found =
                EntropyWeighting { scale }.weight(truth.ln(), entropy(&all), all.len());
            prop_assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
        }
    }

    #[test]
    fn a_place_that_is_right_weighs_1() {
        assert_eq!(EntropyWeighting::default().weight(0.0, 0.0, 10), 1.0);
        assert_eq!(EntropyWeighting::default().weight(-0.7, 0.69, 2), 1.0);
    }

    #[test]
    fn few_places_weigh_more_within_bounds() {
        let weighting = MaskRatioWeighting::default();
        for (ratio, expected) in [(1.0, 1.0), (0.25, 2.0), (0.0001, 10.0), (0.0, 10.0)] {
            assert!((weighting.weight(ratio) - expected).abs() < 1e-12, "{ratio}");
        }
    }

    /// The target for 0.5 is 0.8125.
    #[test]
    fn what_a_judge_finds_worse_than_expected_weighs_more() {
        let weighting = JudgeWeighting {
            model: PathBuf::new(),
            exponent: 2.0,
            min: 0.25,
            max: 1.2,
            accept_failed_judge: false,
        };
        for (score, expected) in [(0.8125, 1.0), (0.609_375, 0.5625), (0.1, 0.25), (1.0, 1.2)] {
            let found = weighting.weight(score, 0.5);
            assert!((found - expected).abs() < 1e-12, "{score}: {found}");
        }
        assert_eq!(weighting.weight(0.3, 0.0), 1.0);
    }
}

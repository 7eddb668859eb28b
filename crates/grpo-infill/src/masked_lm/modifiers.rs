//! Weights of positions in a masked language model's loss.
//!
//! All weights are numbers without gradients. They use the platform's `powf` and `ln`, so runs with
//! them are bit-identical on one platform only, as runs in f32 are anyway.

use grpo_data::ConfigFault;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::judge::corruption_target;
use grpo_train::in_range;

/// Weights of the cross-entropy; a missing one has no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModifierConfig {
    /// Label smoothing: the fraction of the target distributed evenly over all characters, without
    /// MASK, PAD and CLS (Szegedy et al. 2016, section 7).
    pub label_smoothing: f64,
    /// Weights positions by the model's confidence in a wrong character.
    pub entropy: Option<EntropyWeighting>,
    /// Weights texts by the fraction to fill.
    pub mask_ratio: Option<MaskRatioWeighting>,
    /// Weights texts by a judge's score of the model's fills.
    pub judge: Option<JudgeWeighting>,
}

/// `1 + scale · (1 − H / ln(n − 1))` with the entropy H of the model's distribution over the n − 1
/// wrong characters: 1 if they are equally probable, 1 + scale if one of them has all the
/// probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EntropyWeighting {
    /// Largest addition to the weight.
    pub scale: f64,
}

impl Default for EntropyWeighting {
    fn default() -> Self {
        Self { scale: 1.0 }
    }
}

/// `1 / ratio^exponent`, limited to `min` and `max`, so that texts with few blanks count as much as
/// those with many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskRatioWeighting {
    /// 0.5: the root.
    pub exponent: f64,
    /// Smallest weight.
    pub min: f64,
    /// Largest weight.
    pub max: f64,
}

impl Default for MaskRatioWeighting {
    fn default() -> Self {
        Self { exponent: 0.5, min: 0.1, max: 10.0 }
    }
}

/// `(judge / target(ratio))^exponent`, limited to `min` and `max`, with the judge's score of the
/// filled text and its training target for the replaced fraction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeWeighting {
    /// Folder of the judge.
    pub model: PathBuf,
    /// Exponent of the weight.
    #[serde(default = "one")]
    pub exponent: f64,
    /// Smallest weight.
    #[serde(default = "tenth")]
    pub min: f64,
    /// Largest weight.
    #[serde(default = "ten")]
    pub max: f64,
    /// Whether a judge that did not pass its gate may be used.
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
    /// Checks ranges; `section` is the name in the configuration.
    pub(crate) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        in_range(&key("label_smoothing"), self.label_smoothing, 0.0..=0.99)?;
        if let Some(entropy) = self.entropy {
            in_range(&key("entropy.scale"), entropy.scale, 0.0..=1e3)?;
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
    /// Returns the weight of a position, given the log-probability of the true character and the
    /// entropy over `characters` characters.
    ///
    /// With p of the true character, H(p) = −p ln p − (1 − p) ln(1 − p) + (1 − p) H, so H can be
    /// computed without the distribution.
    pub(crate) fn weight(&self, logprob: f64, entropy: f64, characters: usize) -> f64 {
        let wrong = -logprob.exp_m1(); // 1 − p
        // With fewer than two wrong characters there is no uncertainty. If the model is right, only
        // rounding remains.
        if characters < 3 || wrong < 1e-4 {
            return 1.0;
        }
        let of_wrong = (entropy + (1.0 - wrong) * logprob + wrong * wrong.ln()) / wrong;
        let part = (of_wrong / ((characters - 1) as f64).ln()).clamp(0.0, 1.0);
        1.0 + self.scale * (1.0 - part)
    }
}

impl MaskRatioWeighting {
    /// Returns the weight of a text with this fraction to fill.
    pub(crate) fn weight(&self, ratio: f64) -> f64 {
        ratio.powf(-self.exponent).clamp(self.min, self.max)
    }
}

impl JudgeWeighting {
    /// Returns the weight of a text with this filled fraction and the judge's score.
    pub(crate) fn weight(&self, score: f64, ratio: f64) -> f64 {
        if ratio == 0.0 {
            return 1.0; // nothing was filled, and nothing is expected
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
        /// Compares with the distribution over wrong characters.
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

    /// The target of 0.5 is 0.8125.
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

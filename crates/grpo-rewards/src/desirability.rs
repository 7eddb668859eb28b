//! Desirability functions, which map a property to a score between 0 and 1.

use std::collections::BTreeMap;

use grpo_data::short_number;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which values of a property are desirable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// High values.
    High,
    /// Low values.
    Low,
    /// Values in a range.
    Range,
}

/// A function from a property x to a score between 0 and 1.
///
/// The functions and parameter names follow REINVENT 4 (Loeffler et al. 2024,
/// `reinvent.scoring.transforms`), computed in double precision. Its sigmoids use powers of 10:
/// `σ(h) = 1/(1 + 10^(−h))`. The linear functions are additional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Desirability {
    /// `(x − low)/(high − low)`, limited to 0 to 1.
    Linear {
        /// The property with score 0.
        low: f64,
        /// The property with score 1.
        high: f64,
    },
    /// `(high − x)/(high − low)`, limited to 0 to 1.
    ReverseLinear {
        /// The property with score 1.
        low: f64,
        /// The property with score 0.
        high: f64,
    },
    /// `σ(10·k·(x − (low + high)/2)/(high − low))`. If `low` equals `high`, a step at that value.
    Sigmoid {
        /// The property with a score of about 0 for `k = 1`.
        low: f64,
        /// The property with a score of about 1 for `k = 1`.
        high: f64,
        /// The steepness.
        #[serde(default = "one")]
        k: f64,
    },
    /// 1 minus the sigmoid.
    ReverseSigmoid {
        /// The property with a score of about 1 for `k = 1`.
        low: f64,
        /// The property with a score of about 0 for `k = 1`.
        high: f64,
        /// The steepness.
        #[serde(default = "one")]
        k: f64,
    },
    /// `σ(coef_si/coef_div·(x − low))` below the middle of the range, and
    /// `1 − σ(coef_se/coef_div·(x − high))` above. If `coef_div` is 0, both sides are steps.
    DoubleSigmoid {
        /// The lower property with score 1/2.
        low: f64,
        /// The upper property with score 1/2.
        high: f64,
        /// Divisor of both coefficients.
        #[serde(default = "default_divisor")]
        coef_div: f64,
        /// Coefficient of the left side.
        #[serde(default = "default_coefficient")]
        coef_si: f64,
        /// Coefficient of the right side.
        #[serde(default = "default_coefficient")]
        coef_se: f64,
    },
    /// 1 if `low ≤ x ≤ high`, otherwise 0.
    Step {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// 1 if `x ≤ low`, otherwise 0.
    LeftStep {
        /// Upper bound.
        low: f64,
    },
    /// 1 if `x ≥ high`, otherwise 0.
    RightStep {
        /// Lower bound.
        high: f64,
    },
    /// `exp(−k·x)` for `x ≥ 0`, and 1 for negative values.
    ExponentialDecay {
        /// The decay rate.
        k: f64,
    },
    /// A score for each listed property.
    ValueMapping {
        /// Scores by property. The keys are numbers.
        mapping: BTreeMap<String, f64>,
        /// The score of all other properties.
        #[serde(default)]
        other: f64,
    },
}

fn one() -> f64 {
    1.0
}
fn default_divisor() -> f64 {
    100.0
}
fn default_coefficient() -> f64 {
    150.0
}

impl Desirability {
    /// Returns the default function for a goal. It is linear between the bounds for [`Goal::High`]
    /// and [`Goal::Low`]. For [`Goal::Range`], it is a double sigmoid that reaches 10/11 inside
    /// each bound, at a distance of a fifth of the range.
    pub fn of_goal(goal: Goal, low: f64, high: f64) -> Self {
        match goal {
            Goal::High => Self::Linear { low, high },
            Goal::Low => Self::ReverseLinear { low, high },
            Goal::Range => {
                let width = high - low;
                Self::DoubleSigmoid { low, high, coef_div: width, coef_si: 5.0, coef_se: 5.0 }
            }
        }
    }

    /// Returns the goal that the function expresses, or `None` if it can express any.
    pub fn goal(&self) -> Option<Goal> {
        match self {
            Self::Linear { .. } | Self::Sigmoid { .. } | Self::RightStep { .. } => Some(Goal::High),
            Self::ReverseLinear { .. }
            | Self::ReverseSigmoid { .. }
            | Self::LeftStep { .. }
            | Self::ExponentialDecay { .. } => Some(Goal::Low),
            Self::DoubleSigmoid { .. } | Self::Step { .. } => Some(Goal::Range),
            Self::ValueMapping { .. } => None,
        }
    }

    /// Returns the value of the configuration key `type`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::ReverseLinear { .. } => "reverse_linear",
            Self::Sigmoid { .. } => "sigmoid",
            Self::ReverseSigmoid { .. } => "reverse_sigmoid",
            Self::DoubleSigmoid { .. } => "double_sigmoid",
            Self::Step { .. } => "step",
            Self::LeftStep { .. } => "left_step",
            Self::RightStep { .. } => "right_step",
            Self::ExponentialDecay { .. } => "exponential_decay",
            Self::ValueMapping { .. } => "value_mapping",
        }
    }

    /// Validates the parameters.
    ///
    /// # Errors
    /// Returns an error if a number is not finite, the bounds are swapped, a steepness is not
    /// positive, or a score is not between 0 and 1.
    pub fn check(&self) -> Result<(), String> {
        let name = self.type_name();
        let bounds = |low: f64, high: f64| match (low.is_finite() && high.is_finite(), low <= high)
        {
            (false, _) => Err(format!("transform {name} requires finite bounds")),
            (_, false) => Err(format!(
                "transform {name} has low = {} above high = {}; swap them",
                short_number(low),
                short_number(high)
            )),
            _ => Ok(()),
        };
        let apart = |low: f64, high: f64| {
            bounds(low, high)?;
            let message = || format!("transform {name} requires low below high, not equal bounds");
            if low < high { Ok(()) } else { Err(message()) }
        };
        let positive = |key: &str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(format!(
                "transform {name} requires {key} above 0, found {}",
                short_number(value)
            )),
        };
        match self {
            &Self::Linear { low, high } | &Self::ReverseLinear { low, high } => apart(low, high),
            &Self::Sigmoid { low, high, k } | &Self::ReverseSigmoid { low, high, k } => {
                bounds(low, high)?;
                positive("k", k)
            }
            &Self::DoubleSigmoid { low, high, coef_div, coef_si, coef_se } => {
                apart(low, high)?;
                positive("coef_si", coef_si)?;
                positive("coef_se", coef_se)?;
                if coef_div == 0.0 { Ok(()) } else { positive("coef_div", coef_div) }
            }
            &Self::Step { low, high } => bounds(low, high),
            &Self::LeftStep { low: bound } | &Self::RightStep { high: bound } => {
                bounds(bound, bound)
            }
            &Self::ExponentialDecay { k } => positive("k", k),
            Self::ValueMapping { mapping, other } => check_mapping(mapping, *other),
        }
    }

    /// Returns the score of a property, between 0 and 1.
    pub fn score(&self, x: f64) -> f64 {
        match self {
            &Self::Linear { low, high } => ((x - low) / (high - low)).clamp(0.0, 1.0),
            &Self::ReverseLinear { low, high } => ((high - x) / (high - low)).clamp(0.0, 1.0),
            &Self::Sigmoid { low, high, k } => sigmoid_between(x, low, high, k),
            &Self::ReverseSigmoid { low, high, k } => 1.0 - sigmoid_between(x, low, high, k),
            &Self::DoubleSigmoid { low, high, coef_div, coef_si, coef_se } => {
                match x < (high - low) / 2.0 + low {
                    true => sigmoid(x - low, coef_si, coef_div),
                    false => 1.0 - sigmoid(x - high, coef_se, coef_div),
                }
            }
            &Self::Step { low, high } => f64::from((low..=high).contains(&x)),
            &Self::LeftStep { low } => f64::from(x <= low),
            &Self::RightStep { high } => f64::from(x >= high),
            &Self::ExponentialDecay { k } => {
                if x < 0.0 {
                    1.0
                } else {
                    (-k * x).exp()
                }
            }
            Self::ValueMapping { mapping, other } => {
                let entry = mapping.iter().find(|(key, _)| key.parse() == Ok(x));
                entry.map_or(*other, |(_, score)| *score)
            }
        }
    }

    /// Returns the score at evenly spaced properties around the bounds, for drawing the function.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        const POINTS: u32 = 120;
        let (low, high) = self.range();
        let at = |i: u32| low + (high - low) * f64::from(i) / f64::from(POINTS);
        (0..=POINTS).map(|i| (at(i), self.score(at(i)))).collect()
    }

    /// Returns a range of properties that contains the interesting part of the function.
    fn range(&self) -> (f64, f64) {
        let (low, high) = match self {
            &Self::Linear { low, high }
            | &Self::ReverseLinear { low, high }
            | &Self::Sigmoid { low, high, .. }
            | &Self::ReverseSigmoid { low, high, .. }
            | &Self::DoubleSigmoid { low, high, .. }
            | &Self::Step { low, high } => (low, high),
            &Self::LeftStep { low: bound } | &Self::RightStep { high: bound } => (bound, bound),
            &Self::ExponentialDecay { k } => (0.0, 4.0 / k),
            Self::ValueMapping { mapping, .. } => {
                let keys: Vec<f64> = mapping.keys().filter_map(|key| key.parse().ok()).collect();
                let least = keys.iter().copied().fold(f64::INFINITY, f64::min);
                (least, keys.iter().copied().fold(least, f64::max))
            }
        };
        let width = if high > low { high - low } else { low.abs().max(1.0) };
        (low - 0.25 * width, high + 0.25 * width)
    }
}

fn check_mapping(mapping: &BTreeMap<String, f64>, other: f64) -> Result<(), String> {
    if mapping.is_empty() {
        return Err("transform value_mapping has no entries".to_owned());
    }
    for (key, score) in mapping.iter().map(|(key, score)| (key.as_str(), *score)) {
        if !key.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(format!(
                "transform value_mapping has the key '{key}'; its keys must be numbers"
            ));
        }
        check_score(key, score)?;
        let is_same =
            |other: &&String| other.as_str() != key && other.parse::<f64>() == key.parse();
        if let Some(other) = mapping.keys().find(is_same) {
            return Err(format!(
                "transform value_mapping has the keys '{key}' and '{other}' for the same number; remove one"
            ));
        }
    }
    check_score("other", other)
}

fn check_score(key: &str, score: f64) -> Result<(), String> {
    match (0.0..=1.0).contains(&score) {
        true => Ok(()),
        false => Err(format!(
            "transform value_mapping maps {key} to {}; expected a score from 0 to 1",
            short_number(score)
        )),
    }
}

fn sigmoid_between(x: f64, low: f64, high: f64, k: f64) -> f64 {
    sigmoid(x - (high + low) / 2.0, 10.0 * k, high - low)
}

/// Returns `1/(1 + 10^(−k/divisor·x))`, or a step at 0 if `divisor` is 0.
fn sigmoid(x: f64, k: f64, divisor: f64) -> f64 {
    if divisor == 0.0 {
        return f64::from(k * x > 0.0);
    }
    // For large negative exponents, the power is infinite and the result is 0.
    1.0 / (1.0 + (-k / divisor * x * std::f64::consts::LN_10).exp())
}

#[cfg(test)]
mod tests;

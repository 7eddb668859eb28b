//! Transforms for the scores of reward components.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A function that is applied to a score x.
///
/// Variants without settings are structs as well, so that unknown keys are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Transform {
    /// The unmodified score.
    Identity {},
    /// `scale · x + shift`.
    Affine {
        /// The factor.
        #[serde(default = "one")]
        scale: f64,
        /// The constant term.
        #[serde(default)]
        shift: f64,
    },
    /// The score, limited to the range `low..=high`.
    Clamp {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// ln(1 + x), for x > −1.
    Log1p {},
    /// 1/(1 + exp(−(x − centre)/width)).
    Sigmoid {
        /// The score that is mapped to 1/2.
        #[serde(default)]
        centre: f64,
        /// Distance from the centre at which the result is 0.73 or 0.27.
        #[serde(default = "one")]
        width: f64,
    },
    /// The negative score.
    Negate {},
}

fn one() -> f64 {
    1.0
}

impl Default for Transform {
    fn default() -> Self {
        Self::Identity {}
    }
}

impl Transform {
    /// Returns `true` if the transform is the identity.
    pub fn is_identity(&self) -> bool {
        *self == Self::Identity {}
    }

    /// Validates the parameters.
    ///
    /// # Errors
    /// Returns an error if a parameter is not finite, if `low` is not less than `high`, or if the
    /// width is not positive.
    pub(crate) fn check(&self) -> Result<(), String> {
        let finite = |numbers: [f64; 2]| numbers.iter().all(|number| number.is_finite());
        match *self {
            Self::Affine { scale, shift } if !finite([scale, shift]) || scale == 0.0 => {
                Err(format!(
                    "transform affine requires a finite nonzero scale and a finite shift, found {scale} and {shift}"
                ))
            }
            Self::Clamp { low, high } if !finite([low, high]) || low >= high => Err(format!(
                "transform clamp requires a finite low below a finite high, found {low} and {high}"
            )),
            Self::Sigmoid { centre, width } if !finite([centre, width]) || width <= 0.0 => {
                Err(format!(
                    "transform sigmoid requires a finite centre and a finite width above 0, found {centre} and {width}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Applies the transform to a score.
    ///
    /// # Errors
    /// Returns an error if the result is not finite.
    pub fn of(&self, score: f64) -> Result<f64, String> {
        let value = match *self {
            Self::Identity {} => score,
            Self::Affine { scale, shift } => scale * score + shift,
            // `clamp` would panic if `low` > `high`, and it does not replace NaN.
            Self::Clamp { low, high } => score.max(low).min(high),
            Self::Log1p {} => score.ln_1p(),
            Self::Sigmoid { centre, width } => 1.0 / (1.0 + (-(score - centre) / width).exp()),
            Self::Negate {} => -score,
        };
        match score.is_finite() && value.is_finite() {
            true => Ok(value),
            false => Err(format!("its score {score} was transformed to {value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(transform: Transform, score: f64, expect: f64) {
        let got = transform.of(score).unwrap();
        assert!((got - expect).abs() < 1e-12, "{got} and not {expect}");
    }

    #[test]
    fn values_by_hand() {
        check(Transform::Identity {}, 0.3, 0.3);
        check(Transform::Affine { scale: -2.0, shift: 1.0 }, 0.3, 0.4);
        let clamp = Transform::Clamp { low: -1.0, high: 0.5 };
        check(clamp, 0.3, 0.3);
        check(clamp, 3.0, 0.5);
        check(clamp, -3.0, -1.0);
        check(Transform::Log1p {}, 3.0, 1.386_294_361_119_890_6);
        check(Transform::Sigmoid { centre: 0.0, width: 1.0 }, 0.0, 0.5);
        check(Transform::Sigmoid { centre: 1.0, width: 2.0 }, 3.0, 0.731_058_578_630_004_9);
        check(Transform::Negate {}, 0.3, -0.3);
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        for (transform, score) in [
            (Transform::Log1p {}, -1.0),
            (Transform::Log1p {}, -2.0),
            (Transform::Identity {}, f64::NAN),
            (Transform::Clamp { low: 0.0, high: 1.0 }, f64::NAN),
            (Transform::Clamp { low: 0.0, high: 1.0 }, f64::INFINITY),
            (Transform::Affine { scale: 1e300, shift: 0.0 }, 1e300),
        ] {
            assert!(transform.of(score).is_err(), "{transform:?} {score}");
        }
    }

    #[test]
    fn refuses_invalid_settings() {
        for wrong in [
            Transform::Affine { scale: 0.0, shift: 0.0 },
            Transform::Affine { scale: 1.0, shift: f64::NAN },
            Transform::Clamp { low: 1.0, high: 1.0 },
            Transform::Clamp { low: 0.0, high: f64::INFINITY },
            Transform::Sigmoid { centre: 0.0, width: 0.0 },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(Transform::Clamp { low: 0.0, high: 1.0 }.check().is_ok());
        assert!(Transform::Log1p {}.check().is_ok());
    }
}

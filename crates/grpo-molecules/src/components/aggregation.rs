//! Ways to combine the desirabilities of all components.

use grpo_rewards::PartName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How to combine weighted scores between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aggregation {
    /// `Σ w·s`.
    #[default]
    ArithmeticMean,
    /// `Π s^w`, where scores below [`LEAST`] count as [`LEAST`], as in REINVENT 4.
    GeometricMean,
    /// The lowest score.
    Minimum,
}

/// Lower limit of the scores in a geometric mean.
const LEAST: f64 = 1e-8;

impl Aggregation {
    /// Returns the terms of a reward for scores with weights that sum to 1. Their values are
    /// multiplied by `gate`.
    pub(super) fn terms(self, weighted: &[(f64, f64)], gate: f64) -> Vec<(f64, f64)> {
        let total = match self {
            Self::ArithmeticMean => {
                return weighted.iter().map(|(weight, score)| (*weight, score * gate)).collect();
            }
            Self::GeometricMean if weighted.iter().all(|(_, score)| *score == 0.0) => 0.0,
            Self::GeometricMean => {
                let logs = weighted.iter().map(|(weight, score)| weight * score.max(LEAST).ln());
                logs.sum::<f64>().exp()
            }
            Self::Minimum => weighted.iter().map(|(_, score)| *score).fold(1.0, f64::min),
        };
        vec![(1.0, total * gate)]
    }

    /// Returns the names of [`Self::terms`], given those of the components.
    pub(super) fn term_names(self, components: impl Iterator<Item = String>) -> Vec<PartName> {
        match self {
            Self::ArithmeticMean => components.map(PartName::from).collect(),
            Self::GeometricMean | Self::Minimum => vec!["score".into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(aggregation: Aggregation, scores: &[(f64, f64)]) -> f64 {
        aggregation.terms(scores, 1.0).iter().map(|(weight, value)| weight * value).sum()
    }

    #[test]
    fn means_by_hand() {
        let scores = [(0.25, 0.16), (0.75, 0.81)];
        assert!((total(Aggregation::ArithmeticMean, &scores) - 0.6475).abs() < 1e-12);
        let geometric = 0.16f64.powf(0.25) * 0.81f64.powf(0.75);
        assert!((total(Aggregation::GeometricMean, &scores) - geometric).abs() < 1e-12);
        assert_eq!(total(Aggregation::Minimum, &scores), 0.16);
        for aggregation in
            [Aggregation::ArithmeticMean, Aggregation::GeometricMean, Aggregation::Minimum]
        {
            assert_eq!(total(aggregation, &[(0.5, 0.0), (0.5, 0.0)]), 0.0);
            assert!(aggregation.terms(&scores, 0.0).iter().all(|(_, value)| *value == 0.0));
        }
        let floor = total(Aggregation::GeometricMean, &[(0.5, 0.0), (0.5, 1.0)]);
        assert!((floor - 1e-4).abs() < 1e-12);
    }
}

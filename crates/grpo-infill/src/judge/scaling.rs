//! Loss factors that discourage outputs that are nearly constant or uncorrelated with the targets.
//!
//! Both factors are computed from the entire batch, without gradients. They use the platform's
//! `exp`, so results are only reproducible bit for bit on the same platform. This is true of f32
//! runs in general.

use grpo_data::statistics::{pearson, population_variance};
use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factors applied to a judge's loss. Missing ones count as 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeScaling {
    /// Multiplies the loss while outputs vary less than targets.
    pub variance: Option<VarianceScaling>,
    /// Multiplies the loss while outputs do not follow the targets.
    pub correlation: Option<CorrelationScaling>,
}

/// The factor `1 + (s − 1)(1 − e^(−α · max(var(y) / var(ŷ) − 1, 0)))`. It is 1 if the outputs vary
/// at least as much as the targets, and approaches s as the outputs become constant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct VarianceScaling {
    /// Maximum factor s.
    #[schemars(range(min = 1, max = 1000))]
    pub scale: f64,
    /// Steepness α.
    #[schemars(range(min = 0, max = 1000))]
    pub alpha: f64,
}

impl Default for VarianceScaling {
    fn default() -> Self {
        Self { scale: 5.0, alpha: 1.5 }
    }
}

/// A factor that depends on the Pearson correlation of outputs and targets. It is a parabola with
/// the values 1, √α and α at correlations of 1, 0 and −1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct CorrelationScaling {
    /// Factor α for a correlation of −1.
    #[schemars(range(min = 1, max = 1000))]
    pub alpha: f64,
}

impl Default for CorrelationScaling {
    fn default() -> Self {
        Self { alpha: 4.0 }
    }
}

impl JudgeScaling {
    /// Validates the settings. `section` is the section name in the configuration.
    pub(crate) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        if let Some(variance) = self.variance {
            variance.check_ranges(&format!("{section}.variance"))?;
        }
        match self.correlation {
            Some(c) => c.check_ranges(&format!("{section}.correlation")),
            None => Ok(()),
        }
    }

    /// Returns the factor for a batch.
    pub(crate) fn factor(&self, outputs: &[f64], targets: &[f64]) -> f64 {
        let of_variance = self.variance.map(|scaling| scaling.factor(outputs, targets));
        let of_correlation = self.correlation.map(|scaling| scaling.factor(outputs, targets));
        of_variance.unwrap_or(1.0) * of_correlation.unwrap_or(1.0)
    }
}

impl VarianceScaling {
    fn factor(&self, outputs: &[f64], targets: &[f64]) -> f64 {
        let (wanted, found) = (population_variance(targets), population_variance(outputs));
        if wanted <= found {
            return 1.0;
        }
        // Infinite for constant outputs, in which case the exponential is 0.
        let excess = wanted / found - 1.0;
        1.0 + (self.scale - 1.0) * (1.0 - (-self.alpha * excess).exp())
    }
}

impl CorrelationScaling {
    /// Returns the factor for a batch. Constant outputs are treated as uncorrelated. If the targets
    /// are constant, the factor is 1.
    fn factor(&self, outputs: &[f64], targets: &[f64]) -> f64 {
        if population_variance(targets) == 0.0 {
            return 1.0;
        }
        let c = pearson(outputs, targets).unwrap_or(0.0);
        let (at_zero, at_minus_one) = (self.alpha.sqrt(), self.alpha);
        let even = (1.0 + at_minus_one) / 2.0 - at_zero;
        let odd = (1.0 - at_minus_one) / 2.0;
        even * c * c + odd * c + at_zero
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_vary_too_little_are_scaled_up() {
        let scaling = VarianceScaling::default();
        let check = |outputs: &[f64], expected: f64| {
            let found = scaling.factor(outputs, &[0.0, 1.0]);
            assert!((found - expected).abs() < 1e-12, "{outputs:?}: {found}, expected {expected}");
        };
        check(&[0.0, 1.0], 1.0);
        check(&[-1.0, 2.0], 1.0);
        check(&[0.5, 0.5], 5.0);
        // With a quarter of the variance, the excess is 3.
        check(&[0.25, 0.75], 1.0 + 4.0 * (1.0 - (-4.5_f64).exp()));
        assert_eq!(scaling.factor(&[0.1, 0.1], &[0.5, 0.5]), 1.0);
    }

    /// The parabola has A = ½, B = −3/2, C = 2. Its value is 1 at c = 1, 2 at 0, 4 at −1, and
    /// ½·0.64 − 1.5·0.8 + 2 = 1.12 at 0.8.
    #[test]
    fn outputs_that_do_not_follow_are_scaled_up() {
        let scaling = CorrelationScaling::default();
        let targets = [1.0, 2.0, 3.0, 4.0, 5.0];
        let check = |outputs: [f64; 5], expected: f64| {
            let found = scaling.factor(&outputs, &targets);
            assert!((found - expected).abs() < 1e-12, "{outputs:?}: {found}, expected {expected}");
        };
        check(targets, 1.0);
        check([5.0, 4.0, 3.0, 2.0, 1.0], 4.0);
        check([0.3; 5], 2.0);
        check([2.0, 1.0, 4.0, 3.0, 5.0], 1.12);
        assert_eq!(scaling.factor(&targets, &[0.5; 5]), 1.0);
    }

    #[test]
    fn both_are_multiplied_and_each_can_be_left_out() {
        let (outputs, targets) = ([0.5, 0.5], [0.0, 1.0]);
        let both = JudgeScaling {
            variance: Some(VarianceScaling::default()),
            correlation: Some(CorrelationScaling::default()),
        };
        assert!((both.factor(&outputs, &targets) - 10.0).abs() < 1e-12);
        assert_eq!(JudgeScaling::default().factor(&outputs, &targets), 1.0);
    }
}

//! Comparison of two models whose samples do not belong together in pairs.

use grpo_data::statistics::{TestResult, mean};
use serde::{Deserialize, Serialize};

use super::alternative::Alternative;
use super::comparison::Conclusion;
use super::correction::holm;
use super::effect::{EffectBand, cohens_d};
use super::mann_whitney::mann_whitney_u;
use crate::error::MeasureError;

/// A metric of two models with one value per sample, for example the QED of each molecule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnpairedSample<'a> {
    /// Name of the metric.
    pub metric: &'a str,
    /// Values of the new model, at least one.
    pub new: &'a [f64],
    /// Values of the baseline, at least one.
    pub baseline: &'a [f64],
}

/// Comparison of a metric of two models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnpairedComparison {
    /// Name of the metric.
    pub metric: String,
    /// Mean of the new model.
    pub new_mean: f64,
    /// Mean of the baseline.
    pub baseline_mean: f64,
    /// The two-sided Mann-Whitney U test.
    pub mann_whitney: TestResult,
    /// Cohen's d. `None` for samples of one value, and if both samples are constant and differ.
    pub cohens_d: Option<f64>,
    /// Cliff's delta, 2 U / (n m) − 1.
    pub cliffs_delta: f64,
    /// Band of Cliff's delta.
    pub effect: EffectBand,
    /// p-value, corrected with Holm's method for all metrics.
    pub p_value: f64,
    /// The verdict for `p_value` and `cohens_d`.
    pub conclusion: Conclusion,
}

/// Compares two models on several metrics with the two-sided Mann-Whitney U test. The p-values for
/// the conclusions are corrected for the number of metrics.
///
/// # Errors
/// Returns an error if a sample is empty or a number is not finite.
pub fn compare_unpaired(
    samples: &[UnpairedSample<'_>],
) -> Result<Vec<UnpairedComparison>, MeasureError> {
    let test = |sample: &UnpairedSample<'_>| {
        mann_whitney_u(sample.new, sample.baseline, Alternative::TwoSided)
    };
    let tests = samples.iter().map(test).collect::<Result<Vec<_>, _>>()?;
    let p_values: Vec<f64> = tests.iter().map(|test| test.p_value).collect();
    let compare = |((sample, test), p_value): ((&UnpairedSample<'_>, TestResult), f64)| {
        let UnpairedSample { metric, new, baseline } = *sample;
        let cliffs_delta = 2.0 * test.statistic / (new.len() * baseline.len()) as f64 - 1.0;
        let cohens_d = cohens_d(new, baseline).ok();
        UnpairedComparison {
            metric: metric.to_owned(),
            new_mean: mean(new),
            baseline_mean: mean(baseline),
            mann_whitney: test,
            cohens_d,
            cliffs_delta,
            effect: EffectBand::from_cliffs_delta(cliffs_delta),
            p_value,
            conclusion: Conclusion::new(p_value, cohens_d),
        }
    };
    Ok(samples.iter().zip(tests).zip(holm(&p_values)?).map(compare).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::cliffs_delta;

    #[test]
    fn metrics_are_corrected_together() {
        let low: Vec<f64> = (0..20).map(f64::from).collect();
        let high: Vec<f64> = low.iter().map(|value| value + 12.5).collect();
        let samples = [
            UnpairedSample { metric: "a", new: &high, baseline: &low },
            UnpairedSample { metric: "b", new: &low, baseline: &low[3..] },
        ];
        let found = compare_unpaired(&samples).unwrap();
        assert_eq!(found[0].p_value, 2.0 * found[0].mann_whitney.p_value);
        assert_eq!(found[0].conclusion, Conclusion::Significant);
        let delta = cliffs_delta(&high, &low).unwrap();
        assert!((found[0].cliffs_delta - delta).abs() < 1e-15, "{delta}");
        assert_eq!((found[0].new_mean, found[0].baseline_mean), (22.0, 9.5));
        assert_eq!(found[1].conclusion, Conclusion::NotSignificant);
        let empty = UnpairedSample { metric: "c", new: &[], baseline: &low };
        assert!(compare_unpaired(&[empty]).is_err());
    }
}

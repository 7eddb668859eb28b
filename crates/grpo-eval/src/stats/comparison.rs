//! Comparison of two models on the same prompts.

use grpo_data::statistics::{TestResult, mean};
use serde::{Deserialize, Serialize};

use super::alternative::{Alternative, Direction};
use super::bootstrap::{Bootstrap, Estimate};
use super::correction::holm;
use super::effect::{EffectBand, cliffs_delta, cohens_d};
use super::mann_whitney::mann_whitney_u;
use super::t_test::paired_t_test;
use super::wilcoxon::wilcoxon_signed_rank;
use crate::error::{MeasureError, check_lengths};

/// The test whose p-value decides about a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairedTest {
    /// Student's t-test for pairs.
    #[default]
    T,
    /// The Wilcoxon signed-rank test.
    WilcoxonSignedRank,
}

/// A metric of two models, with one value per prompt. Averages over prompts must not be compared,
/// because a test of two numbers has no meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedSample<'a> {
    /// Name of the metric.
    pub metric: &'a str,
    /// Which values are better.
    pub direction: Direction,
    /// Values of the new model, one per prompt.
    pub new: &'a [f64],
    /// Values of the baseline for the same prompts in the same order.
    pub baseline: &'a [f64],
}

/// Verdict about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// p < 0.05 and |d| ≥ 0.3.
    Significant,
    /// p < 0.05 with a smaller effect.
    SignificantSmall,
    /// p ≥ 0.05.
    NotSignificant,
}

impl Conclusion {
    /// Returns the verdict for a p-value and Cohen's d. Without d, i.e. if both samples are constant
    /// and differ, the effect counts as large.
    pub fn new(p_value: f64, d: Option<f64>) -> Self {
        match d {
            _ if p_value >= 0.05 => Self::NotSignificant,
            Some(d) if d.abs() < 0.3 => Self::SignificantSmall,
            _ => Self::Significant,
        }
    }
}

/// Comparison of a metric of two models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the metric.
    pub metric: String,
    /// Which values are better.
    pub direction: Direction,
    /// Number of prompts.
    pub prompts: usize,
    /// Mean of the new model.
    pub new_mean: f64,
    /// Mean of the baseline.
    pub baseline_mean: f64,
    /// Mean of new − baseline over all prompts, with its interval.
    pub difference: Estimate,
    /// Change in percent of the baseline. `None` if the baseline is 0.
    pub relative_percent: Option<f64>,
    /// Student's t-test for pairs. `None` if all differences are equal and not 0.
    pub paired_t: Option<TestResult>,
    /// The Wilcoxon signed-rank test.
    pub wilcoxon: TestResult,
    /// The Mann-Whitney U test, which ignores that the values are paired.
    pub mann_whitney: TestResult,
    /// Cohen's d. `None` if both samples are constant and differ.
    pub cohens_d: Option<f64>,
    /// Cliff's delta.
    pub cliffs_delta: f64,
    /// Band of Cohen's d. Large without d.
    pub effect: EffectBand,
    /// p-value of the chosen test, corrected with Holm's method for all metrics.
    pub p_value: f64,
    /// The verdict for `p_value` and `cohens_d`.
    pub conclusion: Conclusion,
}

/// Compares two models on several metrics. The p-values for the conclusions are corrected for the
/// number of metrics.
///
/// With `one_sided`, the alternative is that the new model is better, in the direction of each
/// metric.
///
/// # Errors
/// Returns an error if a metric has fewer than two prompts, different lengths or a number that is
/// not finite, or if the chosen test is not defined for its values.
pub fn compare_metrics(
    samples: &[PairedSample<'_>],
    test: PairedTest,
    one_sided: bool,
    bootstrap: &Bootstrap,
) -> Result<Vec<Comparison>, MeasureError> {
    let compare = |sample: &PairedSample<'_>| compare(sample, test, one_sided, bootstrap);
    let mut comparisons = samples.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let p_values: Vec<f64> = comparisons.iter().map(|comparison| comparison.p_value).collect();
    for (comparison, p_value) in comparisons.iter_mut().zip(holm(&p_values)?) {
        comparison.p_value = p_value;
        comparison.conclusion = Conclusion::new(p_value, comparison.cohens_d);
    }
    Ok(comparisons)
}

fn compare(
    sample: &PairedSample<'_>,
    test: PairedTest,
    one_sided: bool,
    bootstrap: &Bootstrap,
) -> Result<Comparison, MeasureError> {
    let (new, baseline) = (sample.new, sample.baseline);
    check_lengths("comparison of two models", new.len(), baseline.len())?;
    let alternative = match one_sided {
        true => Alternative::improvement(sample.direction),
        false => Alternative::TwoSided,
    };
    let differences: Vec<f64> = new.iter().zip(baseline).map(|(new, old)| new - old).collect();
    let difference = bootstrap.mean(&differences)?;
    let paired_t = paired_t_test(new, baseline, alternative);
    let wilcoxon = wilcoxon_signed_rank(new, baseline, alternative)?;
    let p_value = match test {
        PairedTest::T => paired_t.clone()?.p_value,
        PairedTest::WilcoxonSignedRank => wilcoxon.p_value,
    };
    let cohens_d = cohens_d(new, baseline).ok();
    let (new_mean, baseline_mean) = (mean(new), mean(baseline));
    let relative = 100.0 * difference.value / baseline_mean.abs();
    Ok(Comparison {
        metric: sample.metric.to_owned(),
        direction: sample.direction,
        prompts: new.len(),
        new_mean,
        baseline_mean,
        difference,
        relative_percent: relative.is_finite().then_some(relative),
        paired_t: paired_t.ok(),
        wilcoxon,
        mann_whitney: mann_whitney_u(new, baseline, alternative)?,
        cohens_d,
        cliffs_delta: cliffs_delta(new, baseline)?,
        effect: cohens_d.map_or(EffectBand::Large, EffectBand::from_cohens_d),
        p_value,
        conclusion: Conclusion::new(p_value, cohens_d),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Bootstrap = Bootstrap {
        draws: 200,
        level: 0.95,
        method: super::super::bootstrap::IntervalMethod::Percentile,
        seed: 0,
    };

    #[test]
    fn conclusions_by_hand() {
        assert_eq!(Conclusion::new(0.049, Some(-0.3)), Conclusion::Significant);
        assert_eq!(Conclusion::new(0.049, Some(0.29)), Conclusion::SignificantSmall);
        assert_eq!(Conclusion::new(0.05, Some(2.0)), Conclusion::NotSignificant);
        assert_eq!(Conclusion::new(0.01, None), Conclusion::Significant);
    }

    /// The same decrease is an improvement of self-BLEU and a loss of Pass@k.
    #[test]
    fn one_sided_tests_know_what_is_better() {
        let new = [0.1, 0.2, 0.15, 0.3, 0.25, 0.1];
        let baseline = [0.4, 0.5, 0.3, 0.6, 0.5, 0.6];
        let sample =
            |metric, direction| PairedSample { metric, direction, new: &new, baseline: &baseline };
        let samples = [
            sample("self_bleu", Direction::LowerIsBetter),
            sample("pass_at_1", Direction::HigherIsBetter),
        ];
        for test in [PairedTest::T, PairedTest::WilcoxonSignedRank] {
            let found = compare_metrics(&samples, test, true, &FEW).unwrap();
            assert_eq!(found[0].conclusion, Conclusion::Significant, "{test:?}");
            assert_eq!(found[1].conclusion, Conclusion::NotSignificant, "{test:?}");
            // Corrected for two metrics.
            let p_value = match test {
                PairedTest::T => found[0].paired_t.unwrap().p_value,
                PairedTest::WilcoxonSignedRank => found[0].wilcoxon.p_value,
            };
            assert_eq!(found[0].p_value, 2.0 * p_value);
            assert!(found[0].difference.high < 0.0 && found[0].relative_percent.unwrap() < -50.0);
        }
    }

    #[test]
    fn constant_differences_need_a_rank_test() {
        let (new, baseline) = ([1.0; 6], [0.0; 6]);
        let direction = Direction::HigherIsBetter;
        let samples =
            [PairedSample { metric: "pass_at_10", direction, new: &new, baseline: &baseline }];
        let error = compare_metrics(&samples, PairedTest::T, true, &FEW).unwrap_err().to_string();
        assert!(error.ends_with("use the Wilcoxon signed-rank test"), "{error}");
        let found = compare_metrics(&samples, PairedTest::WilcoxonSignedRank, true, &FEW).unwrap();
        assert_eq!((found[0].p_value, found[0].cohens_d), (1.0 / 64.0, None));
        assert_eq!((found[0].relative_percent, found[0].effect), (None, EffectBand::Large));
        assert_eq!(found[0].conclusion, Conclusion::Significant);
        // A single number per model cannot be tested.
        let samples = [PairedSample { new: &new[..1], baseline: &baseline[..1], ..samples[0] }];
        assert!(compare_metrics(&samples, PairedTest::WilcoxonSignedRank, true, &FEW).is_err());
    }
}

//! Agreement between two raters.

use grpo_data::statistics::TestResult;
use serde::{Deserialize, Serialize};

use super::correlation::spearman_test;
use crate::error::{MeasureError, check_count, check_lengths};

/// How much a disagreement counts in Cohen's kappa.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KappaWeights {
    /// All disagreements count equally, for labels without an order.
    #[default]
    None,
    /// In proportion to the distance of the labels in their sorted list.
    Linear,
    /// In proportion to the square of that distance.
    Quadratic,
}

/// Returns Cohen's kappa (Cohen 1960, 1968) of the labels from two raters: 1 for equal labels, 0 for
/// agreement by chance.
///
/// # Errors
/// Returns an error if there are no labels, if the lengths differ, or if both raters always give the
/// same single label.
pub fn cohens_kappa<L: Ord>(
    one: &[L],
    other: &[L],
    weights: KappaWeights,
) -> Result<f64, MeasureError> {
    const WHAT: &str = "Cohen's kappa";
    check_lengths(WHAT, one.len(), other.len())?;
    check_count(WHAT, one.len(), 1)?;
    let mut labels: Vec<&L> = one.iter().chain(other).collect();
    labels.sort();
    labels.dedup();
    let index = |label: &L| labels.partition_point(|known| *known < label);
    let weight = |a: usize, b: usize| match weights {
        KappaWeights::None => f64::from(u8::from(a != b)),
        KappaWeights::Linear => a.abs_diff(b) as f64,
        KappaWeights::Quadratic => (a.abs_diff(b) as f64).powi(2),
    };
    let pairs = one.iter().zip(other).map(|(a, b)| (index(a), index(b)));
    let mut counts = vec![[0_usize; 2]; labels.len()];
    let mut observed = 0.0;
    for (a, b) in pairs {
        observed += weight(a, b);
        counts[a][0] += 1;
        counts[b][1] += 1;
    }
    let mut expected = 0.0;
    for (a, [of_one, _]) in counts.iter().enumerate() {
        for (b, [_, of_other]) in counts.iter().enumerate() {
            expected += weight(a, b) * (of_one * of_other) as f64;
        }
    }
    if expected == 0.0 {
        let fix = "report the number of equal labels";
        return Err(MeasureError::Constant { what: WHAT, fix });
    }
    Ok(1.0 - observed * one.len() as f64 / expected)
}

/// Band of the correlation between two raters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Spearman's correlation is above 0.7.
    High,
    /// Above 0.5.
    Moderate,
    /// At most 0.5.
    Low,
}

/// Returns Spearman's correlation of the scores from two raters and its band.
///
/// # Errors
/// Returns an error under the conditions of [`spearman_test`].
pub fn rater_agreement(
    one: &[f64],
    other: &[f64],
) -> Result<(TestResult, Agreement), MeasureError> {
    let found = spearman_test(one, other)?;
    let band = match found.statistic {
        r if r > 0.7 => Agreement::High,
        r if r > 0.5 => Agreement::Moderate,
        _ => Agreement::Low,
    };
    Ok((found, band))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 + 15 of 50 labels agree (0.7). Yes has the shares 0.5 and 0.6, so chance agreement is
    /// 0.5 · 0.6 + 0.5 · 0.4 = 0.5 and kappa is 0.2 / 0.5.
    #[test]
    fn kappa_by_hand() {
        let labels = |counts: [usize; 4], of: [bool; 4]| -> Vec<bool> {
            counts.iter().zip(of).flat_map(|(count, label)| vec![label; *count]).collect()
        };
        let one = labels([20, 5, 10, 15], [true, true, false, false]);
        let other = labels([20, 5, 10, 15], [true, false, true, false]);
        let kappa = cohens_kappa(&one, &other, KappaWeights::None).unwrap();
        assert!((kappa - 0.4).abs() < 1e-12, "{kappa}");
        assert_eq!(cohens_kappa(&one, &one, KappaWeights::Quadratic), Ok(1.0));
        assert!(cohens_kappa(&[1, 1], &[1, 1], KappaWeights::None).is_err());
        assert!(cohens_kappa(&[1, 1], &[1], KappaWeights::None).is_err());
    }

    #[test]
    fn bands_of_raters() {
        let one = [1.0, 2.0, 3.0, 4.0, 5.0];
        let band = |other: [f64; 5]| rater_agreement(&one, &other).unwrap().1;
        assert_eq!(band([2.0, 1.0, 4.0, 3.0, 5.0]), Agreement::High);
        assert_eq!(band([3.0, 1.0, 2.0, 5.0, 4.0]), Agreement::Moderate);
        assert_eq!(band([5.0, 4.0, 3.0, 2.0, 1.0]), Agreement::Low);
    }
}

//! Calibration of predicted probabilities, for example those of a judge.

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_lengths, check_shares};

/// Predictions in an interval of probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Lower end, exclusive except for 0.
    pub from: f64,
    /// Upper end, inclusive.
    pub to: f64,
    /// Number of predictions.
    pub count: usize,
    /// Mean predicted probability.
    pub predicted: f64,
    /// Fraction of positive outcomes.
    pub observed: f64,
}

/// Returns the calibration curve, i.e. the bins of equal width that contain predictions.
///
/// # Errors
/// Returns an error if there are no predictions or bins, if the lengths differ, or if a probability
/// is not between 0 and 1.
pub fn calibration_curve(
    probabilities: &[f64],
    outcomes: &[bool],
    bins: usize,
) -> Result<Vec<CalibrationBin>, MeasureError> {
    check_lengths("probabilities and outcomes", probabilities.len(), outcomes.len())?;
    check_count("probabilities", probabilities.len(), 1)?;
    check_count("bins", bins, 1)?;
    check_shares("probabilities", probabilities)?;
    // Boundaries as in NumPy's `linspace`, so that predictions on a boundary are in the same bin.
    let width = 1.0 / bins as f64;
    let boundary = |index: usize| if index == bins { 1.0 } else { index as f64 * width };
    let mut sums = vec![(0_usize, 0.0, 0_usize); bins];
    for (probability, outcome) in probabilities.iter().zip(outcomes) {
        let guess = ((probability / width) as usize).min(bins - 1);
        let first = guess.saturating_sub(1);
        let bin = (first..bins - 1).find(|bin| *probability <= boundary(bin + 1));
        let (count, sum, positive) = &mut sums[bin.unwrap_or(bins - 1)];
        *count += 1;
        *sum += probability;
        *positive += usize::from(*outcome);
    }
    let found = sums.iter().enumerate().filter(|(_, (count, ..))| *count > 0);
    let bin = |(index, (count, sum, positive)): (usize, &(usize, f64, usize))| CalibrationBin {
        from: boundary(index),
        to: boundary(index + 1),
        count: *count,
        predicted: sum / *count as f64,
        observed: *positive as f64 / *count as f64,
    };
    Ok(found.map(bin).collect())
}

/// Returns the expected calibration error (Naeini et al. 2015; Guo et al. 2017), the mean of
/// |observed − predicted| over all predictions.
///
/// # Errors
/// Returns an error under the conditions of [`calibration_curve`].
pub fn expected_calibration_error(
    probabilities: &[f64],
    outcomes: &[bool],
    bins: usize,
) -> Result<f64, MeasureError> {
    let curve = calibration_curve(probabilities, outcomes, bins)?;
    let error = |bin: &CalibrationBin| bin.count as f64 * (bin.observed - bin.predicted).abs();
    Ok(curve.iter().map(error).sum::<f64>() / probabilities.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_by_hand() {
        let (probabilities, outcomes) = ([0.1, 0.3, 0.5, 0.9], [false, true, true, true]);
        let curve = calibration_curve(&probabilities, &outcomes, 2).unwrap();
        // 0.5 is the upper end of the first bin.
        assert_eq!((curve[0].count, curve[1].count), (3, 1));
        assert!((curve[0].predicted - 0.3).abs() < 1e-15);
        assert_eq!((curve[0].observed, curve[1].observed), (2.0 / 3.0, 1.0));
        let error = expected_calibration_error(&probabilities, &outcomes, 2).unwrap();
        assert!((error - (3.0 * (2.0 / 3.0 - 0.3) + 0.1) / 4.0).abs() < 1e-15);
        assert_eq!(expected_calibration_error(&[0.0, 1.0], &[false, true], 10), Ok(0.0));
        assert!(calibration_curve(&[1.1], &[true], 10).is_err());
        assert!(calibration_curve(&[f64::NAN], &[true], 10).is_err());
        assert!(calibration_curve(&[], &[], 10).is_err());
        assert!(calibration_curve(&[0.5], &[true], 0).is_err());
        assert!(calibration_curve(&[0.5], &[], 10).is_err());
    }

    proptest! {
        #[test]
        fn every_prediction_is_in_the_bin_that_contains_it(
            probability in 0.0..=1.0_f64, hundredths in 0_u8..=100, bins in 1_usize..30,
        ) {
            for probability in [probability, f64::from(hundredths) / 100.0] {
                let curve = calibration_curve(&[probability], &[true], bins).unwrap();
                prop_assert_eq!(curve.len(), 1);
                prop_assert!(curve[0].from < probability || probability == 0.0);
                prop_assert!(probability <= curve[0].to);
            }
        }
    }
}

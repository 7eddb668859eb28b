//! The Wasserstein distance in one dimension.

use crate::error::{MeasureError, check_count, check_finite};

/// Returns the Wasserstein-1 distance of two samples, which is the area between their empirical
/// distribution functions (Vallender 1974).
///
/// # Errors
/// Returns an error if a sample is empty or a number is not finite.
pub fn wasserstein_distance(x: &[f64], y: &[f64]) -> Result<f64, MeasureError> {
    for (name, sample) in [("x", x), ("y", y)] {
        check_count(name, sample.len(), 1)?;
        check_finite(name, sample)?;
    }
    // Each value is a step of a distribution function, up for `x` and down for `y`.
    let (up, down) = (1.0 / x.len() as f64, 1.0 / y.len() as f64);
    let steps = x.iter().map(|value| (*value, true)).chain(y.iter().map(|value| (*value, false)));
    let mut steps: Vec<(f64, bool)> = steps.collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut area, mut counts) = (0.0, [0_usize; 2]);
    for pair in steps.windows(2) {
        counts[usize::from(pair[0].1)] += 1;
        let height = counts[1] as f64 * up - counts[0] as f64 * down;
        area += height.abs() * (pair[1].0 - pair[0].0);
    }
    Ok(area)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first case is the example in the documentation of SciPy.
    #[test]
    fn distance_by_hand() {
        // 0 → 5, 1 → 6, 3 → 8, each with a third of the mass.
        assert!(
            (wasserstein_distance(&[0.0, 1.0, 3.0], &[5.0, 6.0, 8.0]).unwrap() - 5.0).abs() < 1e-12
        );
        // Half of the mass moves by 1.
        assert_eq!(wasserstein_distance(&[0.0], &[0.0, 1.0]), Ok(0.5));
        assert!(wasserstein_distance(&[], &[1.0]).is_err());
        assert!(wasserstein_distance(&[f64::NAN], &[1.0]).is_err());
    }

    proptest! {
        /// For samples of equal size, it is the mean distance of the sorted values.
        #[test]
        fn equal_sizes_pair_sorted_values(
            pairs in prop::collection::vec((-99_i32..99, -99_i32..99), 1..20),
        ) {
            let mut x: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.0)).collect();
            let mut y: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.1)).collect();
            let found = wasserstein_distance(&x, &y).unwrap();
            x.sort_by(f64::total_cmp);
            y.sort_by(f64::total_cmp);
            let sum: f64 = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).sum();
            prop_assert!((found - sum / x.len() as f64).abs() < 1e-9);
        }
    }
}

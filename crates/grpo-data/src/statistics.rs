//! Means, spreads, percentiles and correlations.

/// Pearson's correlation; `None` for fewer than two pairs, or where either side is constant.
///
/// # Panics
/// If the numbers are not in pairs.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "numbers in pairs");
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x - mean_x, y - mean_y);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    let scale = (xx * yy).sqrt();
    // The mean of equal numbers may be off by a rounding, so their squares are not exactly 0.
    let varies = |numbers: &[f64]| numbers.windows(2).any(|pair| pair[0] != pair[1]);
    (varies(x) && varies(y) && scale > 0.0).then(|| (xy / scale).clamp(-1.0, 1.0))
}

/// Spearman's rank correlation: Pearson's of the ranks, where equal numbers share the mean of theirs.
///
/// # Panics
/// If the numbers are not in pairs.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// Rank of each number, from 1.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![0.0; numbers.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        // Ranks first + 1 to first + n.
        let rank = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = rank);
        first += equal.len();
    }
    ranks
}

/// The mean; NaN for no numbers.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The variance of a whole population: the mean square of the differences from the mean.
pub fn population_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / numbers.len() as f64
}

/// The variance that a sample says of its population; NaN for fewer than two numbers.
pub fn sample_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / (numbers.len() as f64 - 1.0)
}

/// The standard error of the mean of a sample; NaN for fewer than two numbers.
pub fn standard_error(numbers: &[f64]) -> f64 {
    (sample_variance(numbers) / numbers.len() as f64).sqrt()
}

/// The sum of the squared differences from the mean.
fn squares(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|number| (number - mean).powi(2)).sum()
}

/// The number that a share of the numbers lie below, interpolated linearly between its neighbours (numpy's default, Hyndman
/// and Fan's type 7).
///
/// # Panics
/// For no numbers, or a share outside `0..=1`.
pub fn percentile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile_of_sorted(&sorted, share)
}

/// [`percentile`] of numbers in ascending order.
///
/// # Panics
/// As [`percentile`].
pub fn percentile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    let fits = !sorted.is_empty() && (0.0..=1.0).contains(&share);
    assert!(fits, "the share {share} of {} numbers", sorted.len());
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: Option<f64>, expected: f64) {
        assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}, expected {expected}");
    }

    /// Of (1,2), (2,1), (3,4), (4,3), (5,5): deviations −2..2 and −1,−2,1,0,2 → Σxy = 8, Σx² = Σy² = 10.
    #[test]
    fn pearson_by_hand() {
        close(pearson(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 1.0, 4.0, 3.0, 5.0]), 0.8);
        close(pearson(&[1.0, 2.0], &[5.0, -3.0]), -1.0);
        assert_eq!(pearson(&[1.0, 2.0], &[0.1, 0.1]), None);
        assert_eq!(pearson(&[1.0], &[2.0]), None);
        // The mean of these is not 0.1 in floating point.
        assert_eq!(pearson(&[0.1; 3], &[1.0, 2.0, 3.0]), None);
    }

    /// Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: deviations −1.5, 0, 0, 1.5 and −1.5, .5, −.5, 1.5 → 4.5 / √(4.5 · 5).
    #[test]
    fn spearman_shares_the_ranks_of_ties() {
        assert_eq!(ranks(&[10.0, 20.0, 20.0, 30.0]), [1.0, 2.5, 2.5, 4.0]);
        let expected = 4.5 / (4.5_f64 * 5.0).sqrt();
        close(spearman(&[10.0, 20.0, 20.0, 30.0], &[0.0, 9.0, 0.5, 9.5]), expected);
        // Along any curve that rises.
        close(spearman(&[1.0, 2.0, 3.0, 4.0], &[1.0, 16.0, 81.0, 256.0]), 1.0);
    }

    /// numpy.percentile([4, 1, 3, 2], [0, 50, 90, 100]) → 1, 2.5, 3.7, 4.
    #[test]
    fn percentiles_are_numpys() {
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            let found = percentile(&[4.0, 1.0, 3.0, 2.0], share);
            assert!((found - expected).abs() < 1e-12, "{share}: {found}");
        }
        assert_eq!(percentile(&[7.0], 0.9), 7.0);
    }

    #[test]
    fn spreads_by_hand() {
        assert_eq!(population_variance(&[1.0, 3.0]), 1.0);
        assert_eq!(sample_variance(&[1.0, 3.0]), 2.0);
        assert_eq!(standard_error(&[1.0, 3.0]), 1.0);
        assert!(standard_error(&[1.0]).is_nan() && mean(&[]).is_nan());
    }

    proptest! {
        #[test]
        fn correlations_are_symmetric_and_do_not_see_scale(
            pairs in proptest::collection::vec((-100_i32..100, -100_i32..100), 3..40),
        ) {
            let x: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.0)).collect();
            let y: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.1)).collect();
            for correlation in [pearson, spearman] {
                let Some(found) = correlation(&x, &y) else { continue };
                prop_assert!((-1.0..=1.0).contains(&found));
                prop_assert!((correlation(&y, &x).unwrap() - found).abs() < 1e-9);
                let scaled: Vec<f64> = x.iter().map(|x| 3.0 - 2.0 * x).collect();
                prop_assert!((correlation(&scaled, &y).unwrap() + found).abs() < 1e-9);
            }
        }
    }
}

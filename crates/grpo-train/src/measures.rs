//! How well numbers follow other numbers.

/// Pearson's correlation; `None` for fewer than two pairs, or where either side is constant.
///
/// # Panics
/// Where the numbers are not in pairs.
pub(crate) fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
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
/// Where the numbers are not in pairs.
pub(crate) fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
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
        equal.iter().for_each(|&place| ranks[place] = rank);
        first += equal.len();
    }
    ranks
}

/// NaN for no numbers.
pub(crate) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Mean square of the differences from the mean.
pub(crate) fn variance(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / numbers.len() as f64
}

/// The number that `part` of the numbers lie below, between two of them on the straight line (numpy's default, Hyndman
/// and Fan's type 7).
///
/// # Panics
/// For no numbers, or a part outside `0..=1`.
pub(crate) fn percentile(numbers: &[f64], part: f64) -> f64 {
    assert!(!numbers.is_empty() && (0.0..=1.0).contains(&part), "part {part} of {}", numbers.len());
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
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
        for (part, expected) in [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            let found = percentile(&[4.0, 1.0, 3.0, 2.0], part);
            assert!((found - expected).abs() < 1e-12, "{part}: {found}");
        }
        assert_eq!(percentile(&[7.0], 0.9), 7.0);
    }

    #[test]
    fn variance_is_that_of_all() {
        assert_eq!(variance(&[1.0, 3.0]), 1.0);
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

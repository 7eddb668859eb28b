//! Means, spreads, percentiles, correlations and two-sample tests.

use serde::{Deserialize, Serialize};

/// Returns Pearson's correlation; `None` for fewer than two pairs or a constant side.
///
/// # Panics
/// Panics if the lengths differ.
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
    // The mean of equal numbers may be rounded, so their squares are not exactly 0.
    let varies = |numbers: &[f64]| numbers.windows(2).any(|pair| pair[0] != pair[1]);
    (varies(x) && varies(y) && scale > 0.0).then(|| (xy / scale).clamp(-1.0, 1.0))
}

/// Returns Spearman's rank correlation, with mean ranks for ties.
///
/// # Panics
/// Panics if the lengths differ.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// Returns the rank of each number, from 1.
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

/// Returns the mean; NaN for no numbers.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Returns the population variance.
pub fn population_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / numbers.len() as f64
}

/// Returns the sample variance; NaN for fewer than two numbers.
pub fn sample_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / (numbers.len() as f64 - 1.0)
}

/// Returns the standard error of the mean; NaN for fewer than two numbers.
pub fn standard_error(numbers: &[f64]) -> f64 {
    (sample_variance(numbers) / numbers.len() as f64).sqrt()
}

/// Returns the sum of the squared differences from the mean.
fn squares(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|number| (number - mean).powi(2)).sum()
}

/// Returns a percentile, interpolated linearly (NumPy's default, Hyndman and Fan's type 7).
///
/// # Panics
/// Panics for no numbers or a share outside of `0..=1`.
pub fn percentile(numbers: &[f64], share: f64) -> f64 {
    percentile_of_sorted(&sorted(numbers), share)
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

/// Returns the numbers in ascending order.
pub(crate) fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Mean, spread and range of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// Median.
    pub median: f64,
    /// Smallest number.
    pub min: f64,
    /// Largest number.
    pub max: f64,
}

impl Spread {
    /// Computes them; all are 0 without values.
    pub fn new(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let sorted = sorted(values);
        Self {
            mean: mean(values),
            std: population_variance(values).sqrt(),
            median: percentile_of_sorted(&sorted, 0.5),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }
}

/// Result of a two-sample test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The statistic.
    pub statistic: f64,
    /// Degrees of freedom of a chi-square test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degrees_of_freedom: Option<usize>,
    /// Probability of a statistic at least as large if both samples have the same distribution.
    pub p_value: f64,
}

/// Pearson's chi-square test of homogeneity without Yates's correction: whether two samples have
/// the same proportions of classes. Classes empty in both are dropped; `None` with fewer than two
/// classes or an empty sample.
pub fn chi_square(one: &[u64], other: &[u64]) -> Option<TestResult> {
    let rows = [one, other].map(|row| row.iter().sum::<u64>() as f64);
    let all = rows[0] + rows[1];
    let classes: Vec<[f64; 2]> = one
        .iter()
        .zip(other)
        .map(|(one, other)| [*one as f64, *other as f64])
        .filter(|class| class[0] + class[1] > 0.0)
        .collect();
    if classes.len() < 2 || rows.contains(&0.0) {
        return None;
    }
    let mut statistic = 0.0;
    for class in &classes {
        for (found, row) in class.iter().zip(rows) {
            let expected = row * (class[0] + class[1]) / all;
            statistic += (found - expected).powi(2) / expected;
        }
    }
    let degrees = classes.len() - 1;
    let p_value = chi_square_tail(statistic, degrees);
    Some(TestResult { statistic, degrees_of_freedom: Some(degrees), p_value })
}

/// P(χ² > x) in closed form: from n to n + 2 degrees of freedom, the term (x/2)^(n/2) e^(−x/2) /
/// Γ(n/2 + 1) is added (Abramowitz and Stegun 26.4.8).
fn chi_square_tail(x: f64, degrees: usize) -> f64 {
    let half = 0.5 * x;
    // Starts at 0 or 1 degrees.
    let (mut degree, mut tail, mut term) = match degrees % 2 {
        0 => (0, 0.0, (-half).exp()),
        _ => {
            (1, libm::erfc(half.sqrt()), 2.0 * (half / std::f64::consts::PI).sqrt() * (-half).exp())
        }
    };
    while degree < degrees {
        tail += term;
        degree += 2;
        term *= half / (0.5 * degree as f64);
    }
    tail
}

/// Two-sample Kolmogorov-Smirnov test: the largest distance of the distribution functions, and its
/// p-value in the limit of large samples (Smirnov 1948), which is too large with many ties. `None`
/// without values.
pub fn kolmogorov_smirnov(one: &[f64], other: &[f64]) -> Option<TestResult> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let (one, other) = (sorted(one), sorted(other));
    let (mut a, mut b, mut statistic) = (0, 0, 0.0_f64);
    while a < one.len() && b < other.len() {
        // Skips ties in both samples.
        let value = one[a].min(other[b]);
        a += one[a..].iter().take_while(|found| **found <= value).count();
        b += other[b..].iter().take_while(|found| **found <= value).count();
        let distance = a as f64 / one.len() as f64 - b as f64 / other.len() as f64;
        statistic = statistic.max(distance.abs());
    }
    let (n, m) = (one.len() as f64, other.len() as f64);
    let p_value = kolmogorov_tail(statistic * (n * m / (n + m)).sqrt());
    Some(TestResult { statistic, degrees_of_freedom: None, p_value })
}

/// P(K > x) of Kolmogorov's distribution: 2 Σ (−1)^(j−1) e^(−2 j² x²), and for small x its other
/// series, 1 − √(2π)/x Σ e^(−(2j−1)² π² / (8 x²)).
fn kolmogorov_tail(x: f64) -> f64 {
    use std::f64::consts::PI;
    if x <= 0.0 {
        return 1.0;
    }
    let terms = 1..=20;
    if x < 1.0 {
        let term = |j: i32| (-f64::from(2 * j - 1).powi(2) * PI * PI / (8.0 * x * x)).exp();
        return 1.0 - (2.0 * PI).sqrt() / x * terms.map(term).sum::<f64>();
    }
    let term = |j: i32| {
        let sign = if j % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(j * j) * x * x).exp()
    };
    terms.map(term).sum::<f64>().clamp(0.0, 1.0)
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
        // Any increasing curve.
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

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12 + 1e-12 * expected, "{found} {expected}");
    }

    /// scipy.stats.chi2.sf.
    #[test]
    fn the_tail_of_chi_square_is_scipys() {
        for (degrees, x, expected) in [
            (1, 0.1, 0.7518296340458492),
            (1, 1.0, 0.31731050786291115),
            (1, 20.0, 7.744216431044088e-06),
            (2, 1.0, 0.6065306597126334),
            (2, 7.815, 0.020090664993125482),
            (3, 0.1, 0.9918374237318764),
            (3, 3.84, 0.27926761711860965),
            (3, 20.0, 0.00016974243555282632),
            (4, 7.815, 0.09859493845376334),
            (5, 7.815, 0.1667303825819486),
            (8, 2.5, 0.9617309457103776),
        ] {
            assert_near(chi_square_tail(x, degrees), expected);
        }
    }

    /// scipy.stats.chi2_contingency without correction.
    #[test]
    fn chi_square_is_scipys() {
        let found = chi_square(&[12, 30, 5, 9], &[20, 18, 7, 14]).unwrap();
        assert_near(found.statistic, 6.346347861178368);
        assert_near(found.p_value, 0.09592316191509817);
        assert_eq!(found.degrees_of_freedom, Some(3));
        // A class that is empty in both does not count.
        let with_empty = chi_square(&[12, 0, 30, 5, 9], &[20, 0, 18, 7, 14]).unwrap();
        assert_eq!(found, with_empty);
        assert_eq!(chi_square(&[3, 0], &[4, 0]), None);
        assert_eq!(chi_square(&[0, 0], &[4, 1]), None);
    }

    /// scipy.special.kolmogorov.
    #[test]
    fn the_tail_of_kolmogorov_is_scipys() {
        for (x, expected) in [
            (0.0, 1.0),
            (0.2, 0.999999999999495),
            (0.5, 0.9639452436648751),
            (0.8, 0.5441424115741981),
            (1.0, 0.26999967167735456),
            (1.36, 0.049485876755377876),
            (2.0, 0.0006709252557796953),
            (3.0, 3.045995948942526e-08),
        ] {
            assert_near(kolmogorov_tail(x), expected);
        }
    }

    /// The statistic of scipy.stats.ks_2samp, with ties.
    #[test]
    fn kolmogorov_smirnov_is_scipys() {
        let one = vec![0.1, 0.4, 0.4, 0.7, 1.0, 1.3];
        let other = vec![0.2, 0.4, 0.5, 0.9, 1.1, 1.2, 1.5, 2.0];
        let found = kolmogorov_smirnov(&one, &other).unwrap();
        assert_near(found.statistic, 1.0 / 3.0);
        assert_near(found.p_value, 0.8407030108704582);
        assert_eq!(kolmogorov_smirnov(&one, &one).unwrap().statistic, 0.0);
        assert_eq!(kolmogorov_smirnov(&one, &[]), None);
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

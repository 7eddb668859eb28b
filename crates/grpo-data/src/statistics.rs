//! Descriptive statistics, correlations and two-sample tests.

use serde::{Deserialize, Serialize};

/// Returns Pearson's correlation coefficient, or `None` if there are fewer than two pairs or one of
/// the variables is constant.
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
    // Rounding errors in the mean can make the squares of a constant variable nonzero.
    let varies = |numbers: &[f64]| numbers.windows(2).any(|pair| pair[0] != pair[1]);
    (varies(x) && varies(y) && scale > 0.0).then(|| (xy / scale).clamp(-1.0, 1.0))
}

/// Returns Spearman's rank correlation coefficient. Ties are assigned the mean of their ranks.
///
/// # Panics
/// Panics if the lengths differ.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// Returns the rank of each number, starting at 1.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![0.0; numbers.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        // The mean of the ranks `first + 1` to `first + n`.
        let rank = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = rank);
        first += equal.len();
    }
    ranks
}

/// A change of at least this many standard errors is clear; a smaller one may be due to chance.
pub const CLEAR: f64 = 3.0;

/// Returns whether chance is an unlikely explanation of a change with this standard error. Without
/// scatter, any change is clear, but 0 ± 0 is not: nothing changed.
pub fn is_clear(change: f64, error: f64) -> bool {
    (change / error).abs() >= CLEAR
}

/// Returns the mean, or NaN if there are no numbers.
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// Returns the population variance.
pub fn population_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / numbers.len() as f64
}

/// Returns the sample variance, or NaN if there are fewer than two numbers.
pub fn sample_variance(numbers: &[f64]) -> f64 {
    squares(numbers) / (numbers.len() as f64 - 1.0)
}

/// Returns the standard error of the mean, or NaN if there are fewer than two numbers.
pub fn standard_error(numbers: &[f64]) -> f64 {
    (sample_variance(numbers) / numbers.len() as f64).sqrt()
}

/// Returns the sum of squared deviations from the mean.
fn squares(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|number| (number - mean).powi(2)).sum()
}

/// Returns a percentile with linear interpolation (NumPy's default, type 7 in Hyndman and Fan).
/// `share` is between 0 and 1.
///
/// # Panics
/// Panics if `numbers` is empty or `share` is not in `0..=1`.
pub fn percentile(numbers: &[f64], share: f64) -> f64 {
    percentile_of_sorted(&sorted(numbers), share)
}

/// Like [`percentile`], but the numbers must be sorted in ascending order.
///
/// # Panics
/// Panics if `sorted` is empty or `share` is not in `0..=1`.
pub fn percentile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    let fits = !sorted.is_empty() && (0.0..=1.0).contains(&share);
    assert!(fits, "the share {share} of {} numbers", sorted.len());
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

/// Returns a copy of the numbers in ascending order.
pub(crate) fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Summary statistics of a list of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Population standard deviation.
    pub std: f64,
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the statistics of `values`. They are all 0 if `values` is empty.
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

/// The result of a two-sample test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// Test statistic.
    pub statistic: f64,
    /// Degrees of freedom, for a chi-square test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degrees_of_freedom: Option<usize>,
    /// Probability of a test statistic at least this large under the null hypothesis that both
    /// samples have the same distribution.
    pub p_value: f64,
}

/// Performs Pearson's chi-square test of homogeneity, without Yates's correction.
///
/// The arguments are the class counts of two samples. Classes that are empty in both samples are
/// ignored. Returns `None` if one sample is empty or if there are fewer than two classes.
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

/// Returns P(χ² > x) in closed form. Going from n to n + 2 degrees of freedom adds the term
/// (x/2)^(n/2) e^(−x/2) / Γ(n/2 + 1) (Abramowitz and Stegun 26.4.8).
fn chi_square_tail(x: f64, degrees: usize) -> f64 {
    let half = 0.5 * x;
    // The recurrence starts at 0 or 1 degrees of freedom.
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

/// Performs the two-sample Kolmogorov-Smirnov test.
///
/// The statistic is the maximum distance between the two empirical distribution functions. The
/// p-value is asymptotic (Smirnov 1948) and conservative if there are many ties. Returns `None` if
/// one of the samples is empty.
pub fn kolmogorov_smirnov(one: &[f64], other: &[f64]) -> Option<TestResult> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let (one, other) = (sorted(one), sorted(other));
    let (mut a, mut b, mut statistic) = (0, 0, 0.0_f64);
    while a < one.len() && b < other.len() {
        // Advance past ties in both samples.
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

/// Returns P(K > x) for the Kolmogorov distribution: 2 Σ (−1)^(j−1) e^(−2 j² x²). For small x, uses
/// the equivalent series 1 − √(2π)/x Σ e^(−(2j−1)² π² / (8 x²)).
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

    /// For (1,2), (2,1), (3,4), (4,3), (5,5), the deviations are −2..2 and −1,−2,1,0,2. Hence Σxy =
    /// 8 and Σx² = Σy² = 10.
    #[test]
    fn pearson_by_hand() {
        close(pearson(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 1.0, 4.0, 3.0, 5.0]), 0.8);
        close(pearson(&[1.0, 2.0], &[5.0, -3.0]), -1.0);
        assert_eq!(pearson(&[1.0, 2.0], &[0.1, 0.1]), None);
        assert_eq!(pearson(&[1.0], &[2.0]), None);
        // Their computed mean is not exactly 0.1.
        assert_eq!(pearson(&[0.1; 3], &[1.0, 2.0, 3.0]), None);
    }

    /// The ranks are 1, 2.5, 2.5, 4 and 1, 3, 2, 4. The deviations are −1.5, 0, 0, 1.5 and −1.5,
    /// .5, −.5, 1.5, so the result is 4.5 / √(4.5 · 5).
    #[test]
    fn spearman_shares_the_ranks_of_ties() {
        assert_eq!(ranks(&[10.0, 20.0, 20.0, 30.0]), [1.0, 2.5, 2.5, 4.0]);
        let expected = 4.5 / (4.5_f64 * 5.0).sqrt();
        close(spearman(&[10.0, 20.0, 20.0, 30.0], &[0.0, 9.0, 0.5, 9.5]), expected);
        // The correlation of any increasing function is 1.
        close(spearman(&[1.0, 2.0, 3.0, 4.0], &[1.0, 16.0, 81.0, 256.0]), 1.0);
    }

    #[test]
    fn a_change_is_clear_from_three_standard_errors_on() {
        for (change, error, is) in [
            (3.0, 1.0, true),
            (-3.0, 1.0, true),
            (2.9, 1.0, false),
            (1e-9, 0.0, true),
            (0.0, 0.0, false),
            (1.0, f64::NAN, false),
        ] {
            assert_eq!(is_clear(change, error), is, "{change} ± {error}");
        }
    }

    /// Expected values from `numpy.percentile([4, 1, 3, 2], [0, 50, 90, 100])`: 1, 2.5, 3.7, 4.
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

    /// Expected values from `scipy.stats.chi2.sf`.
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

    /// Expected values from `scipy.stats.chi2_contingency` with `correction=False`.
    #[test]
    fn chi_square_is_scipys() {
        let found = chi_square(&[12, 30, 5, 9], &[20, 18, 7, 14]).unwrap();
        assert_near(found.statistic, 6.346347861178368);
        assert_near(found.p_value, 0.09592316191509817);
        assert_eq!(found.degrees_of_freedom, Some(3));
        // Classes that are empty in both samples are ignored.
        let with_empty = chi_square(&[12, 0, 30, 5, 9], &[20, 0, 18, 7, 14]).unwrap();
        assert_eq!(found, with_empty);
        assert_eq!(chi_square(&[3, 0], &[4, 0]), None);
        assert_eq!(chi_square(&[0, 0], &[4, 1]), None);
    }

    /// Expected values from `scipy.special.kolmogorov`.
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

    /// Expected value from `scipy.stats.ks_2samp`. The samples contain ties.
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

//! Statistics of the parts of a split, and tests of whether two of them could be of one distribution.

use serde::{Deserialize, Serialize};

/// The value below which `percent` of all lie, interpolated linearly between the two nearest (numpy's `linear`). `sorted` is not empty.
pub(super) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let position = percent / 100.0 * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

pub(super) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Mean, spread and range of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// The standard deviation of a population: divided by their count.
    pub std: f64,
    /// The one in the middle, or the mean of the two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Computes them; all are 0 without values.
    pub fn new(values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let sorted = sorted(values);
        Self {
            mean,
            std: variance.sqrt(),
            median: percentile(&sorted, 50.0),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }
}

/// What a test of two samples found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The statistic.
    pub statistic: f64,
    /// Of a chi-square test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degrees_of_freedom: Option<usize>,
    /// The probability of a statistic as large as this where both samples are of one distribution.
    pub p_value: f64,
}

/// Pearson's chi-square test of homogeneity, without Yates's correction: whether the counts of two samples in
/// classes have the same proportions. Classes that both lack are left out; `None` with fewer than two, or an empty sample.
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

/// P(χ² > x) with `degrees` of freedom, in closed form: from n to n + 2 degrees comes the term
/// (x/2)^(n/2) e^(−x/2) / Γ(n/2 + 1) (Abramowitz and Stegun 26.4.8).
fn chi_square_tail(x: f64, degrees: usize) -> f64 {
    let half = 0.5 * x;
    // From the tail of 0 or of 1 degree on.
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

/// Kolmogorov and Smirnov's test of two samples: the largest distance of their distribution functions, and its p-value in
/// the limit of large samples (Smirnov 1948), which is too large where many values are equal. `None` without values.
pub fn kolmogorov_smirnov(one: Vec<f64>, other: Vec<f64>) -> Option<TestResult> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let (one, other) = (sorted(one), sorted(other));
    let (mut a, mut b, mut statistic) = (0, 0, 0.0_f64);
    while a < one.len() && b < other.len() {
        // Behind all values that equal the next one, in both.
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

/// P(K > x) of Kolmogorov's distribution: 2 Σ (−1)^(j−1) e^(−2 j² x²), and for small x the other form of the same series,
/// 1 − √(2π)/x Σ e^(−(2j−1)² π² / (8 x²)).
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
        // A class that nobody is in counts for nothing.
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
        let found = kolmogorov_smirnov(one.clone(), other).unwrap();
        assert_near(found.statistic, 1.0 / 3.0);
        assert_near(found.p_value, 0.8407030108704582);
        assert_eq!(kolmogorov_smirnov(one.clone(), one.clone()).unwrap().statistic, 0.0);
        assert_eq!(kolmogorov_smirnov(one, Vec::new()), None);
    }
}

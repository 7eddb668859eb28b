//! Distances between two distributions of numbers: Wasserstein distance and Kullback–Leibler
//! divergences.

use rayon::prelude::*;

use super::error::{MeasureError, at_least, finite};

const BASELINE: &str = "baseline values";
const SAMPLED: &str = "sampled values";

/// Number of points at which densities are compared.
const GRID: usize = 1_000;

/// Number of bins of a histogram.
const BINS: usize = 10;

/// Added to densities, so that the divergence is finite.
const FLOOR: f64 = 1e-10;

/// Returns the first Wasserstein distance of two samples, i.e. the area between their cumulative
/// distribution functions, like `scipy.stats.wasserstein_distance`.
///
/// # Errors
/// Returns an error if a sample is empty or contains a value that is not finite.
pub fn wasserstein_distance(baseline: &[f64], sampled: &[f64]) -> Result<f64, MeasureError> {
    let (baseline, sampled) = (sorted(BASELINE, 1, baseline)?, sorted(SAMPLED, 1, sampled)?);
    let mut all: Vec<f64> = baseline.iter().chain(&sampled).copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    let (mut i, mut j, mut distance) = (0, 0, 0.0);
    for pair in all.windows(2) {
        i += baseline[i..].iter().take_while(|value| **value <= pair[0]).count();
        j += sampled[j..].iter().take_while(|value| **value <= pair[0]).count();
        let gap = i as f64 / baseline.len() as f64 - j as f64 / sampled.len() as f64;
        distance += gap.abs() * (pair[1] - pair[0]);
    }
    Ok(distance)
}

/// Returns the Kullback–Leibler divergence of the density of a continuous descriptor from that of
/// the baseline, like GuacaMol's `continuous_kldiv`.
///
/// The densities are Gaussian kernel estimates with Scott's bandwidth (`scipy.stats.gaussian_kde`)
/// at 1,000 points between the smallest and the largest value of both sets.
///
/// # Errors
/// Returns an error if a set has fewer than two values or no variance, or if a value is not finite.
pub fn continuous_kl(baseline: &[f64], sampled: &[f64]) -> Result<f64, MeasureError> {
    let (baseline, sampled) = (sorted(BASELINE, 2, baseline)?, sorted(SAMPLED, 2, sampled)?);
    let (p, q) = (Kernels::new(BASELINE, &baseline)?, Kernels::new(SAMPLED, &sampled)?);
    let start = baseline[0].min(sampled[0]);
    let end = baseline[baseline.len() - 1].max(sampled[sampled.len() - 1]);
    let step = (end - start) / (GRID - 1) as f64;
    let point = |i: usize| if i == GRID - 1 { end } else { start + i as f64 * step };
    let densities: Vec<(f64, f64)> = (0..GRID)
        .into_par_iter()
        .map(|i| (p.density(point(i)) + FLOOR, q.density(point(i)) + FLOOR))
        .collect();
    Ok(relative_entropy(&densities))
}

/// Returns the Kullback–Leibler divergence of the histogram of a discrete descriptor from that of
/// the baseline, like GuacaMol's `discrete_kldiv`. The ten bins cover the range of the baseline, and
/// other sampled values are ignored.
///
/// # Errors
/// Returns an error if a set is empty, if a value is not finite, or if all sampled values are
/// outside of the range of the baseline.
pub fn discrete_kl(baseline: &[f64], sampled: &[f64]) -> Result<f64, MeasureError> {
    let (baseline, sampled) = (sorted(BASELINE, 1, baseline)?, sorted(SAMPLED, 1, sampled)?);
    let (mut start, mut end) = (baseline[0], baseline[baseline.len() - 1]);
    if start == end {
        (start, end) = (start - 0.5, end + 0.5);
    }
    let step = (end - start) / BINS as f64;
    let edge = |i: usize| if i == BINS { end } else { start + i as f64 * step };
    let counts = |values: &[f64]| -> Vec<f64> {
        let below = |i: usize| match i {
            BINS => values.partition_point(|value| *value <= end),
            _ => values.partition_point(|value| *value < edge(i)),
        };
        (0..BINS).map(|i| (below(i + 1) - below(i)) as f64).collect()
    };
    let (p, q) = (counts(&baseline), counts(&sampled));
    let (in_p, in_q): (f64, f64) = (p.iter().sum(), q.iter().sum());
    if in_q == 0.0 {
        return Err(MeasureError::OutOfRange { set: SAMPLED });
    }
    let density =
        |i: usize, count: f64, total: f64| count / (edge(i + 1) - edge(i)) / total + FLOOR;
    let densities: Vec<(f64, f64)> =
        (0..BINS).map(|i| (density(i, p[i], in_p), density(i, q[i], in_q))).collect();
    Ok(relative_entropy(&densities))
}

/// Returns Σ p ln(p / q) after normalization of p and q, like `scipy.stats.entropy(p, q)`.
fn relative_entropy(densities: &[(f64, f64)]) -> f64 {
    let of_p: f64 = densities.iter().map(|(p, _)| p).sum();
    let of_q: f64 = densities.iter().map(|(_, q)| q).sum();
    let term = |(p, q): &(f64, f64)| (p / of_p) * ((p / of_p) / (q / of_q)).ln();
    // Rounding errors could result in a tiny negative number for equal densities.
    densities.iter().map(term).sum::<f64>().max(0.0)
}

/// Returns the values in ascending order, so that results do not depend on the order of molecules.
fn sorted(set: &'static str, needed: usize, values: &[f64]) -> Result<Vec<f64>, MeasureError> {
    at_least(set, needed, values.len())?;
    finite(set, values)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

/// A Gaussian kernel density estimate.
struct Kernels<'a> {
    centers: &'a [f64],
    variance: f64,
}

impl<'a> Kernels<'a> {
    fn new(set: &'static str, centers: &'a [f64]) -> Result<Self, MeasureError> {
        let count = centers.len() as f64;
        let mean = centers.iter().sum::<f64>() / count;
        let squares: f64 = centers.iter().map(|value| (value - mean).powi(2)).sum();
        let scott = count.powf(-0.2);
        let variance = squares / (count - 1.0) * scott * scott;
        match centers[0] == centers[centers.len() - 1] || variance == 0.0 {
            true => Err(MeasureError::NoVariance { set }),
            false => Ok(Self { centers, variance }),
        }
    }

    fn density(&self, point: f64) -> f64 {
        let kernel = |center: &f64| (-0.5 * (point - center).powi(2) / self.variance).exp();
        let sum: f64 = self.centers.iter().map(kernel).sum();
        sum / (self.centers.len() as f64 * (2.0 * std::f64::consts::PI * self.variance).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f64; 7] = [7.0, 1.0, 2.0, 2.0, 4.5, 7.25, 7.0];
    const B: [f64; 5] = [3.0, 0.5, 9.0, 2.0, 3.0];

    fn close(found: Result<f64, MeasureError>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-12 * expected.max(1.0), "{found}, not {expected}");
    }

    /// Computed with scipy 1.17.1 and numpy 2.4.6, with the functions of GuacaMol.
    #[test]
    fn values_are_those_of_scipy() {
        close(wasserstein_distance(&A, &B), 1.678_571_428_571_428_6);
        close(wasserstein_distance(&[1.0, 2.0], &[100.0, 101.5]), 99.25);
        close(continuous_kl(&A, &B), 0.088_720_205_412_266_36);
        close(continuous_kl(&B, &A), 0.081_646_245_382_368_4);
        close(continuous_kl(&[1.0, 2.0], &[100.0, 101.5]), 21.955_309_920_823_982);
        close(discrete_kl(&A, &B), 15.819_608_215_394_839);
        close(discrete_kl(&B, &A), 13.220_577_487_907_978);
        // A baseline without range has bins of width 0.1 around its value.
        close(discrete_kl(&[3.0, 3.0], &[3.0, 2.75, 3.5, 9.0]), 1.098_612_288_064_639_6);
    }

    /// The distance is the area between the cumulative distribution functions.
    #[test]
    fn wasserstein_distance_equals_a_fine_sum() {
        let below = |set: &[f64], x: f64| {
            set.iter().filter(|value| **value <= x).count() as f64 / set.len() as f64
        };
        let step = 1.0 / 1024.0;
        let area: f64 = (0..10 * 1024)
            .map(|i| (f64::from(i) + 0.5) * step)
            .map(|x| (below(&A, x) - below(&B, x)).abs() * step)
            .sum();
        close(wasserstein_distance(&A, &B), area);
    }

    #[test]
    fn equal_sets_have_distance_zero() {
        for measure in [wasserstein_distance, continuous_kl, discrete_kl] {
            assert_eq!(measure(&A, &A), Ok(0.0));
        }
    }

    #[test]
    fn values_that_do_not_exist_are_errors() {
        let few = |set, found, needed| MeasureError::TooFew { set, found, needed };
        assert_eq!(wasserstein_distance(&[], &A), Err(few(BASELINE, 0, 1)));
        assert_eq!(discrete_kl(&A, &[]), Err(few(SAMPLED, 0, 1)));
        assert_eq!(continuous_kl(&A, &[1.0]), Err(few(SAMPLED, 1, 2)));
        assert_eq!(
            continuous_kl(&[0.1, 0.1, 0.1], &A),
            Err(MeasureError::NoVariance { set: BASELINE })
        );
        assert_eq!(discrete_kl(&A, &[-3.0]), Err(MeasureError::OutOfRange { set: SAMPLED }));
        let infinite = [1.0, f64::INFINITY];
        let error = MeasureError::NotFinite { set: SAMPLED, index: 1 };
        assert_eq!(wasserstein_distance(&A, &infinite), Err(error));
    }
}

//! Bootstrap intervals.

use grpo_data::statistics::{mean, percentile_of_sorted};
use grpo_data::{CounterRng, Purpose};
use serde::{Deserialize, Serialize};

use super::distribution::{normal_quantile, normal_tail};
use crate::error::{MeasureError, check_count, check_finite, check_results};

/// How the ends of a bootstrap interval are determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Percentiles of the draws.
    #[default]
    Percentile,
    /// Bias-corrected and accelerated percentiles (Efron 1987).
    Bca,
}

/// Settings of a bootstrap. The draws are a function of the seed, so results can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bootstrap {
    /// Number of draws.
    pub draws: usize,
    /// Confidence level, for example 0.95.
    pub level: f64,
    /// How the ends are determined.
    pub method: IntervalMethod,
    /// Seed.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { draws: 10_000, level: 0.95, method: IntervalMethod::Percentile, seed: 0 }
    }
}

/// A value with its bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value for the data.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Confidence level.
    pub level: f64,
    /// How the ends were determined.
    pub method: IntervalMethod,
}

/// Separates the bootstrap from other users of [`Purpose::EVALUATION`], whose last counter word is a
/// step.
const COUNTER: u32 = u32::from_be_bytes(*b"boot");

impl Bootstrap {
    /// Returns the mean of independent values and its interval.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two values or a number is not finite.
    pub fn mean(&self, values: &[f64]) -> Result<Estimate, MeasureError> {
        check_finite("values", values)?;
        let of = |draw: &[usize]| draw.iter().map(|index| values[*index]).sum::<f64>();
        self.statistic(values.len(), |draw| of(draw) / draw.len() as f64)
    }

    /// Returns the mean of all values of all clusters. Whole clusters are drawn, so the values of a
    /// cluster, for example of a prompt, may depend on each other.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two clusters, a cluster is empty, or a number is not
    /// finite.
    pub fn clustered_mean(&self, clusters: &[Vec<f64>]) -> Result<Estimate, MeasureError> {
        for cluster in clusters {
            check_count("cluster", cluster.len(), 1)?;
            check_finite("cluster", cluster)?;
        }
        let sums: Vec<f64> = clusters.iter().map(|cluster| cluster.iter().sum()).collect();
        self.statistic(clusters.len(), |draw| {
            let sum: f64 = draw.iter().map(|index| sums[*index]).sum();
            sum / draw.iter().map(|index| clusters[*index].len()).sum::<usize>() as f64
        })
    }

    /// Returns any statistic of `count` independent items and its interval. `statistic` gets the
    /// indices of the items that were drawn.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two items, if the settings are out of range, if the
    /// statistic is not finite for a draw, or if a BCa interval is undefined.
    pub fn statistic(
        &self,
        count: usize,
        statistic: impl Fn(&[usize]) -> f64,
    ) -> Result<Estimate, MeasureError> {
        check_count("bootstrap", count, 2)?;
        self.check()?;
        let all: Vec<usize> = (0..count).collect();
        let value = statistic(&all);
        check_results(&[value])?;
        let rng = CounterRng::new(self.seed, Purpose::EVALUATION);
        let mut indices = vec![0; count];
        let mut draws = Vec::with_capacity(self.draws);
        for draw in 0..self.draws {
            for (block, indices) in indices.chunks_mut(2).enumerate() {
                let [a, b, c, d] = rng.bits([block as u32, draw as u32, 0, COUNTER]);
                for (index, (low, high)) in indices.iter_mut().zip([(a, b), (c, d)]) {
                    *index = below(low, high, count);
                }
            }
            draws.push(statistic(&indices));
        }
        check_results(&draws)?;
        draws.sort_by(f64::total_cmp);
        let tail = 0.5 * (1.0 - self.level);
        let [low, high] = match self.method {
            IntervalMethod::Percentile => [tail, 1.0 - tail],
            IntervalMethod::Bca => {
                let without = |left_out: usize| {
                    let kept: Vec<usize> = (0..count).filter(|index| *index != left_out).collect();
                    statistic(&kept)
                };
                let jackknife: Vec<f64> = (0..count).map(without).collect();
                check_results(&jackknife)?;
                bca_shares(value, &draws, &jackknife, tail)?
            }
        }
        .map(|share| percentile_of_sorted(&draws, share));
        Ok(Estimate { value, low, high, level: self.level, method: self.method })
    }

    fn check(&self) -> Result<(), MeasureError> {
        let fault = |what: &str, found: String, expected: &'static str| {
            Err(MeasureError::OutOfRange { what: what.to_owned(), found, expected })
        };
        if self.draws == 0 || u32::try_from(self.draws).is_err() {
            return fault("bootstrap draws", self.draws.to_string(), "1 to 4294967295");
        }
        if !(self.level > 0.0 && self.level < 1.0) {
            let expected = "a number between 0 and 1, exclusive";
            return fault("bootstrap level", self.level.to_string(), expected);
        }
        Ok(())
    }
}

/// Maps 64 random bits to `0..count`.
fn below(low: u32, high: u32, count: usize) -> usize {
    let word = u64::from(high) << 32 | u64::from(low);
    ((u128::from(word) * count as u128) >> 64) as usize
}

/// Returns the percentiles of a BCa interval (Efron and Tibshirani 1993, equations 14.10, 14.14 and
/// 14.15). Draws equal to the value count half, as in SciPy. The acceleration is 0 if the statistic
/// doesn't depend on any item.
fn bca_shares(
    value: f64,
    sorted: &[f64],
    jackknife: &[f64],
    tail: f64,
) -> Result<[f64; 2], MeasureError> {
    let below = sorted.partition_point(|draw| *draw < value);
    let at_most = sorted.partition_point(|draw| *draw <= value);
    let share = (below + at_most) as f64 / (2.0 * sorted.len() as f64);
    if share <= 0.0 || share >= 1.0 {
        return Err(MeasureError::OutOfRange {
            what: "share of bootstrap draws below the observed value".to_owned(),
            found: share.to_string(),
            expected: "a number between 0 and 1, exclusive; increase `draws` or use `percentile`",
        });
    }
    let bias = normal_quantile(share);
    let center = mean(jackknife);
    let power = |n: i32| jackknife.iter().map(|value| (center - value).powi(n)).sum::<f64>();
    let squares = power(2);
    let acceleration = if squares > 0.0 { power(3) / (6.0 * squares.powf(1.5)) } else { 0.0 };
    let adjusted = |share: f64| {
        let z = bias + normal_quantile(share);
        normal_tail(-(bias + z / (1.0 - acceleration * z)))
    };
    Ok([adjusted(tail), adjusted(1.0 - tail)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_data::statistics::percentile;
    use proptest::prelude::*;

    fn settings(method: IntervalMethod, draws: usize) -> Bootstrap {
        Bootstrap { draws, method, ..Bootstrap::default() }
    }

    /// The standard deviation of the mean of 400 numbers from 0 to 1 is 0.0144. The percentiles of
    /// 2000 draws have standard errors of about 0.001.
    #[test]
    fn intervals_of_many_values_are_normal() {
        let values: Vec<f64> = (0..400).map(|i| f64::from(i) / 399.0).collect();
        for method in [IntervalMethod::Percentile, IntervalMethod::Bca] {
            let found = settings(method, 2000).mean(&values).unwrap();
            assert_eq!(found.value, mean(&values));
            assert!((found.low - (0.5 - 1.96 * 0.01445)).abs() < 0.004, "{found:?}");
            assert!((found.high - (0.5 + 1.96 * 0.01445)).abs() < 0.004, "{found:?}");
            assert_eq!(found, settings(method, 2000).mean(&values).unwrap());
            let other = Bootstrap { seed: 1, ..settings(method, 2000) };
            assert_ne!(found.low, other.mean(&values).unwrap().low);
        }
    }

    /// Copies of a value within its cluster add no information.
    #[test]
    fn copies_within_a_cluster_do_not_narrow_the_interval() {
        let values: Vec<f64> = (0..30).map(|i| f64::from(i * i % 11)).collect();
        let clusters: Vec<Vec<f64>> = values.iter().map(|value| vec![*value; 5]).collect();
        for method in [IntervalMethod::Percentile, IntervalMethod::Bca] {
            let one = settings(method, 500).mean(&values).unwrap();
            let other = settings(method, 500).clustered_mean(&clusters).unwrap();
            for (one, other) in
                [(one.value, other.value), (one.low, other.low), (one.high, other.high)]
            {
                assert!((one - other).abs() < 1e-12, "{one} {other}");
            }
        }
    }

    #[test]
    fn degenerate_input() {
        for method in [IntervalMethod::Percentile, IntervalMethod::Bca] {
            let found = settings(method, 50).mean(&[0.25; 4]).unwrap();
            assert_eq!((found.value, found.low, found.high), (0.25, 0.25, 0.25));
            assert!(settings(method, 50).mean(&[1.0]).is_err());
            assert!(settings(method, 0).mean(&[1.0, 2.0]).is_err());
            assert!(settings(method, 50).mean(&[1.0, f64::NAN]).is_err());
            assert!(settings(method, 50).clustered_mean(&[vec![1.0], vec![]]).is_err());
        }
        assert!(Bootstrap { level: 1.0, ..Bootstrap::default() }.mean(&[1.0, 2.0]).is_err());
        let error = settings(IntervalMethod::Bca, 1).mean(&[1.0, 2.0, 4.0]).unwrap_err();
        assert!(error.to_string().ends_with("increase `draws` or use `percentile`"), "{error}");
    }

    proptest! {
        #[test]
        fn the_interval_lies_within_the_values(
            values in prop::collection::vec(-100.0..100.0_f64, 2..20),
            seed: u64,
        ) {
            let found = Bootstrap { draws: 100, seed, ..Bootstrap::default() }.mean(&values).unwrap();
            let (low, high) = (percentile(&values, 0.0), percentile(&values, 1.0));
            prop_assert!(low - 1e-9 <= found.low && found.low <= found.high);
            prop_assert!(found.high <= high + 1e-9);
        }
    }
}

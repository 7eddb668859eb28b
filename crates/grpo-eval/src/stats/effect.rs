//! Effect sizes and their conventional bands.

use grpo_data::statistics::{mean, sample_variance};
use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite};

/// Returns Cohen's d (Cohen 1988), the difference of the means in units of the pooled sample
/// standard deviation. It is positive if `x` has the larger mean, and 0 for equal constant samples.
///
/// # Errors
/// Returns an error if a sample has fewer than two values, if a number is not finite, or if both
/// samples are constant and differ.
pub fn cohens_d(x: &[f64], y: &[f64]) -> Result<f64, MeasureError> {
    for (name, sample) in [("x", x), ("y", y)] {
        check_count(name, sample.len(), 2)?;
        check_finite(name, sample)?;
    }
    let is_constant = |sample: &[f64]| sample.iter().all(|value| *value == sample[0]);
    if is_constant(x) && is_constant(y) {
        return match x[0] == y[0] {
            true => Ok(0.0),
            false => Err(MeasureError::Constant { what: "Cohen's d", fix: "use Cliff's delta" }),
        };
    }
    let (n, m) = (x.len() as f64, y.len() as f64);
    let squares = (n - 1.0) * sample_variance(x) + (m - 1.0) * sample_variance(y);
    Ok((mean(x) - mean(y)) / (squares / (n + m - 2.0)).sqrt())
}

/// Returns Cliff's delta (Cliff 1993), the probability that a value of `x` is larger than a value of
/// `y`, minus the probability that it is smaller.
///
/// # Errors
/// Returns an error if a sample is empty or a number is not finite.
pub fn cliffs_delta(x: &[f64], y: &[f64]) -> Result<f64, MeasureError> {
    for (name, sample) in [("x", x), ("y", y)] {
        check_count(name, sample.len(), 1)?;
        check_finite(name, sample)?;
    }
    let mut sorted = y.to_vec();
    sorted.sort_by(f64::total_cmp);
    let difference = |value: &f64| {
        let below = sorted.partition_point(|other| other < value);
        let above = sorted.len() - sorted.partition_point(|other| other <= value);
        below as f64 - above as f64
    };
    Ok(x.iter().map(difference).sum::<f64>() / (x.len() as f64 * y.len() as f64))
}

/// Conventional band of an effect size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectBand {
    /// Too small to matter.
    Negligible,
    /// Small.
    Small,
    /// Medium.
    Medium,
    /// Large.
    Large,
}

impl EffectBand {
    /// Returns the band of Cohen's d, with the boundaries 0.2, 0.5 and 0.8 (Cohen 1988).
    pub fn from_cohens_d(d: f64) -> Self {
        Self::new(d, [0.2, 0.5, 0.8])
    }

    /// Returns the band of Cliff's delta, with the boundaries 0.147, 0.33 and 0.474 (Romano et al.
    /// 2006).
    pub fn from_cliffs_delta(delta: f64) -> Self {
        Self::new(delta, [0.147, 0.33, 0.474])
    }

    fn new(effect: f64, boundaries: [f64; 3]) -> Self {
        match boundaries.iter().filter(|boundary| effect.abs() >= **boundary).count() {
            0 => Self::Negligible,
            1 => Self::Small,
            2 => Self::Medium,
            _ => Self::Large,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Both variances are 1, so d is the difference of the means.
    #[test]
    fn effects_by_hand() {
        assert_eq!(cohens_d(&[2.0, 3.0, 4.0], &[1.0, 2.0, 3.0]), Ok(1.0));
        assert_eq!(cohens_d(&[1.0, 1.0], &[1.0, 1.0]), Ok(0.0));
        assert!(cohens_d(&[1.0, 1.0], &[2.0, 2.0]).is_err());
        assert!(cohens_d(&[1.0], &[2.0, 3.0]).is_err());
        // Larger: 2>1, 3>1, 3>2, 4>1, 4>2, 4>3; smaller: 2<3; equal: 2=2, 3=3.
        assert_eq!(cliffs_delta(&[2.0, 3.0, 4.0], &[1.0, 2.0, 3.0]), Ok(5.0 / 9.0));
        assert_eq!(cliffs_delta(&[1.0], &[2.0]), Ok(-1.0));
        assert!(cliffs_delta(&[], &[2.0]).is_err());
        assert!(cliffs_delta(&[f64::NAN], &[2.0]).is_err());
    }

    #[test]
    fn bands_begin_at_their_boundaries() {
        use EffectBand::{Large, Medium, Negligible, Small};
        let of_d = [0.19, 0.2, -0.5, 0.79, -0.8].map(EffectBand::from_cohens_d);
        assert_eq!(of_d, [Negligible, Small, Medium, Medium, Large]);
        let of_delta = [0.146, -0.147, 0.33, 0.473, 0.474].map(EffectBand::from_cliffs_delta);
        assert_eq!(of_delta, [Negligible, Small, Medium, Medium, Large]);
    }

    proptest! {
        #[test]
        fn delta_is_that_of_all_pairs(
            x in prop::collection::vec(-9_i32..9, 1..9),
            y in prop::collection::vec(-9_i32..9, 1..9),
        ) {
            let signs = x.iter().flat_map(|x| y.iter().map(move |y| (x - y).signum()));
            let expected = f64::from(signs.sum::<i32>()) / (x.len() * y.len()) as f64;
            let [x, y] = [x, y].map(|list| list.into_iter().map(f64::from).collect::<Vec<_>>());
            prop_assert!((cliffs_delta(&x, &y).unwrap() - expected).abs() < 1e-12);
            prop_assert!((cliffs_delta(&y, &x).unwrap() + expected).abs() < 1e-12);
        }
    }
}

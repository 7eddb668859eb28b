//! The training target of a judge.

/// Returns the training target for a text in which the fraction `ratio` was replaced:
/// `r⁴ − 2r³ + 2r`.
///
/// The function increases from 0 to 1, with a slope of 2 at 0 and a slope of 0 at 1. When a judge
/// is used as a reward, telling 0 from 0.1 matters more than telling 0.8 from 0.9.
///
/// # Panics
/// Panics if `ratio` is not in `0..=1`.
pub fn corruption_target(ratio: f64) -> f64 {
    assert!((0.0..=1.0).contains(&ratio), "a fraction of {ratio} of a text cannot be replaced");
    ratio.powi(4) - 2.0 * ratio.powi(3) + 2.0 * ratio
}

pub(super) fn mean_squared_error(outputs: &[f64], targets: &[f64]) -> f64 {
    let squares = outputs.iter().zip(targets).map(|(output, target)| (output - target).powi(2));
    squares.sum::<f64>() / outputs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computed by hand, e.g. 0.1⁴ − 2·0.1³ + 2·0.1 = 0.0001 − 0.002 + 0.2.
    #[test]
    fn known_values() {
        for (ratio, target) in [
            (0.0, 0.0),
            (0.1, 0.1981),
            (0.25, 0.472_656_25),
            (0.5, 0.8125),
            (0.75, 0.972_656_25),
            (1.0, 1.0),
        ] {
            assert!((corruption_target(ratio) - target).abs() < 1e-15, "{ratio}");
        }
    }

    proptest! {
        #[test]
        fn it_stays_in_range_and_rises(a in 0.0..=1.0, b in 0.0..=1.0) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!((0.0..=1.0).contains(&corruption_target(a)));
            // Rounding error of a sum of three terms of at most 2.
            prop_assert!(corruption_target(low) <= corruption_target(high) + 1e-15);
        }
    }

    #[test]
    #[should_panic(expected = "a fraction of 1.5")]
    fn more_than_all_cannot_be_replaced() {
        corruption_target(1.5);
    }
}

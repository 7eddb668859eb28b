//! Fractions of a count.

/// Returns the fraction `ratio` of `len`, rounded down.
///
/// Rounding errors of up to 1e-9 are ignored. For example, 0.29 · 100 is 28.999999999999996 in
/// floating point, but the result has to be 29.
pub(crate) fn part_of(len: usize, ratio: f64) -> usize {
    ((len as f64 * ratio + 1e-9) as usize).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounding_loses_nothing() {
        for (len, ratio, expected) in [
            (100, 0.29, 29),
            (90, 0.7, 63),
            (100, 0.0, 0),
            (100, 1.0, 100),
            (3, 0.5, 1),
            (0, 0.5, 0),
            (10, 0.999_999, 9),
        ] {
            assert_eq!(part_of(len, ratio), expected, "{ratio} of {len}");
        }
    }

    /// Checks all multiples of 0.01 for lengths that are multiples of 100.
    #[test]
    fn hundredths_are_exact() {
        for hundredths in 0..=100 {
            for hundreds in 1..=20 {
                let found = part_of(100 * hundreds, hundredths as f64 / 100.0);
                assert_eq!(found, hundredths * hundreds);
            }
        }
    }
}

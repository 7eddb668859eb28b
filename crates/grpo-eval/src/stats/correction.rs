//! Corrections of p-values for several tests.

use crate::error::{MeasureError, check_shares};

/// Returns p-values that control the family-wise error rate (Holm 1979).
///
/// # Errors
/// Returns an error if a p-value is not between 0 and 1.
pub fn holm(p_values: &[f64]) -> Result<Vec<f64>, MeasureError> {
    check_shares("p-values", p_values)?;
    let order = ascending(p_values);
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[index]).min(1.0);
        adjusted[index] = largest;
    }
    Ok(adjusted)
}

/// Returns p-values that control the false discovery rate of independent or positively dependent
/// tests (Benjamini and Hochberg 1995).
///
/// # Errors
/// Returns an error if a p-value is not between 0 and 1.
pub fn benjamini_hochberg(p_values: &[f64]) -> Result<Vec<f64>, MeasureError> {
    check_shares("p-values", p_values)?;
    let order = ascending(p_values);
    let mut adjusted = vec![0.0; p_values.len()];
    let mut smallest = 1.0_f64;
    for (rank, &index) in order.iter().enumerate().rev() {
        smallest = smallest.min(p_values[index] * p_values.len() as f64 / (rank + 1) as f64);
        adjusted[index] = smallest;
    }
    Ok(adjusted)
}

fn ascending(p_values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn close(found: Result<Vec<f64>, MeasureError>, expected: &[f64]) {
        let found = found.unwrap();
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15);
        assert!(near && found.len() == expected.len(), "{found:?}, not {expected:?}");
    }

    #[test]
    fn corrections_by_hand() {
        // Sorted: 0.01 · 4, 0.02 · 3, 0.03 · 2, 0.5 · 1; the third one is not below the second one.
        close(holm(&[0.02, 0.5, 0.01, 0.03]), &[0.06, 0.5, 0.04, 0.06]);
        // 0.01 · 4/1, 0.02 · 4/2, 0.03 · 4/3, 0.5 · 4/4.
        close(benjamini_hochberg(&[0.02, 0.5, 0.01, 0.03]), &[0.04, 0.5, 0.04, 0.04]);
        close(holm(&[]), &[]);
        assert!(holm(&[1.5]).is_err() && benjamini_hochberg(&[f64::NAN]).is_err());
    }

    proptest! {
        #[test]
        fn corrected_values_are_larger_and_keep_the_order(
            p_values in prop::collection::vec(0.0..=1.0_f64, 1..20),
        ) {
            let (strict, loose) = (holm(&p_values).unwrap(), benjamini_hochberg(&p_values).unwrap());
            for i in 0..p_values.len() {
                prop_assert!(strict[i] <= 1.0 && p_values[i] <= loose[i] + 1e-15);
                prop_assert!(loose[i] <= strict[i] + 1e-15);
                for j in 0..p_values.len() {
                    if p_values[i] < p_values[j] {
                        prop_assert!(strict[i] <= strict[j] && loose[i] <= loose[j]);
                    }
                }
            }
        }
    }
}

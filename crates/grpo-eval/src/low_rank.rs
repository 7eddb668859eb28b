//! Size and rank of the updates of a LoRA adapter.

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite, check_lengths};

/// An update `scale · B · A` of a weight matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRankUpdate {
    /// A by rows, `[rank, in]`.
    pub a: Vec<f64>,
    /// B by rows, `[out, rank]`.
    pub b: Vec<f64>,
    /// The rank r.
    pub rank: usize,
    /// α / r, or α / √r for rank-stabilised LoRA.
    pub scale: f64,
}

/// What an update does to its layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateSize {
    /// Frobenius norm of A.
    pub norm_a: f64,
    /// Frobenius norm of B.
    pub norm_b: f64,
    /// Frobenius norm of the update, including the scale.
    pub norm: f64,
    /// Effective rank (Roy and Vetterli 2007): exp of the entropy of σ / Σσ. 0 for an update that is
    /// zero.
    pub effective_rank: f64,
    /// Singular values of the update in descending order, `[rank]`.
    pub singular_values: Vec<f64>,
}

impl LowRankUpdate {
    /// Computes the size of the update.
    ///
    /// The singular values are exact to rounding: the product `B · A` is never formed, and no Gram
    /// matrix, which would square the condition number.
    ///
    /// # Errors
    /// Returns an error if the rank is 0, if the matrices do not have `rank` rows or columns, or if a
    /// value is not finite.
    pub fn size(&self) -> Result<UpdateSize, MeasureError> {
        let Self { a, b, rank, scale } = self;
        check_count("rank", *rank, 1)?;
        for (what, values) in [("A", a), ("B", b)] {
            check_finite(what, values)?;
            // Whole rows of A, and whole rows of B.
            check_lengths(what, values.len(), values.len() / rank * rank)?;
        }
        check_finite("scale", &[*scale])?;
        let input = a.len() / rank;
        let mut rows: Vec<Vec<f64>> = a.chunks(input.max(1)).map(<[f64]>::to_vec).collect();
        rows.resize(*rank, Vec::new());
        let mut columns: Vec<Vec<f64>> = (0..*rank)
            .map(|column| b.iter().skip(column).step_by(*rank).copied().collect())
            .collect();
        // B · A = (B · J) · (Jᵀ · A). If the rows of Jᵀ · A are orthogonal, the singular values are
        // those of the columns of B · J, scaled by the lengths of these rows.
        orthogonalize(&mut rows, &mut columns);
        for (column, row) in columns.iter_mut().zip(&rows) {
            let length = dot(row, row).sqrt() * scale;
            column.iter_mut().for_each(|value| *value *= length);
        }
        let mut nothing = vec![Vec::new(); *rank];
        orthogonalize(&mut columns, &mut nothing);
        let mut singular_values: Vec<f64> =
            columns.iter().map(|column| dot(column, column).sqrt()).collect();
        singular_values.sort_by(|x, y| y.total_cmp(x));
        Ok(UpdateSize {
            norm_a: dot(a, a).sqrt(),
            norm_b: dot(b, b).sqrt(),
            norm: dot(&singular_values, &singular_values).sqrt(),
            effective_rank: effective_rank(&singular_values),
            singular_values,
        })
    }
}

/// Returns exp of the entropy of the values divided by their sum, or 0 if all are zero.
fn effective_rank(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    if sum == 0.0 {
        return 0.0;
    }
    let shares = values.iter().map(|value| value / sum).filter(|share| *share > 0.0);
    shares.map(|share| -share * share.ln()).sum::<f64>().exp()
}

/// Maximum number of sweeps. Fewer than 20 are needed for double precision.
const MAX_SWEEPS: usize = 60;

/// Makes the vectors orthogonal by one-sided Jacobi rotations (Hestenes 1958), which are applied to
/// `partners` as well.
fn orthogonalize(vectors: &mut [Vec<f64>], partners: &mut [Vec<f64>]) {
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for i in 1..vectors.len() {
            for j in 0..i {
                let (xx, yy) = (dot(&vectors[j], &vectors[j]), dot(&vectors[i], &vectors[i]));
                let xy = dot(&vectors[j], &vectors[i]);
                if xy.abs() <= 1e-15 * (xx * yy).sqrt() {
                    continue;
                }
                rotated = true;
                let zeta = (yy - xx) / (2.0 * xy);
                let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                for list in [&mut *vectors, &mut *partners] {
                    let (before, rest) = list.split_at_mut(i);
                    rotate(&mut before[j], &mut rest[0], cosine, cosine * tangent);
                }
            }
        }
        if !rotated {
            break;
        }
    }
}

fn rotate(x: &mut [f64], y: &mut [f64], cosine: f64, sine: f64) {
    for (a, b) in x.iter_mut().zip(y) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-13 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn a_diagonal_update_by_hand() {
        // B · A = [[3, 0, 0], [0, 1, 0]], and the scale is 2.
        let a = vec![3.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let update = LowRankUpdate { a, b: vec![1.0, 0.0, 0.0, 1.0], rank: 2, scale: 2.0 };
        let size = update.size().unwrap();
        assert_eq!(size.singular_values, [6.0, 2.0]);
        close(size.norm_a, 10.0_f64.sqrt());
        close(size.norm_b, 2.0_f64.sqrt());
        close(size.norm, 40.0_f64.sqrt());
        // exp of the entropy of (¾, ¼).
        let entropy = -(0.75 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln());
        close(size.effective_rank, entropy.exp());
    }

    #[test]
    fn dependent_rows_have_a_smaller_rank() {
        // The second row of A is twice the first one: the update is [[1, 2], [2, 4]] · 3 / 2.
        let a = vec![1.0, 2.0, 2.0, 4.0];
        let update = LowRankUpdate { a, b: vec![0.5, 0.5, 1.0, 1.0], rank: 2, scale: 1.0 };
        let size = update.size().unwrap();
        close(size.singular_values[0], 7.5);
        assert!(size.singular_values[1] < 1e-15, "{:?}", size.singular_values);
        close(size.effective_rank, 1.0);
    }

    #[test]
    fn an_untrained_adapter_does_nothing() {
        let update = LowRankUpdate { a: vec![1.0, 2.0], b: vec![0.0; 3], rank: 1, scale: 1.0 };
        let size = update.size().unwrap();
        assert_eq!((size.norm, size.effective_rank), (0.0, 0.0));
        assert!(LowRankUpdate { a: vec![f64::NAN; 2], ..update.clone() }.size().is_err());
        assert!(LowRankUpdate { rank: 2, ..update.clone() }.size().is_err());
        assert!(LowRankUpdate { rank: 0, ..update }.size().is_err());
    }
}

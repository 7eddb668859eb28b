//! The Fréchet distance between activations of a network, such as ChemNet (FCD).

use rayon::prelude::*;

use super::error::{MeasureError, at_least, finite};

const FIRST: &str = "first activations";
const SECOND: &str = "second activations";

/// Returns the Fréchet distance between two sets of activations, assuming normal distributions:
/// ‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2 (Σ₁Σ₂)^½), where Σ is the covariance with n − 1 in the denominator
/// (Preuer et al. 2018). With activations of ChemNet, this is the FCD.
///
/// # Shapes
/// `first` and `second`: `[molecules, columns]`, row by row.
///
/// # Errors
/// Returns an error if a set has fewer than two rows or an incomplete row, or if a value is not
/// finite.
pub fn frechet_distance(
    first: &[f64],
    second: &[f64],
    columns: usize,
) -> Result<f64, MeasureError> {
    let (a, b) = (Centered::new(FIRST, first, columns)?, Centered::new(SECOND, second, columns)?);
    let shift: f64 = a.means.iter().zip(&b.means).map(|(a, b)| (a - b).powi(2)).sum();
    let (trace_a, trace_b) = (a.trace(), b.trace());
    let degrees = ((a.rows - 1) as f64 * (b.rows - 1) as f64).sqrt();
    let (r_a, r_b) = (triangular(a), triangular(b));
    // With Σ = RᵀR, tr (Σ₁Σ₂)^½ is the sum of the singular values of R₁R₂ᵀ. The covariance matrices
    // and their ill-conditioned product are never formed.
    let product = r_b.par_iter().map(|row| r_a.iter().map(|other| dot(other, row)).collect());
    let overlap = nuclear_norm(product.collect()) / degrees;
    Ok((shift + trace_a + trace_b - 2.0 * overlap).max(0.0))
}

/// Returns GuacaMol's score of a Fréchet ChemNet distance: exp(−0.2 FCD).
pub fn frechet_score(distance: f64) -> f64 {
    (-0.2 * distance).exp()
}

/// Activations minus their means, by column.
struct Centered {
    rows: usize,
    means: Vec<f64>,
    columns: Vec<Vec<f64>>,
}

impl Centered {
    fn new(set: &'static str, values: &[f64], width: usize) -> Result<Self, MeasureError> {
        let shape = |unit, found, expected| MeasureError::Shape { set, unit, found, expected };
        if width == 0 {
            return Err(shape("columns", 0, 1));
        }
        let rows = values.len() / width;
        if values.len() != rows * width {
            return Err(shape("values", values.len(), (rows + 1) * width));
        }
        at_least(set, 2, rows)?;
        finite(set, values)?;
        let column = |column: usize| values.iter().skip(column).step_by(width);
        let means: Vec<f64> = (0..width).map(|j| column(j).sum::<f64>() / rows as f64).collect();
        let columns =
            (0..width).map(|j| column(j).map(|value| value - means[j]).collect()).collect();
        Ok(Self { rows, means, columns })
    }

    /// Returns the trace of the covariance matrix.
    fn trace(&self) -> f64 {
        let squares: f64 = self.columns.iter().map(|column| dot(column, column)).sum();
        squares / (self.rows - 1) as f64
    }
}

/// Returns the rows of the triangular factor of a QR decomposition by Householder reflections.
fn triangular(matrix: Centered) -> Vec<Vec<f64>> {
    let Centered { rows, mut columns, .. } = matrix;
    let width = columns.len();
    let mut factor = Vec::new();
    for k in 0..rows.min(width) {
        let (done, rest) = columns.split_at_mut(k + 1);
        let reflection = &mut done[k][k..];
        let norm = dot(reflection, reflection).sqrt();
        let diagonal = if reflection[0] > 0.0 { -norm } else { norm };
        reflection[0] -= diagonal;
        let square = dot(reflection, reflection);
        let mut row = vec![0.0; width];
        row[k] = diagonal;
        rest.par_iter_mut().zip(&mut row[k + 1..]).for_each(|(column, entry)| {
            let column = &mut column[k..];
            if square > 0.0 {
                let scale = 2.0 * dot(reflection, column) / square;
                column.iter_mut().zip(reflection.iter()).for_each(|(x, v)| *x -= scale * v);
            }
            *entry = column[0];
        });
        factor.push(row);
    }
    factor
}

/// Maximum number of sweeps. Fewer than 20 are needed for double precision.
const MAX_SWEEPS: usize = 60;

/// Returns the sum of the singular values by one-sided Jacobi rotations (Hestenes 1958), which make
/// the vectors orthogonal.
fn nuclear_norm(mut vectors: Vec<Vec<f64>>) -> f64 {
    let total: f64 = vectors.iter().map(|vector| dot(vector, vector)).sum();
    // Shorter vectors do not change the sum.
    let negligible = total * f64::EPSILON * f64::EPSILON;
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for i in 1..vectors.len() {
            let (before, rest) = vectors.split_at_mut(i);
            let y = &mut rest[0];
            for x in before {
                let (xx, yy, xy) = (dot(x, x), dot(y, y), dot(x, y));
                let are_orthogonal = xy.abs() <= 1e-15 * (xx * yy).sqrt();
                if xx.min(yy) <= negligible || are_orthogonal {
                    continue;
                }
                rotated = true;
                let zeta = (yy - xx) / (2.0 * xy);
                let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = cosine * tangent;
                for (a, b) in x.iter_mut().zip(y.iter_mut()) {
                    (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
                }
            }
        }
        if !rotated {
            break;
        }
    }
    vectors.iter().map(|vector| dot(vector, vector).sqrt()).sum()
}

/// Returns the scalar product. Four partial sums allow the compiler to use vector instructions.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a.zip(b) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For one column, the distance is (μ₁ − μ₂)² + (σ₁ − σ₂)².
    #[test]
    fn one_column_by_hand() {
        let (a, b) = ([1.0, 2.0, 6.0], [0.0, 4.0]);
        // Means 3 and 2, variances 7 and 8.
        let expected = 1.0 + (7.0_f64.sqrt() - 8.0_f64.sqrt()).powi(2);
        assert!((frechet_distance(&a, &b, 1).unwrap() - expected).abs() < 1e-14);
        assert!(frechet_distance(&a, &a, 1).unwrap() < 1e-14);
    }

    /// Uncorrelated columns contribute their distances independently.
    #[test]
    fn independent_columns_add_up() {
        let a = [1.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0];
        let b = [5.0, 2.0, -1.0, 2.0, 5.0, -2.0, -1.0, -2.0];
        let column = |set: &[f64], j| set.iter().skip(j).step_by(2).copied().collect::<Vec<_>>();
        let of = |j| frechet_distance(&column(&a, j), &column(&b, j), 1).unwrap();
        let both = frechet_distance(&a, &b, 2).unwrap();
        assert!((both - of(0) - of(1)).abs() < 1e-13, "{both} {} {}", of(0), of(1));
    }

    #[test]
    fn bad_shapes_are_errors() {
        for (first, second, columns, reason) in [
            (&[1.0, 2.0][..], &[1.0, 2.0][..], 0, "first activations: found 0 columns"),
            (&[1.0, 2.0, 3.0], &[1.0; 4], 2, "first activations: found 3 values, expected 4"),
            (&[1.0; 4], &[1.0; 2], 2, "second activations: found 1 entries"),
            (&[1.0; 4], &[1.0, 1.0, f64::NAN, 1.0], 2, "second activations: entry 2 is not"),
        ] {
            let error = frechet_distance(first, second, columns).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
        assert_eq!(frechet_distance(&[1.0; 6], &[1.0; 4], 2), Ok(0.0));
    }

    #[test]
    fn the_score_falls_exponentially_with_the_distance() {
        for (distance, expected) in [(0.0, 1.0), (5.0, (-1.0_f64).exp()), (15.0, (-3.0_f64).exp())]
        {
            let score = frechet_score(distance);
            assert!((score - expected).abs() < 1e-15, "{score} for a distance of {distance}");
        }
    }
}

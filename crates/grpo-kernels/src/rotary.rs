//! Rotary positions (Su et al. 2021, "RoFormer", equation 34), in the half-split form of Llama's code.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

/// Cosines and sines of the angles of each row, `[n, width / 2]` each, with the width of a head.
#[derive(Clone, Debug)]
pub struct RotaryTables {
    /// Off the tape.
    pub cos: Tensor<2>,
    /// Off the tape.
    pub sin: Tensor<2>,
}

/// Turns each pair `(x_i, x_{i + width/2})` of each head by the angle of its row, in place where nobody else holds `x`.
///
/// # Shapes
/// - x: `[n, heads · width]`
/// - result: the same
///
/// # Panics
/// Where the tables have other rows, or their width is not that of heads.
pub fn rotary(x: Tensor<2>, tables: &RotaryTables) -> Tensor<2> {
    let ([rows, columns], [angles, half]) = (x.dims(), tables.cos.dims());
    assert_eq!(tables.sin.dims(), [angles, half], "sines against cosines");
    let fits = rows == angles && half > 0 && columns.is_multiple_of(2 * half);
    assert!(fits, "[{rows}, {columns}] cannot be turned by angles [{angles}, {half}]");
    #[cfg(feature = "flex")]
    if [&x, &tables.cos, &tables.sin].into_iter().all(crate::backend::is_fusable) {
        return crate::backend::rotary(x, tables);
    }
    crate::plain::rotary(x, tables)
}

/// Rows `[rows][heads · 2 · half]` by tables `[rows][half]`; by the negative angles where `direction` is −1.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn turn(
    x: &mut [f32],
    columns: usize,
    cos: &[f32],
    sin: &[f32],
    half: usize,
    direction: f32,
) {
    let tables = cos.chunks_exact(half).zip(sin.chunks_exact(half));
    for (row, (cos, sin)) in x.chunks_exact_mut(columns).zip(tables) {
        for head in row.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            let pairs = first.iter_mut().zip(second).zip(cos.iter().zip(sin));
            for ((first, second), (&cos, &sin)) in pairs {
                let sin = direction * sin;
                (*first, *second) = (*first * cos - *second * sin, *second * cos + *first * sin);
            }
        }
    }
}

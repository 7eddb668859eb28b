//! Softmax of attention scores over the keys that a query may see.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;
#[cfg(feature = "flex")]
use std::ops::Range;

use crate::Visible;
#[cfg(feature = "flex")]
use crate::simd;

/// `softmax(scale · scores)` over the keys that are visible, 0 at the others.
///
/// Scores of keys that are not visible are never read: they may be anything, NaN too.
///
/// # Shapes
/// - scores: `[batch, heads, queries, keys]` with `queries ≤ keys`
/// - output: the same
///
/// # Panics
/// Where there are more queries than keys, and where the ranges of `visible` are not one for each row of the
/// batch, each inside the keys.
pub fn attention_softmax(scores: Tensor<4>, scale: f64, visible: &Visible) -> Tensor<4> {
    visible.assert_fits(scores.dims());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&scores) {
        return crate::backend::attention_softmax(scores, scale as f32, visible.clone());
    }
    crate::plain::attention_softmax(scores, scale, visible)
}

/// One head: a row of `keys` scores for each query, of which it sees `columns`. `y` comes in zeroed.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], y: &mut [f32], columns: &[Range<usize>], scale: f32) {
    let keys = x.len() / columns.len();
    for (query, columns) in columns.iter().enumerate() {
        let row = query * keys + columns.start..query * keys + columns.end;
        let (x, y) = (&x[row.clone()], &mut y[row]);
        let largest = simd::max(x);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = simd::exp((x - largest) * scale);
        }
        let inverse = 1.0 / simd::sum([y], |[y]| y);
        for y in y.iter_mut() {
            *y *= inverse;
        }
    }
}

/// `dx = scale · y ∘ (dy − Σ y·dy)` for each row of one head. `dx` comes in zeroed.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(
    y: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    columns: &[Range<usize>],
    scale: f32,
) {
    let keys = y.len() / columns.len();
    for (query, columns) in columns.iter().enumerate() {
        let row = query * keys + columns.start..query * keys + columns.end;
        let (y, dy, dx) = (&y[row.clone()], &dy[row.clone()], &mut dx[row]);
        let dot = simd::sum([y, dy], |[y, dy]| y * dy);
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = scale * y * (dy - dot);
        }
    }
}

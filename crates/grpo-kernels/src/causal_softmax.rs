//! Softmax of attention scores over the keys that a query may see.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `softmax(scale · scores)` over the last axis, with 0 where a key comes after the query.
///
/// The last query lines up with the last key, so query `i` sees keys `0..=i + keys − queries`: a block of
/// new queries over a longer cache, or a prefix that everyone sees, need no separate mask.
///
/// # Shapes
/// - scores: `[batch, heads, queries, keys]` with `queries ≤ keys`
/// - output: the same
///
/// # Panics
/// Where there are more queries than keys.
pub fn causal_softmax(scores: Tensor<4>, scale: f64) -> Tensor<4> {
    let [_, _, queries, keys] = scores.dims();
    assert!(queries <= keys, "{queries} queries cannot each see themselves among {keys} keys");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&scores) {
        return crate::backend::causal_softmax(scores, scale as f32);
    }
    crate::plain::causal_softmax(scores, scale)
}

/// One head: `queries` rows of `keys` scores. `y` comes in zeroed.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], y: &mut [f32], queries: usize, keys: usize, scale: f32) {
    for query in 0..queries {
        let row = query * keys..query * keys + query + 1 + keys - queries;
        let (x, y) = (&x[row.clone()], &mut y[row]);
        let largest = simd::max(x);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = simd::exp((x - largest) * scale);
        }
        let inverse = 1.0 / simd::sum(y.len(), |i| y[i]);
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
    queries: usize,
    keys: usize,
    scale: f32,
) {
    for query in 0..queries {
        let row = query * keys..query * keys + query + 1 + keys - queries;
        let (y, dy, dx) = (&y[row.clone()], &dy[row.clone()], &mut dx[row]);
        let dot = simd::sum(y.len(), |i| y[i] * dy[i]);
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = scale * y * (dy - dot);
        }
    }
}

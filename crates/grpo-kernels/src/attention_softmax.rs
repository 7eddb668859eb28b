//! Softmax of attention scores over the keys that a query may see.

use burn::tensor::Tensor;

use crate::Visible;

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

//! Softmax of attention scores, restricted to visible keys.

use burn::tensor::Tensor;

use crate::{Scoring, Visible};

/// Computes `softmax(scale · scores)` over the visible keys. All other weights are 0.
///
/// Scores of invisible keys are never read, so they may be NaN.
///
/// # Shapes
/// - scores: `[batch, heads, queries, keys]` with `queries ≤ keys`
/// - output: same as scores
///
/// # Panics
/// Panics if there are more queries than keys, or if the ranges in `visible` don't match the batch
/// and the keys.
pub fn attention_softmax(scores: Tensor<4>, scale: f64, visible: &Visible) -> Tensor<4> {
    visible.assert_fits(scores.dims());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&scores) {
        return crate::backend::attention_softmax(scores, scale as f32, visible.clone());
    }
    crate::plain::attention_softmax(scores, scale, visible)
}

/// Computes the weights of [`Scoring`]. Its window is that of `visible`.
pub(crate) fn capped_softmax(scores: Tensor<4>, of: &Scoring, visible: &Visible) -> Tensor<4> {
    match of.cap {
        Some(cap) => attention_softmax((scores * (of.scale / cap)).tanh(), cap, visible),
        None => attention_softmax(scores, of.scale, visible),
    }
}

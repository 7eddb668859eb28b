//! Multi-head attention over packed sequences.

mod padded;

use burn::tensor::Tensor;

use crate::Scoring;
use crate::packing::{Heads, Packing};
pub use padded::padded_attention;

/// Computes `softmax(scale · Q Kᵀ) V` for each head of each sequence (Vaswani et al. 2017, eq. 1).
/// Only the keys visible according to `packing` and the window of the [`Scoring`] are taken into account.
///
/// # Shapes
/// - query: `[n, heads · width]`
/// - keys, values: `[n, kv heads · width]`
/// - result: `[n, heads · width]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn attention(
    query: Tensor<2>,
    keys: Tensor<2>,
    values: Tensor<2>,
    heads: Heads,
    scoring: impl Into<Scoring>,
    packing: &Packing,
) -> Tensor<2> {
    let scoring = scoring.into();
    scoring.assert_fits(packing.is_causal());
    let rows = packing.rows();
    assert_eq!(query.dims(), [rows, heads.query_columns()], "queries");
    assert_eq!(keys.dims(), [rows, heads.key_columns()], "keys");
    assert_eq!(values.dims(), [rows, heads.key_columns()], "values");
    #[cfg(feature = "flex")]
    if [&query, &keys, &values].into_iter().all(crate::backend::is_fusable) {
        let of = fused(heads, scoring, packing);
        return crate::backend::attention([query, keys, values], of);
    }
    #[cfg(feature = "gpu")]
    if [&query, &keys, &values].into_iter().all(crate::gpu::is_fusable)
        && crate::gpu::supports(&heads)
        && scoring.is_plain()
    {
        let of = on_gpu(heads, scoring, packing);
        return crate::gpu::attention([query, keys, values], of);
    }
    padded_attention(query, keys, values, heads, scoring, packing, |weights| weights)
}

/// Computes [`attention`] on a matrix with queries, keys and values concatenated along the columns.
///
/// # Shapes
/// - inputs: `[n, (heads + 2 · kv heads) · width]`
/// - result: `[n, heads · width]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn joint_attention(
    inputs: Tensor<2>,
    heads: Heads,
    scoring: impl Into<Scoring>,
    packing: &Packing,
) -> Tensor<2> {
    let scoring = scoring.into();
    scoring.assert_fits(packing.is_causal());
    let (queries, keys) = (heads.query_columns(), heads.key_columns());
    assert_eq!(inputs.dims(), [packing.rows(), queries + 2 * keys], "queries, keys and values");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&inputs) {
        return crate::backend::joint_attention(inputs, fused(heads, scoring, packing));
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&inputs) && crate::gpu::supports(&heads) && scoring.is_plain() {
        return crate::gpu::joint_attention(inputs, on_gpu(heads, scoring, packing));
    }
    let part = |start: usize, length: usize| inputs.clone().narrow(1, start, length);
    let (query, key, value) = (part(0, queries), part(queries, keys), part(queries + keys, keys));
    attention(query, key, value, heads, scoring, packing)
}

#[cfg(feature = "flex")]
fn fused(heads: Heads, scoring: Scoring, packing: &Packing) -> crate::backend::Attention {
    crate::backend::Attention { heads, scoring, packing: packing.clone() }
}

#[cfg(feature = "gpu")]
fn on_gpu(heads: Heads, scoring: Scoring, packing: &Packing) -> crate::gpu::Attention {
    crate::gpu::Attention { heads, scale: scoring.scale as f32, packing: packing.clone() }
}

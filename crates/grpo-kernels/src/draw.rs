//! Draws from softmax distributions on a GPU.

use burn::tensor::Tensor;

use crate::candidates::{Likely, Truncation};

/// Largest vocabulary whose ids are exact in `f32`.
#[cfg(feature = "gpu")]
const LARGEST_VOCABULARY: usize = 1 << 24;
/// Ids are searched for in the forbidden ones, so these must be few.
#[cfg(feature = "gpu")]
const MOST_FORBIDDEN: usize = 16;

/// Draws an id for each row of logits on the GPU that they are on, by inverting the cumulative
/// distribution of `softmax(logits / temperature)` over ascending ids. Returns ids and
/// log-probabilities, or `None` where the distribution is not finite.
///
/// Only these are copied to the host, and not the logits. The result is `None` if the logits are
/// not `f32` on a GPU or if too many ids are forbidden.
///
/// # Shapes
/// - logits: `[n, vocabulary]`, without autodiff
/// - uniforms: length `n`, in `[0, 1)`
pub fn draw_on_gpu(
    logits: &Tensor<2>,
    uniforms: &[f64],
    temperature: f32,
    forbidden: &[u32],
) -> Option<Vec<Option<(u32, f32)>>> {
    #[cfg(feature = "gpu")]
    if can_search(logits, forbidden) {
        return Some(crate::gpu::draw_rows(logits.clone(), uniforms, temperature, forbidden));
    }
    let _ = (logits, uniforms, temperature, forbidden);
    None
}

/// Finds the most probable ids of each row of logits on the GPU that they are on: enough for
/// everything in `truncation`, and a few more.
///
/// Room for 1,024 ids per row is copied to the host instead of the logits. A row is `None` if its
/// distribution is not finite or has more candidates. The result is `None` if nothing would be
/// saved, if the logits are not `f32` on a GPU, or if too many ids are forbidden.
///
/// # Shapes
/// - logits: `[n, vocabulary]`, without autodiff
/// - forbidden: without duplicates
pub fn likely_on_gpu(
    logits: &Tensor<2>,
    temperature: f32,
    forbidden: &[u32],
    truncation: Truncation,
) -> Option<Vec<Option<Likely>>> {
    #[cfg(feature = "gpu")]
    if can_search(logits, forbidden) {
        return crate::gpu::likely_rows(logits.clone(), temperature, forbidden, truncation);
    }
    let _ = (logits, temperature, forbidden, truncation);
    None
}

/// Applies a repetition penalty to logits on a GPU: those of the ids that a row has seen are divided
/// by `penalty` if positive and multiplied by it otherwise, once, no matter how often an id occurs.
///
/// The result is `None` if the logits are not `f32` on a GPU.
///
/// # Shapes
/// - logits, result: `[n, vocabulary]`, without autodiff
/// - seen: length `n`
///
/// # Panics
/// Panics if the number of rows differs, or if an id is outside the vocabulary.
pub fn penalised_on_gpu(logits: &Tensor<2>, seen: &[&[u32]], penalty: f32) -> Option<Tensor<2>> {
    let [rows, vocabulary] = logits.dims();
    assert_eq!(seen.len(), rows, "expected one set of seen ids per row of logits");
    let outside = seen.iter().flat_map(|ids| ids.iter()).find(|&&id| id as usize >= vocabulary);
    assert_eq!(outside, None, "expected seen ids below {vocabulary}");
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(logits) {
        return Some(crate::gpu::penalised(logits.clone(), seen, penalty));
    }
    let _ = penalty;
    None
}

#[cfg(feature = "gpu")]
fn can_search(logits: &Tensor<2>, forbidden: &[u32]) -> bool {
    crate::gpu::is_fusable(logits)
        && logits.dims()[1] <= LARGEST_VOCABULARY
        && forbidden.len() <= MOST_FORBIDDEN
}

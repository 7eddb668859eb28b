//! Draws from softmax distributions on a GPU.

use burn::tensor::Tensor;

use crate::candidates::{Likely, Truncation};
use crate::scaling::Scaling;

/// Largest vocabulary whose ids are exact in `f32`.
#[cfg(feature = "gpu")]
const LARGEST_VOCABULARY: usize = 1 << 24;
/// Ids are searched for in the forbidden ones, so these must be few.
#[cfg(feature = "gpu")]
const MOST_FORBIDDEN: usize = 16;

/// Draws an id for each row of logits on the GPU that they are on, by inverting the cumulative
/// distribution of the scaled logits' softmax over ascending ids. Returns ids and log-probabilities,
/// or `None` where the distribution is not finite.
///
/// Only these are copied to the host, and not the logits. The result is `None` if the logits are
/// not `f32` on a GPU or if too many ids are forbidden.
///
/// # Shapes
/// - logits: `[n, vocabulary]`, without autodiff
/// - uniforms: length `n`, in `[0, 1)`
///
/// # Panics
/// On a GPU, panics if the penalty is for another number of rows, or if a seen id is outside the
/// vocabulary.
pub fn draw_on_gpu(
    logits: &Tensor<2>,
    scaling: &Scaling<'_>,
    uniforms: &[f64],
) -> Option<Vec<Option<(u32, f32)>>> {
    #[cfg(feature = "gpu")]
    if can_search(logits, scaling) {
        return Some(crate::gpu::draw_rows(logits.clone(), scaling, uniforms));
    }
    let _ = (logits, scaling, uniforms);
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
///
/// # Panics
/// Same as [`draw_on_gpu`].
pub fn likely_on_gpu(
    logits: &Tensor<2>,
    scaling: &Scaling<'_>,
    truncation: Truncation,
) -> Option<Vec<Option<Likely>>> {
    #[cfg(feature = "gpu")]
    if can_search(logits, scaling) {
        return crate::gpu::likely_rows(logits.clone(), scaling, truncation);
    }
    let _ = (logits, scaling, truncation);
    None
}

#[cfg(feature = "gpu")]
fn can_search(logits: &Tensor<2>, scaling: &Scaling<'_>) -> bool {
    crate::gpu::is_fusable(logits)
        && logits.dims()[1] <= LARGEST_VOCABULARY
        && scaling.forbidden.len() <= MOST_FORBIDDEN
}

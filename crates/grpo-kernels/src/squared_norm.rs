//! The squared norm of a tensor.

use burn::tensor::Tensor;

/// Returns `Σ x²`. The sum is computed in f64, because an f32 sum over millions of elements would
/// lose small terms.
///
/// # Shapes
/// - x: any shape, without autodiff
pub fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::squared_norm(x);
    }
    crate::plain::squared_norm(x)
}

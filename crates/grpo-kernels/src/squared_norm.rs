//! The squared norm of a tensor.

use burn::tensor::Tensor;

/// Returns `Σ x²` in f64, because f32 would lose small terms of a sum over millions.
///
/// # Shapes
/// - x: any, without autodiff
pub fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::squared_norm(x);
    }
    crate::plain::squared_norm(x)
}

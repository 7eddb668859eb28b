//! The squared norm of a tensor.

use burn::tensor::Tensor;

/// `Σ x²` in f64: in f32 the sum over millions of squares loses its small ones.
///
/// # Shapes
/// - x: any, off the tape
pub fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::squared_norm(x);
    }
    crate::plain::squared_norm(x)
}

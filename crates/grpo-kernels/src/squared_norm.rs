//! The squared norm of a tensor.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

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

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn sum_of_squares(x: &[f32]) -> f64 {
    use crate::simd::LANES;
    let mut lanes = [0.0_f64; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    let rest = chunks.remainder().iter().map(|&x| f64::from(x) * f64::from(x));
    lanes.into_iter().chain(rest).sum()
}

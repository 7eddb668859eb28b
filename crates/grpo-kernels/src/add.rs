//! Addition.

use burn::tensor::Tensor;

/// Returns `x + y`. The sum is computed in place if `x` has no other owner.
///
/// # Panics
/// Panics if the shapes differ.
pub fn add(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    assert_eq!(x.dims(), y.dims(), "the shapes of the terms differ");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&y) {
        return crate::backend::add(x, y);
    }
    crate::plain::add(x, y)
}

/// Adds `bias` to each row of `x`. On the CPU, [`linear`](crate::linear) adds a bias faster.
///
/// # Shapes
/// - x: `[n, columns]`; bias: `[columns]`
/// - result: `[n, columns]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn add_bias(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    assert_eq!(bias.dims()[0], x.dims()[1], "the bias must have one value per column");
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) && crate::gpu::is_fusable(&bias) {
        return crate::gpu::add_bias(x, bias);
    }
    crate::plain::add_bias(x, bias)
}

//! Matrix multiplication.

use burn::tensor::Tensor;

/// Returns the matrix product `a · b`.
///
/// On the CPU, the result is bit-identical to Burn's. This version is faster because it neither
/// zeroes nor copies the output. On a GPU, it computes in full `f32`.
///
/// # Shapes
/// - a: `[m, k]`; b: `[k, n]`; both may be transposed views
/// - result: `[m, n]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    assert_eq!(a.dims()[1], b.dims()[0], "inner dimensions of the product differ");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&a) && crate::backend::is_fusable(&b) {
        return crate::backend::matmul(a, b);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&a) && crate::gpu::is_fusable(&b) {
        return crate::gpu::matmul(a, b);
    }
    crate::plain::matmul(a, b)
}

/// Returns `a · b` for each of the matrices in the first two dimensions. Unlike Burn's product, it
/// does not round to `tf32` on a GPU.
pub(crate) fn batched_matmul(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&a) && crate::gpu::is_fusable(&b) {
        return crate::gpu::matmul(a, b);
    }
    a.matmul(b)
}

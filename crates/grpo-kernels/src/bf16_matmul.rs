//! Matrix multiplication with factors in bf16.

use burn::tensor::Tensor;

/// Returns the matrix product of `a` and `b`, both rounded to bf16, with sums in `f32`. In the
/// backward pass, the gradient of the output is rounded too, so each gradient is such a product.
///
/// On the CPU, each element is a chain of fused multiply-adds in the order of the inner dimension.
/// It depends only on its row of `a` and its column of `b`, bit for bit, and is the same on
/// processors with and without AVX512-BF16, whose instruction multiplies two terms at a time.
/// Subnormal sums are an exception: that instruction flushes them to 0. Subnormal factors are
/// always flushed.
///
/// # Shapes
/// - a: `[m, k]`; b: `[k, n]`; both may be transposed views
/// - result: `[m, n]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn bf16_matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    assert_eq!(a.dims()[1], b.dims()[0], "inner dimensions of the product differ");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&a) && crate::backend::is_fusable(&b) {
        return crate::backend::bf16_matmul(a, b);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&a) && crate::gpu::is_fusable(&b) {
        return crate::gpu::bf16_matmul(a, b);
    }
    crate::plain::bf16_matmul(a, b)
}

//! The matrix product.

use burn::tensor::Tensor;

/// Returns `a · b`, bit-identical to Burn's product, without zeroing and copying the result on the
/// CPU.
///
/// # Shapes
/// - a: `[m, k]`; b: `[k, n]`, possibly transposed views
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
    crate::plain::matmul(a, b)
}

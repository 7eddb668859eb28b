//! The matrix product.

use burn::tensor::Tensor;

/// `a · b`: Burn's product, to the last bit, without the clearing and copying of its result on the CPU.
///
/// # Shapes
/// - a: `[m, k]`; b: `[k, n]`, transposed views among them
/// - result: `[m, n]`
///
/// # Panics
/// Where the shapes disagree.
pub fn matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    assert_eq!(a.dims()[1], b.dims()[0], "columns of the first against rows of the second");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&a) && crate::backend::is_fusable(&b) {
        return crate::backend::matmul(a, b);
    }
    crate::plain::matmul(a, b)
}

//! A linear layer whose result for a row does not depend on other rows.

#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod strip;

/// Computes `x · W + b` without autodiff, with a summation order that does not depend on the number
/// of rows.
///
/// A general matrix product splits its sums by the shape of the whole, so a sequence would get
/// other last bits in another batch, and sometimes another token. Sampling uses this product
/// ("batch invariance"; He et al. 2025, "Defeating Nondeterminism in LLM Inference"). On the CPU in
/// `f32`, the terms of an element are fused multiply-adds in an order that depends only on the
/// layout of the weight. Weights are read in place, in `f32`, in `bf16`, or quantised to bytes with
/// a scale per 32 of a row. Other backends use their own product, which may not be invariant.
///
/// # Shapes
/// - x: `[n, in]`
/// - weight: `[in, out]`, possibly a transposed view
/// - bias: `[out]`
/// - result: `[n, out]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn batch_invariant_linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let [inner, columns] = weight.dims();
    assert_eq!(x.dims()[1], inner, "x must have as many columns as the weight has rows");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [columns], "the bias must have one value per column");
    }
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x)
        && matches!(weight.dtype(), DType::F32 | DType::BF16 | DType::QFloat(_))
    {
        return cpu::linear(x, weight, bias);
    }
    crate::plain::batch_invariant_linear(x, weight, bias)
}

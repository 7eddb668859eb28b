//! A linear layer in which the result for a row is independent of the other rows.

#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::Tensor;

use crate::four_bits::unpacked_shape;

#[cfg(feature = "flex")]
mod columns;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod rows;
#[cfg(feature = "flex")]
mod strip;

/// Computes `x · W + b` without autodiff, using a summation order that doesn't depend on the number
/// of rows.
///
/// A general matrix product decides how to split its sums based on the shapes. The same sequence
/// would then get slightly different results in different batches, and occasionally a different
/// token. Sampling therefore uses this function ("batch invariance"; He et al. 2025, "Defeating
/// Nondeterminism in LLM Inference").
///
/// On the CPU in `f32`, each element is a chain of fused multiply-adds, in an order that depends
/// only on the layout of the weight. Weights can be `f32`, `bf16`, quantised to bytes with a scale
/// per 32 weights of a row, or packed by [`pack_four_bits`](crate::pack_four_bits), and are read
/// without converting the matrix first. Other backends use their regular matrix product, which may
/// not be batch invariant.
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
    let [inner, columns] = unpacked_shape(&weight);
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

//! A linear layer whose result for a row does not depend on the rows beside it.

#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod strip;

/// `x · W + b`, off the tape, where the sum over the inner axis is taken in one order whatever the number of rows.
///
/// A matrix product that cuts its sums by the shape of the whole (as a general one does, for speed) gives a sequence
/// other last bits in another batch, and now and then another token. Sampling goes through this one ("batch
/// invariance"; He et al. 2025, "Defeating Nondeterminism in LLM Inference"). On the CPU in `f32` the terms of an element
/// are fused multiply-adds in an order that nothing but the layout of the weight decides; weights are read where they
/// lie, in `f32`, in `bf16`, or quantized to bytes with a scale for each 32 of a row. On other backends it is the
/// backend's own product, which may promise less.
///
/// # Shapes
/// - x: `[n, in]`
/// - weight: `[in, out]`, a transposed view among them
/// - bias: `[out]`
/// - result: `[n, out]`
///
/// # Panics
/// Where the shapes disagree.
pub fn batch_invariant_linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let [inner, columns] = weight.dims();
    assert_eq!(x.dims()[1], inner, "columns of x against rows of the weight");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [columns], "one bias for each column");
    }
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x)
        && matches!(weight.dtype(), DType::F32 | DType::BF16 | DType::QFloat(_))
    {
        return cpu::linear(x, weight, bias);
    }
    crate::plain::batch_invariant_linear(x, weight, bias)
}

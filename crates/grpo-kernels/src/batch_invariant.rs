//! A linear layer in which the result for a row is independent of the other rows.

use std::fmt;

#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::Tensor;

#[cfg(feature = "gpu")]
use crate::four_bits::dense;
use crate::four_bits::unpacked_shape;

#[cfg(feature = "flex")]
mod blocks;
#[cfg(feature = "flex")]
mod columns;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod packed;
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
/// without converting the matrix first. GPUs convert it for each product. Their order of summation
/// can depend on the number of rows.
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
    check_shapes(&x, &weight, bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x)
        && matches!(weight.dtype(), DType::F32 | DType::BF16 | DType::QFloat(_))
    {
        return cpu::linear(x, weight, bias);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::linear(x, dense(weight), bias);
    }
    crate::plain::batch_invariant_linear(x, weight, bias)
}

/// A weight prepared for many products, as in sampling, which multiplies by the same weights for
/// every token.
///
/// On the CPU, an `f32` weight is copied to narrow strips that are read from start to end. In the
/// original, each row of a strip is on different cache lines. Transposed views are not copied.
pub struct PackedWeight {
    weight: Tensor<2>,
    strips: Option<Vec<f32>>,
}

impl PackedWeight {
    /// Returns whether `f32` weights on the CPU are copied.
    pub fn is_a_copy() -> bool {
        #[cfg(feature = "flex")]
        if packed::width().is_some() {
            return true;
        }
        false
    }

    /// Packs a weight of shape `[in, out]` without autodiff.
    pub fn new(weight: Tensor<2>) -> Self {
        Self { strips: strips(&weight), weight }
    }

    /// Same as [`batch_invariant_linear`] with the original weight, bit for bit.
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    pub fn linear(&self, x: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
        #[cfg(feature = "flex")]
        if let Some(strips) = &self.strips
            && crate::backend::is_fusable(&x)
        {
            check_shapes(&x, &self.weight, bias.as_ref());
            return cpu::packed_linear(x, strips, self.weight.dims()[1], bias);
        }
        batch_invariant_linear(x, self.weight.clone(), bias)
    }
}

/// Returns the strips of a weight that is multiplied faster if it is packed.
fn strips(weight: &Tensor<2>) -> Option<Vec<f32>> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(weight) {
        return cpu::pack(weight.clone());
    }
    let _ = weight;
    None
}

impl fmt::Debug for PackedWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_packed = self.strips.is_some();
        f.debug_struct("PackedWeight").field("is_packed", &is_packed).finish_non_exhaustive()
    }
}

fn check_shapes(x: &Tensor<2>, weight: &Tensor<2>, bias: Option<&Tensor<1>>) {
    let [inner, columns] = unpacked_shape(weight);
    assert_eq!(x.dims()[1], inner, "x must have as many columns as the weight has rows");
    if let Some(bias) = bias {
        assert_eq!(bias.dims(), [columns], "the bias must have one value per column");
    }
}

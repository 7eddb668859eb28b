//! A linear layer in which the result for a row is independent of the other rows.

use std::fmt;

#[cfg(feature = "flex")]
use burn::tensor::DType;
use burn::tensor::Tensor;

use crate::four_bits::{dense, unpacked_shape};
use crate::half::Half;
use crate::linear::check_shapes;

#[cfg(feature = "flex")]
mod blocks;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
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
/// On the CPU in `f32`, each element is a chain of fused multiply-adds from the first term to the
/// last, to which the bias is added. [`linear`](crate::linear) has the same bits. Weights can be
/// `f32`, `bf16`, quantised to bytes with a scale per 32 weights of a row, or packed by
/// [`pack_four_bits`](crate::pack_four_bits), and are read without converting the matrix first. GPUs
/// read weights in `f32`, `bf16` and `f16` as they are, and convert others for each product. Their order
/// of summation can depend on the number of rows.
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
    check_shapes(&x, unpacked_shape(&weight), bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x)
        && matches!(weight.dtype(), DType::F32 | DType::BF16 | DType::QFloat(_))
    {
        return cpu::linear(x, weight, bias);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_readable(&x) {
        return crate::gpu::linear(x, weight, bias);
    }
    crate::plain::batch_invariant_linear(x, weight, bias)
}

/// A weight prepared for many products, as in sampling, which multiplies by the same weights for
/// every token.
///
/// On the CPU, an `f32` weight is copied to narrow strips that are read from start to end. In the
/// original, each row of a strip is on different cache lines.
pub struct PackedWeight {
    form: Form,
    /// What the input is rounded to before it is multiplied.
    input: Option<Half>,
}

enum Form {
    /// As it was, or rounded.
    Unpacked(Tensor<2>),
    /// With the same weight in strips.
    #[cfg(feature = "flex")]
    Strips(Tensor<2>, Vec<f32>),
    /// Rounded to bf16, in strips. Products round their input.
    #[cfg(feature = "flex")]
    Pairs(crate::bf16_product::Right),
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
        #[cfg(feature = "flex")]
        if crate::backend::is_fusable(&weight)
            && let Some(strips) = cpu::pack(weight.clone())
        {
            return Self { form: Form::Strips(weight, strips), input: None };
        }
        Self { form: Form::Unpacked(weight), input: None }
    }

    /// Rounds a weight to 16 bits and packs it, for products in which `x` is rounded too.
    pub fn rounded(weight: Tensor<2>, format: Half) -> Self {
        let weight = format.factor(weight);
        #[cfg(feature = "flex")]
        if crate::backend::is_fusable(&weight) && format == Half::Bf16 {
            return Self { form: Form::Pairs(crate::backend::bf16_packed(weight)), input: None };
        }
        Self { input: Some(format), ..Self::new(format.round(weight)) }
    }

    /// Rounds a weight to 16 bits and adds an update in `f32`, such as that of an adapter, for products
    /// in which `x` is rounded.
    pub fn rounded_with_update(weight: Tensor<2>, update: Tensor<2>, format: Half) -> Self {
        let sum = dense(format.round(dense(weight))) + update;
        Self { form: Form::Unpacked(sum), input: Some(format) }
    }

    /// Same as [`batch_invariant_linear`] with the original weight, bit for bit. If the weight was
    /// rounded, the same as [`half_linear`](crate::half_linear), on the CPU bit for bit.
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    pub fn linear(&self, x: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
        let x = self.rounded_input(x);
        match &self.form {
            #[cfg(feature = "flex")]
            Form::Strips(weight, strips) if crate::backend::is_fusable(&x) => {
                check_shapes(&x, weight.dims(), bias.as_ref());
                cpu::packed_linear(x, strips, weight.dims()[1], bias)
            }
            #[cfg(feature = "flex")]
            Form::Strips(weight, _) => batch_invariant_linear(x, weight.clone(), bias),
            #[cfg(feature = "flex")]
            Form::Pairs(pairs) => {
                check_shapes(&x, [pairs.inner(), pairs.columns()], bias.as_ref());
                crate::backend::bf16_packed_linear(x, pairs, bias)
            }
            Form::Unpacked(weight) => batch_invariant_linear(x, weight.clone(), bias),
        }
    }

    fn rounded_input(&self, x: Tensor<2>) -> Tensor<2> {
        match self.input {
            Some(format) => format.round(x),
            None => x,
        }
    }

    /// Computes three layers of the same input next to each other, with one launch on a GPU. Each
    /// column has the same bits as that of [`Self::linear`].
    ///
    /// Returns `None` where no kernel applies: on a CPU, for weights that are quantised or differ in
    /// format or layout, if only some layers have a bias, and if the inner dimension or a row of the
    /// weights cannot be read four numbers at a time.
    ///
    /// # Shapes
    /// - x: `[n, in]`; biases: `[out]` of their layer
    /// - result: `[n, sum of the three out]`
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    #[allow(unused_variables, reason = "only GPUs launch kernels")]
    pub fn joined_linear(
        x: &Tensor<2>,
        layers: [(&Self, Option<Tensor<1>>); 3],
    ) -> Option<Tensor<2>> {
        #[cfg(feature = "gpu")]
        if crate::gpu::is_readable(x) {
            let (x, layers) = Self::on_gpu(x, layers)?;
            return crate::gpu::joined_linear(x, layers);
        }
        None
    }

    /// Computes `swiglu(gate, up)` of two layers of the same input. See [`Self::joined_linear`].
    #[allow(unused_variables, reason = "only GPUs launch kernels")]
    pub fn gated_linear(
        x: &Tensor<2>,
        layers: [(&Self, Option<Tensor<1>>); 2],
    ) -> Option<Tensor<2>> {
        #[cfg(feature = "gpu")]
        if crate::gpu::is_readable(x) {
            let (x, [gate, up]) = Self::on_gpu(x, layers)?;
            return crate::gpu::gated_linear(x, gate, up);
        }
        None
    }

    /// Computes [`gelu`](crate::gelu), or [`gelu_tanh`](crate::gelu_tanh), of a layer. See
    /// [`Self::joined_linear`].
    #[allow(unused_variables, reason = "only GPUs launch kernels")]
    pub fn linear_gelu(
        &self,
        x: &Tensor<2>,
        bias: Option<Tensor<1>>,
        tanh: bool,
    ) -> Option<Tensor<2>> {
        #[cfg(feature = "gpu")]
        if crate::gpu::is_readable(x) {
            let (x, [layer]) = Self::on_gpu(x, [(self, bias)])?;
            return crate::gpu::linear_gelu(x, layer, tanh);
        }
        None
    }

    /// Returns the layers of a GPU with their input, which is rounded if the weights are. Returns
    /// `None` if only some of them are.
    #[cfg(feature = "gpu")]
    fn on_gpu<const N: usize>(
        x: &Tensor<2>,
        layers: [(&Self, Option<Tensor<1>>); N],
    ) -> Option<(Tensor<2>, [crate::gpu::Layer; N])> {
        let first = layers[0].0;
        if layers.iter().any(|(layer, _)| layer.input != first.input) {
            return None;
        }
        let x = first.rounded_input(x.clone());
        let layers = layers.map(|(layer, bias)| match &layer.form {
            Form::Unpacked(weight) => {
                check_shapes(&x, unpacked_shape(weight), bias.as_ref());
                (weight.clone(), bias)
            }
            #[cfg(feature = "flex")]
            _ => unreachable!("a weight on the CPU has no input on a GPU"),
        });
        Some((x, layers))
    }
}

impl fmt::Debug for PackedWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Unpacked(_) => "unpacked",
            #[cfg(feature = "flex")]
            Form::Strips(..) => "strips",
            #[cfg(feature = "flex")]
            Form::Pairs(_) => "bf16 pairs",
        };
        f.debug_struct("PackedWeight").field("form", &form).field("input", &self.input).finish()
    }
}

//! Linear layers.

use burn::tensor::{DType, Tensor};

use crate::{add_bias, dense, has_tensor_cores, matmul};

/// Computes `x · W + b`.
///
/// On the CPU in `f32`, each element is a chain of fused multiply-adds from the first term to the last,
/// to which the bias is added. It depends only on its row of `x` and its column of `W`, bit for bit, so
/// a token has the same result in sampling
/// ([`batch_invariant_linear`](crate::batch_invariant_linear)) and in training. Gradients are products
/// of the `gemm` crate. On a GPU, products are computed in full `f32`, and their order of summation may
/// depend on the shapes.
///
/// # Shapes
/// - x: `[n, in]`
/// - weight: `[in, out]`, possibly a transposed view
/// - bias: `[out]`
/// - result: `[n, out]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    check_shapes(&x, weight.dims(), bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::linear(x, weight, bias, None);
    }
    plus(matmul(x, weight), bias)
}

/// Same as [`linear`] with its output `y`, which another pass has computed from the same values. On the
/// CPU, only what the gradients need is recorded. Other devices ignore `y`.
///
/// # Panics
/// Panics if the shapes do not match.
pub fn known_linear(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    check_known(&y, &x, &weight, bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::linear(x, weight, bias, Some(y));
    }
    linear(x, weight, bias)
}

/// Same as [`linear`] with `x` and `W` rounded to bf16, and sums in `f32`. In the backward pass, the
/// gradient of the output is rounded too, so the gradients of `x` and `W` are such products.
///
/// On the CPU, results are the same bits on processors with and without AVX512-BF16, whose instruction
/// multiplies two terms at a time. Subnormal sums are an exception: that instruction flushes them to 0.
/// Subnormal factors are always flushed.
///
/// GPUs with tensor cores for bf16 use them. A weight in bf16 is then multiplied as it is, elsewhere it
/// is widened first ([`bf16_factor`]).
///
/// # Panics
/// Panics if the shapes do not match.
pub fn bf16_linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    check_shapes(&x, weight.dims(), bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::bf16_linear(x, weight, bias, None);
    }
    let weight = bf16_factor(weight);
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return plus(crate::gpu::bf16_matmul(x, weight), bias);
    }
    plus(crate::plain::bf16_matmul(x, weight), bias)
}

/// Same as [`bf16_linear`] with its output `y`. See [`known_linear`].
///
/// # Panics
/// Panics if the shapes do not match.
pub fn known_bf16_linear(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    check_known(&y, &x, &weight, bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::bf16_linear(x, weight, bias, Some(y));
    }
    bf16_linear(x, weight, bias)
}

/// Returns a weight in a format that [`bf16_linear`] multiplies: in bf16 if it already is and the device
/// has tensor cores for it, otherwise in `f32`.
pub fn bf16_factor(weight: Tensor<2>) -> Tensor<2> {
    let is_read = weight.dtype() == DType::BF16 && has_tensor_cores(&weight.device(), DType::BF16);
    if is_read { weight } else { dense(weight) }
}

fn plus(y: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    match bias {
        Some(bias) => add_bias(y, bias),
        None => y,
    }
}

pub(crate) fn check_shapes(x: &Tensor<2>, [inner, columns]: [usize; 2], bias: Option<&Tensor<1>>) {
    assert_eq!(x.dims()[1], inner, "x must have as many columns as the weight has rows");
    if let Some(bias) = bias {
        assert_eq!(bias.dims(), [columns], "the bias must have one value per column");
    }
}

fn check_known(y: &Tensor<2>, x: &Tensor<2>, weight: &Tensor<2>, bias: Option<&Tensor<1>>) {
    check_shapes(x, weight.dims(), bias);
    assert_eq!(y.dims(), [x.dims()[0], weight.dims()[1]], "the known output has another shape");
}

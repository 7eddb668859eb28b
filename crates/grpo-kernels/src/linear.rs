//! Linear layers.

use burn::tensor::Tensor;

use crate::{Half, add_bias, matmul};

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
        return crate::backend::linear(x, weight, bias, None, None);
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
        return crate::backend::linear(x, weight, bias, None, Some(y));
    }
    linear(x, weight, bias)
}

/// Same as [`linear`] with `x` and `W` rounded to 16 bits, and sums in `f32`. In the backward pass, the
/// gradient of the output is rounded too, so the gradients of `x` and `W` are such products.
///
/// In f16, the gradient of the output is first multiplied by the power of two that brings its largest
/// magnitude to between 2¹⁴ and 2¹⁵, and the products are divided by it. So small gradients do not
/// become 0, and large ones do not become infinite (loss scaling, Micikevicius et al. 2018, section
/// 3.2, for each product).
///
/// On the CPU, results in bf16 are the same bits on processors with and without AVX512-BF16, whose
/// instruction multiplies two terms at a time. Subnormal sums are an exception: that instruction flushes
/// them to 0. Products in f16 are computed in `f32`, and are slower than those of `f32` factors.
///
/// GPUs with tensor cores for the format use them, and multiply a weight that is in this format as it
/// is. Elsewhere, it is widened first ([`Half::factor`]).
///
/// # Panics
/// Panics if the shapes do not match.
pub fn half_linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    format: Half,
) -> Tensor<2> {
    check_shapes(&x, weight.dims(), bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::linear(x, weight, bias, Some(format), None);
    }
    let weight = format.factor(weight);
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return plus(crate::gpu::half_matmul(x, weight, format), bias);
    }
    plus(crate::plain::half_matmul(x, weight, format), bias)
}

/// Same as [`half_linear`] with its output `y`. See [`known_linear`].
///
/// # Panics
/// Panics if the shapes do not match.
pub fn known_half_linear(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    format: Half,
) -> Tensor<2> {
    check_known(&y, &x, &weight, bias.as_ref());
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::linear(x, weight, bias, Some(format), Some(y));
    }
    half_linear(x, weight, bias, format)
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

//! The same operations in Burn's own primitives: oracle of the fused ones, and the path of every
//! backend for which there is no fused version.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};

/// `x · Φ(x)` with the exact normal distribution function. See [`crate::gelu`].
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    // Written out: Burn's own erf-GELU is differentiated as if it were the tanh approximation.
    let cdf = ((x.clone() * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * cdf
}

/// Softmax over the keys that each query may see. See [`crate::causal_softmax`].
pub fn causal_softmax(scores: Tensor<4>, scale: f64) -> Tensor<4> {
    let [_, _, queries, keys] = scores.dims();
    let hidden: Tensor<2, Bool> =
        Tensor::tril_mask([queries, keys], (keys - queries) as i64, &scores.device());
    softmax((scores * scale).mask_fill(hidden.unsqueeze(), f32::NEG_INFINITY), 3)
}

/// Normalisation of each row to mean 0 and variance 1, then scale and shift. See [`crate::layer_norm`].
pub fn layer_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    let normal = centred / (variance + epsilon).sqrt();
    normal * gamma.unsqueeze() + beta.unsqueeze()
}

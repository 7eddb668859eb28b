//! Element-wise activations.

use burn::tensor::Tensor;

use crate::plain;

/// GELU with the exact normal distribution function (Hendrycks & Gimpel 2016), as PyTorch's default.
///
/// `y = x · Φ(x)`, `dy/dx = Φ(x) + x · φ(x)`.
///
/// # Shapes
/// - input and output: any, the same
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu(x);
    }
    plain::gelu(x)
}

/// GELU in its tanh approximation (Hendrycks & Gimpel 2016, section 2): GPT-2's `gelu_new`.
///
/// `y = x · ½ (1 + tanh u)` with `u = √(2/π) (x + 0.044715 x³)`, and the derivative of this form.
///
/// # Shapes
/// - input and output: any, the same
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu_tanh(x);
    }
    plain::gelu_tanh(x)
}

/// The gate of a feed-forward layer (Shazeer 2020, "GLU variants improve transformer", equation 6).
///
/// `y = silu(gate) · up` with `silu(g) = g · σ(g)`, σ the logistic function.
///
/// # Shapes
/// - gate, up, output: `[rows, features]`
///
/// # Panics
/// Panics if the shapes differ.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    assert_eq!(gate.dims(), up.dims(), "gate against up");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&gate) {
        return crate::backend::swiglu(gate, up);
    }
    plain::swiglu(gate, up)
}

//! Activation functions.

use burn::tensor::Tensor;

use crate::plain;

/// GELU based on the exact normal CDF (Hendrycks & Gimpel 2016), like PyTorch's default.
///
/// `y = x · Φ(x)`, `dy/dx = Φ(x) + x · φ(x)`.
///
/// # Shapes
/// - input and output: any shape
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu(x);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::gelu(x);
    }
    plain::gelu(x)
}

/// The tanh approximation of GELU (Hendrycks & Gimpel 2016, section 2), known as `gelu_new` in
/// GPT-2.
///
/// `y = x · ½ (1 + tanh u)` with `u = √(2/π) (x + 0.044715 x³)`. The backward pass uses the exact
/// derivative of this formula.
///
/// # Shapes
/// - input and output: any shape
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu_tanh(x);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::gelu_tanh(x);
    }
    plain::gelu_tanh(x)
}

/// SwiGLU, the gated activation of a feed-forward layer (Shazeer 2020, "GLU variants improve
/// transformer", equation 6).
///
/// `y = silu(gate) · up` with `silu(g) = g · σ(g)`, where σ is the logistic function.
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
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&gate) {
        return crate::gpu::swiglu(gate, up);
    }
    plain::swiglu(gate, up)
}

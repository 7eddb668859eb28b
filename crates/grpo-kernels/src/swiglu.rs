//! The gate of a feed-forward layer (Shazeer 2020, "GLU variants improve transformer", equation 6).

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `y = silu(gate) · up` with `silu(g) = g · σ(g)`, σ the logistic function.
///
/// # Shapes
/// - gate, up, output: `[rows, features]`
///
/// # Panics
/// Where the shapes differ.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    assert_eq!(gate.dims(), up.dims(), "gate against up");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&gate) {
        return crate::backend::swiglu(gate, up);
    }
    crate::plain::swiglu(gate, up)
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
        let (sigmoid, _) = simd::sigmoid(gate);
        // The smallest σ there is would still be something beside a very large gate.
        *y = gate.max(LEAST) * sigmoid * up;
    }
}

/// `dgate = dy ∘ up ∘ σ(g) (1 + g (1 − σ(g)))`, `dup = dy ∘ silu(g)`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let inputs = gate.iter().zip(up).zip(dy);
    for (((&gate, &up), &dy), (dgate, dup)) in inputs.zip(dgate.iter_mut().zip(dup)) {
        let (sigmoid, complement) = simd::sigmoid(gate);
        let near = gate.clamp(LEAST, -LEAST);
        *dgate = dy * up * (sigmoid * (1.0 + near * complement));
        *dup = dy * (gate.max(LEAST) * sigmoid);
    }
}

/// Where `g · σ(g)` is 0 but for 1e-36.
#[cfg(feature = "flex")]
const LEAST: f32 = -87.0;

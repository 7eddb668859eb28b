//! GELU in its tanh approximation (Hendrycks & Gimpel 2016, section 2): GPT-2's `gelu_new`.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `y = x · ½ (1 + tanh u)` with `u = √(2/π) (x + 0.044715 x³)`, and the derivative of this form.
///
/// # Shapes
/// - input and output: any, the same
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu_tanh(x);
    }
    crate::plain::gelu_tanh(x)
}

/// `y = x · σ(2u)`, because `½ (1 + tanh u) = σ(2u)`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        let (near, gate, _) = gate(x);
        // Below −10 the gate stays at its value there, which is 0 but for 1e-38.
        *y = x.max(near) * gate;
    }
}

/// `dx = dy · (σ(2u) + x · σ(2u) (1 − σ(2u)) · 2u′)`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
        let (near, gate, complement) = gate(x);
        let slope = TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * near * near);
        *dx = dy * (gate + near * gate * complement * slope);
    }
}

#[cfg(feature = "flex")]
const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
#[cfg(feature = "flex")]
const CUBIC: f32 = 0.044_715;

/// `x` held within ±10, where the gate is 0 or 1 already and nothing overflows, and there `σ(2u)` and
/// `1 − σ(2u)`.
#[cfg(feature = "flex")]
#[inline(always)]
fn gate(x: f32) -> (f32, f32, f32) {
    let near = x.clamp(-10.0, 10.0);
    let (gate, complement) = simd::sigmoid(TWO_SQRT_2_OVER_PI * near * (1.0 + CUBIC * near * near));
    (near, gate, complement)
}

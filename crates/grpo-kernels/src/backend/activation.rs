//! Elementwise operations: both variants of GELU, and SwiGLU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use multiversion::multiversion;

use super::{binary, like, map_chunks, unary};
use crate::chunks::write_chunks;
use crate::simd::{self, CHUNK};
use crate::tape::Operation;

pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    unary(Activation::Gelu, x)
}

pub(crate) fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    unary(Activation::GeluTanh, x)
}

pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    binary(Swiglu, gate, up)
}

#[derive(Clone, Copy, Debug)]
enum Activation {
    Gelu,
    GeluTanh,
}

impl Operation<Flex, 1> for Activation {
    /// The input.
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1], _: [bool; 1]) -> (FlexTensor, FlexTensor) {
        let forward = match self {
            Self::Gelu => gelu_forward,
            Self::GeluTanh => gelu_tanh_forward,
        };
        (map_chunks([x.clone()], CHUNK, |_, [x], y| forward(x, y)), x)
    }

    fn backward(self, x: FlexTensor, dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let backward = match self {
            Self::Gelu => gelu_backward,
            Self::GeluTanh => gelu_tanh_backward,
        };
        [Some(map_chunks([x, dy], CHUNK, |_, [x, dy], dx| backward(x, dy, dx)))]
    }
}

#[derive(Debug)]
struct Swiglu;

impl Operation<Flex, 2> for Swiglu {
    /// The inputs.
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 2], _: [bool; 2]) -> (FlexTensor, Self::Saved) {
        let write = |_, [gate, up]: [&[f32]; 2], y: &mut [f32]| swiglu_forward(gate, up, y);
        (map_chunks(inputs.clone(), CHUNK, write), inputs)
    }

    fn backward(
        self,
        inputs: Self::Saved,
        dy: FlexTensor,
        _: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let [gate, up] = inputs.map(|input| input.to_contiguous());
        let dy = dy.to_contiguous();
        let slices = [&gate, &up, &dy].map(FlexTensor::storage::<f32>);
        let gradients = write_chunks(slices[0].len(), CHUNK, |index, [dgate, dup]| {
            let start = index * CHUNK;
            let [gate, up, dy] = slices.map(|slice| &slice[start..start + dgate.len()]);
            swiglu_backward(gate, up, dy, dgate, dup);
        });
        gradients.map(|values| Some(like(&gate, values)))
    }
}

/// Computes `y = x · Φ(x)`.
#[multiversion(targets = "simd")]
fn gelu_forward(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * cdf_and_gauss(x).0;
    }
}

/// Computes `dx = dy · (Φ(x) + x · φ(x))`.
#[multiversion(targets = "simd")]
fn gelu_backward(x: &[f32], dy: &[f32], dx: &mut [f32]) {
    const INV_SQRT_2PI: f32 = 0.398_942_3;
    for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
        let (cdf, gauss) = cdf_and_gauss(x);
        *dx = dy * (cdf + x * gauss * INV_SQRT_2PI);
    }
}

/// Computes `(Φ(x), e^{−x²/2})` using a single exponential.
///
/// Φ uses formula 7.1.26 of Abramowitz & Stegun. The absolute error is below 1.5e-7, which is close
/// to the `f32` resolution near 1.
#[inline(always)]
#[expect(clippy::excessive_precision, reason = "constants are written exactly as published")]
fn cdf_and_gauss(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let gauss = simd::exp(-z * z);
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper_tail = 0.5 * poly * gauss;
    (if x < 0.0 { upper_tail } else { 1.0 - upper_tail }, gauss)
}

/// Computes `y = x · σ(2u)`, which equals GELU because `½ (1 + tanh u) = σ(2u)`.
#[multiversion(targets = "simd")]
fn gelu_tanh_forward(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        let (near, gate, _) = gate(x);
        // Below −10 the gate is constant. It equals 0 to within 1e-38.
        *y = x.max(near) * gate;
    }
}

/// Computes `dx = dy · (σ(2u) + x · σ(2u) (1 − σ(2u)) · 2u′)`.
#[multiversion(targets = "simd")]
fn gelu_tanh_backward(x: &[f32], dy: &[f32], dx: &mut [f32]) {
    for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
        let (near, gate, complement) = gate(x);
        let slope = TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * near * near);
        *dx = dy * (gate + near * gate * complement * slope);
    }
}

const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;

/// Returns `x` clamped to ±10, together with `σ(2u)` and `1 − σ(2u)` at this point. Beyond ±10 the
/// gate is constant, and clamping prevents overflow.
#[inline(always)]
fn gate(x: f32) -> (f32, f32, f32) {
    let near = x.clamp(-10.0, 10.0);
    let (gate, complement) = simd::sigmoid(TWO_SQRT_2_OVER_PI * near * (1.0 + CUBIC * near * near));
    (near, gate, complement)
}

/// Computes `y = silu(gate) · up`.
#[multiversion(targets = "simd")]
fn swiglu_forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
        let (sigmoid, _) = simd::sigmoid(gate);
        // For a very large negative gate, even the smallest σ would make a difference.
        *y = gate.max(LEAST) * sigmoid * up;
    }
}

/// Computes `dgate = dy ∘ up ∘ σ(g) (1 + g (1 − σ(g)))` and `dup = dy ∘ silu(g)`.
#[multiversion(targets = "simd")]
fn swiglu_backward(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let inputs = gate.iter().zip(up).zip(dy);
    for (((&gate, &up), &dy), (dgate, dup)) in inputs.zip(dgate.iter_mut().zip(dup)) {
        let (sigmoid, complement) = simd::sigmoid(gate);
        let near = gate.clamp(LEAST, -LEAST);
        *dgate = dy * up * (sigmoid * (1.0 + near * complement));
        *dup = dy * (gate.max(LEAST) * sigmoid);
    }
}

/// At this value, `g · σ(g)` is 0 to within 1e-36.
const LEAST: f32 = -87.0;

//! Elementwise operations: both variants of GELU, and SwiGLU.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{binary, elements, empty_like, unary, unit_each};
use crate::tape::Operation;

pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    unary(Gelu { tanh: false }, x)
}

pub(crate) fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    unary(Gelu { tanh: true }, x)
}

pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    binary(Swiglu, gate, up)
}

/// GELU, or its approximation by a hyperbolic tangent.
#[derive(Clone, Copy, Debug)]
struct Gelu {
    tanh: bool,
}

impl Operation<Cube, 1> for Gelu {
    /// The input.
    type Saved = CubeTensor;

    fn forward(&self, [x]: [CubeTensor; 1], _: [bool; 1]) -> (CubeTensor, CubeTensor) {
        let x = into_contiguous(x);
        let y = empty_like(&x);
        let (count, dim) = unit_each(&x.client, elements(&x));
        let (from, to) = (x.clone().into_buffer_arg(), y.clone().into_buffer_arg());
        gelu_forward::launch(&x.client, count, dim, from, to, self.tanh);
        (y, x)
    }

    fn backward(self, x: CubeTensor, dy: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let (dy, dx) = (into_contiguous(dy), empty_like(&x));
        let (count, dim) = unit_each(&x.client, elements(&x));
        gelu_backward::launch(
            &x.client,
            count,
            dim,
            x.clone().into_buffer_arg(),
            dy.into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            self.tanh,
        );
        [Some(dx)]
    }
}

#[derive(Debug)]
struct Swiglu;

impl Operation<Cube, 2> for Swiglu {
    /// The inputs.
    type Saved = [CubeTensor; 2];

    fn forward(&self, inputs: [CubeTensor; 2], _: [bool; 2]) -> (CubeTensor, Self::Saved) {
        let [gate, up] = inputs.map(into_contiguous);
        let y = empty_like(&gate);
        let (count, dim) = unit_each(&gate.client, elements(&gate));
        swiglu_forward::launch(
            &gate.client,
            count,
            dim,
            gate.clone().into_buffer_arg(),
            up.clone().into_buffer_arg(),
            y.clone().into_buffer_arg(),
        );
        (y, [gate, up])
    }

    fn backward(
        self,
        [gate, up]: Self::Saved,
        dy: CubeTensor,
        _: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        let dy = into_contiguous(dy);
        let [dgate, dup] = [&gate, &up].map(empty_like);
        let (count, dim) = unit_each(&gate.client, elements(&gate));
        swiglu_backward::launch(
            &gate.client,
            count,
            dim,
            gate.clone().into_buffer_arg(),
            up.into_buffer_arg(),
            dy.into_buffer_arg(),
            dgate.clone().into_buffer_arg(),
            dup.clone().into_buffer_arg(),
        );
        [Some(dgate), Some(dup)]
    }
}

/// Computes `y = x · Φ(x)`, or the approximation `y = x · σ(2u)`.
#[cube(launch)]
fn gelu_forward(x: &[f32], y: &mut [f32], #[comptime] tanh: bool) {
    let at = ABSOLUTE_POS;
    if at >= y.len() {
        terminate!();
    }
    y[at] = gelu_of(x[at], tanh);
}

#[cube]
pub(super) fn gelu_of(x: f32, #[comptime] tanh: bool) -> f32 {
    if comptime!(tanh) {
        let (near, gate, _complement) = tanh_gate(x);
        // Below −10 the gate is constant. It equals 0 to within 1e-38.
        at_least(x, near) * gate
    } else {
        x * normal_cdf(x)
    }
}

/// Computes `dx = dy · (Φ(x) + x · φ(x))`, or `dx = dy · (σ(2u) + x · σ(2u) (1 − σ(2u)) · 2u′)`.
#[cube(launch)]
fn gelu_backward(x: &[f32], dy: &[f32], dx: &mut [f32], #[comptime] tanh: bool) {
    let at = ABSOLUTE_POS;
    if at >= dx.len() {
        terminate!();
    }
    if tanh {
        let (near, gate, complement) = tanh_gate(x[at]);
        let slope = TWO_SQRT_2_OVER_PI * (1.0f32 + 3.0f32 * CUBIC * near * near);
        dx[at] = dy[at] * (gate + near * gate * complement * slope);
    } else {
        let density = (-0.5f32 * x[at] * x[at]).exp() * INV_SQRT_2PI;
        dx[at] = dy[at] * (normal_cdf(x[at]) + x[at] * density);
    }
}

const INV_SQRT_2PI: f32 = 0.398_942_3;
const INV_SQRT_2: f32 = std::f32::consts::FRAC_1_SQRT_2;
const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;

#[cube]
fn normal_cdf(x: f32) -> f32 {
    0.5f32 * (1.0f32 + Erf::erf(x * INV_SQRT_2))
}

/// Returns `x` clamped to ±10, together with `σ(2u)` and `1 − σ(2u)` at this point. Beyond ±10 the
/// gate is constant, and clamping prevents overflow.
#[cube]
fn tanh_gate(x: f32) -> (f32, f32, f32) {
    let near = within(x, 10.0f32);
    let (gate, complement) = sigmoid(TWO_SQRT_2_OVER_PI * near * (1.0f32 + CUBIC * near * near));
    (near, gate, complement)
}

/// Returns the larger number, or NaN if `x` is NaN. The maximum of GPUs ignores NaN.
#[cube]
fn at_least(x: f32, least: f32) -> f32 {
    if x < least { least } else { x }
}

/// Clamps to ±`bound`, but keeps NaN.
#[cube]
fn within(x: f32, bound: f32) -> f32 {
    if x > bound { bound } else { at_least(x, -bound) }
}

/// Returns `σ(x)` and `1 − σ(x)`.
#[cube]
fn sigmoid(x: f32) -> (f32, f32) {
    // The exponential of a negative number cannot overflow.
    let small = (-x.abs()).exp();
    let (large_part, small_part) = (1.0f32 / (1.0f32 + small), small / (1.0f32 + small));
    if x >= 0.0f32 { (large_part, small_part) } else { (small_part, large_part) }
}

/// Computes `y = silu(gate) · up`.
#[cube(launch)]
fn swiglu_forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    let at = ABSOLUTE_POS;
    if at >= y.len() {
        terminate!();
    }
    y[at] = swiglu_of(gate[at], up[at]);
}

#[cube]
pub(super) fn swiglu_of(gate: f32, up: f32) -> f32 {
    let (sigmoid, _complement) = sigmoid(gate);
    at_least(gate, LEAST) * sigmoid * up
}

/// Computes `dgate = dy ∘ up ∘ σ(g) (1 + g (1 − σ(g)))` and `dup = dy ∘ silu(g)`.
#[cube(launch)]
fn swiglu_backward(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let at = ABSOLUTE_POS;
    if at >= dgate.len() {
        terminate!();
    }
    let (sigmoid, complement) = sigmoid(gate[at]);
    let near = within(gate[at], -LEAST);
    dgate[at] = dy[at] * up[at] * (sigmoid * (1.0f32 + near * complement));
    dup[at] = dy[at] * (at_least(gate[at], LEAST) * sigmoid);
}

/// At this value, `g · σ(g)` is 0 to within 1e-36.
const LEAST: f32 = -87.0;

//! GELU, its tanh approximation, and SwiGLU.

use burn::tensor::Tensor;
use grpo_kernels::{gelu, gelu_tanh, is_cpu, plain, swiglu};

use crate::support::{
    assert_each_close, device, differentiate, finite_differences, host, tensor, values,
};

fn gelu_oracle(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))).collect()
}

fn gelu_tanh_oracle(x: &[f64]) -> Vec<f64> {
    let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    x.iter().map(|&x| 0.5 * x * (1.0 + u(x).tanh())).collect()
}

fn swiglu_oracle(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
}

/// Checks values to 3e-7 and gradients to 5e-7 for inputs in −9..9. The gradient of the plain
/// version is only accurate to 3e-6, because it computes the difference `1 − tanh²` and multiplies
/// it by a slope of up to 10.
#[track_caller]
fn check_activation(
    fused: fn(Tensor<2>) -> Tensor<2>,
    plain: fn(Tensor<2>) -> Tensor<2>,
    oracle: fn(&[f64]) -> Vec<f64>,
) {
    let device = device().autodiff();
    let x: Vec<f64> = values(1000, 1).iter().map(|v| f64::from(*v as f32 * 3.0)).collect();
    let w = values(1000, 2);
    for (operation, tolerance) in [(fused, 5e-7), (plain, 3e-6)] {
        let input = tensor(&x, [10, 100], &device);
        let (output, [gradient]) = differentiate([input], &w, |[x]| operation(x));
        assert_each_close(&output, &oracle(&x), 3e-7);
        assert_each_close(&gradient, &finite_differences(&x, oracle, &w), tolerance);
    }
}

#[test]
fn gelu_and_its_gradient() {
    check_activation(gelu, plain::gelu, gelu_oracle);
}

#[test]
fn gelu_tanh_and_its_gradient() {
    check_activation(gelu_tanh, plain::gelu_tanh, gelu_tanh_oracle);
}

#[test]
fn the_two_gelus_differ() {
    let x = tensor(&[2.0], [1], &device());
    // Both values are computed from the definition to five digits.
    assert_each_close(&host(gelu(x.clone())), &[1.954_50], 1e-5);
    assert_each_close(&host(gelu_tanh(x)), &[1.954_60], 1e-5);
}

#[test]
fn swiglu_and_its_gradients() {
    let device = device().autodiff();
    // The last shape has more than one chunk of 16 × 1024.
    for shape in [[1, 1], [3, 37], [40, 417]] {
        let n = shape[0] * shape[1];
        let gate: Vec<f64> = values(n, 3).iter().map(|v| f64::from(*v as f32 * 3.0)).collect();
        let (up, w) = (values(n, 4), values(n, 5));
        let of_gate = |gate: &[f64]| swiglu_oracle(gate, &up);
        let of_up = |up: &[f64]| swiglu_oracle(&gate, up);
        let differentiate = |operation: fn(Tensor<2>, Tensor<2>) -> Tensor<2>| {
            let inputs = [tensor(&gate, shape, &device), tensor(&up, shape, &device)];
            differentiate(inputs, &w, |[gate, up]| operation(gate, up))
        };
        let (output, [dgate, dup]) = differentiate(swiglu);
        let (plain_output, [plain_dgate, plain_dup]) = differentiate(plain::swiglu);
        assert_each_close(&output, &swiglu_oracle(&gate, &up), 3e-7);
        assert_each_close(&plain_output, &swiglu_oracle(&gate, &up), 3e-7);
        if n < 1000 {
            assert_each_close(&dgate, &finite_differences(&gate, of_gate, &w), 3e-7);
            assert_each_close(&dup, &finite_differences(&up, of_up, &w), 3e-7);
        }
        // The plain version computes the difference `1 − σ` and multiplies it by numbers up to 9 ·
        // 9.
        assert_each_close(&plain_dgate, &dgate, 3e-6);
        assert_each_close(&plain_dup, &dup, 3e-7);
    }
}

#[test]
fn combines_a_constant_and_a_tracked_tensor() {
    let device = device().autodiff();
    let (gate, up) = (tensor(&[0.7], [1, 1], &device), tensor(&[2.0], [1, 1], &device));
    let tracked = up.clone().require_grad();
    let gradients = swiglu(gate.clone(), tracked.clone()).sum().backward();
    let silu = swiglu_oracle(&[f64::from(0.7_f32)], &[1.0]);
    assert_each_close(&host(tracked.grad(&gradients).unwrap()), &silu, 1e-7);
    assert!(gate.grad(&gradients).is_none());
}

/// Checks that `f` and its derivative approach their limits 0 and `x` where `x³` and `eˣ` overflow.
#[track_caller]
fn check_extremes(f: impl Fn(Tensor<2>) -> Tensor<2>) {
    let x = [-3e38, -1e30, -1e3, -88.0, -20.0, 0.0, 20.0, 88.0, 1e3, 1e30, 3e38];
    let input = tensor(&x, [1, x.len()], &device().autodiff());
    let (output, [gradient]) = differentiate([input], &[1.0; 11], |[x]| f(x));
    for ((x, y), dx) in x.iter().zip(&output).zip(&gradient) {
        let x = f64::from(*x as f32);
        let (value, slope) =
            if x > 0.0 { (x, 1.0) } else { (0.0, if x < 0.0 { 0.0 } else { 0.5 }) };
        // At ±20, the logistic function is within 2e-9 of its limit.
        assert!((y - value).abs() <= 1e-30 + 5e-8 * f64::from(x.abs() <= 20.0), "f({x}) = {y}");
        assert!((dx - slope).abs() <= 1e-30 + 5e-8 * f64::from(x.abs() <= 20.0), "f'({x}) = {dx}");
    }
}

#[test]
fn extremes_are_finite() {
    check_extremes(gelu_tanh);
    check_extremes(plain::gelu_tanh);
    check_extremes(|x| swiglu(x.clone(), x.ones_like()));
    // The same holds for the gradient of `up`, which is silu as well.
    let tracked = device().autodiff();
    let gate = tensor(&[-1e30, 1e30], [1, 2], &tracked);
    let up = tensor(&[0.0; 2], [1, 2], &tracked);
    let (_, [dup]) = differentiate([up], &[1.0; 2], |[up]| swiglu(gate.clone(), up));
    assert!(dup[0].abs() <= 1e-30 && dup[1] == f64::from(1e30_f32), "{dup:?}");
    let device = device();
    let x = [-1e30, -1e3, -20.0, 0.0, 20.0, 1e3, 1e30];
    let got = host(gelu(tensor(&x, [7], &device)));
    for (x, y) in x.iter().zip(&got) {
        let expected = if *x > 0.0 { f64::from(*x as f32) } else { 0.0 };
        assert!((y - expected).abs() <= 1e-30, "gelu({x}) = {y}");
    }
}

#[test]
fn nan_stays_nan() {
    if !is_cpu(&device()) {
        // The language of WebGPU may assume that there are no NaNs (WGSL, section 15.7.2).
        return;
    }
    let x = tensor(&[f64::NAN, 1.0], [1, 2], &device().autodiff());
    for f in [gelu, gelu_tanh, |x: Tensor<2>| swiglu(x.clone(), x.ones_like())] {
        let (output, [gradient]) = differentiate([x.clone()], &[1.0; 2], |[x]| f(x));
        assert!(output[0].is_nan() && !output[1].is_nan());
        assert!(gradient[0].is_nan() && !gradient[1].is_nan());
    }
}

#[test]
#[should_panic(expected = "gate against up")]
fn swiglu_of_other_shapes() {
    let device = device();
    swiglu(tensor(&[1.0], [1, 1], &device), tensor(&[1.0; 2], [1, 2], &device));
}

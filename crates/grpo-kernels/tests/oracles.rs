//! Each fused operation against plain f64 loops, and its gradient against the derivative of those loops
//! taken by finite differences.

use burn::tensor::{Device, Tensor, TensorData};
use grpo_kernels::{causal_softmax, gelu, layer_norm, plain};

/// Deterministic, non-trivial values in about −3..3.
fn values(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Through f32, so that the oracle sees exactly what the kernel sees.
            f64::from(((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 6.0)
        })
        .collect()
}

fn tensor<const D: usize>(values: &[f64], shape: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * scale, "element {i}: {g}, expected {e}");
    }
}

/// d(Σ w·f(x))/dx by central differences of an f64 function: error about 1e-9.
fn finite_differences(x: &[f64], f: impl Fn(&[f64]) -> Vec<f64>, w: &[f64]) -> Vec<f64> {
    let h = 1e-5;
    let dot = |x: &[f64]| f(x).iter().zip(w).map(|(y, w)| y * w).sum::<f64>();
    (0..x.len())
        .map(|i| {
            let mut moved = x.to_vec();
            moved[i] = x[i] + h;
            let up = dot(&moved);
            moved[i] = x[i] - h;
            (up - dot(&moved)) / (2.0 * h)
        })
        .collect()
}

fn gelu_oracle(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))).collect()
}

fn softmax_oracle(x: &[f64], heads: usize, queries: usize, keys: usize, scale: f64) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for row in 0..heads * queries {
        let visible = row % queries + 1 + keys - queries;
        let row = row * keys;
        let total: f64 = (0..visible).map(|k| (scale * x[row + k]).exp()).sum();
        for k in 0..visible {
            out[row + k] = (scale * x[row + k]).exp() / total;
        }
    }
    out
}

fn layer_norm_oracle(x: &[f64], gamma: &[f64], beta: &[f64], epsilon: f64) -> Vec<f64> {
    let n = gamma.len() as f64;
    x.chunks(gamma.len())
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / n;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let scaled = row.iter().zip(gamma).zip(beta);
            scaled
                .map(|((x, g), b)| (x - mean) / (variance + epsilon).sqrt() * g + b)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn gelu_and_its_gradient() {
    let device = Device::flex().autodiff();
    let x = values(1000, 1);
    let w = values(1000, 2);
    let input = tensor(&x, [10, 100], &device).require_grad();
    let output = gelu(input.clone());
    assert_close(&host(output.clone()), &gelu_oracle(&x), 3e-7);
    let gradients = (output * tensor(&w, [10, 100], &device)).sum().backward();
    let expected = finite_differences(&x, gelu_oracle, &w);
    assert_close(&host(input.grad(&gradients).unwrap()), &expected, 1e-6);
}

#[test]
fn gelu_at_the_extremes_is_finite() {
    let device = Device::flex();
    let x = [-1e30, -1e3, -20.0, 0.0, 20.0, 1e3, 1e30];
    let got = host(gelu(tensor(&x, [7], &device)));
    for (x, y) in x.iter().zip(&got) {
        let expected = if *x > 0.0 { f64::from(*x as f32) } else { 0.0 };
        assert!((y - expected).abs() <= 1e-30, "gelu({x}) = {y}");
    }
}

#[test]
fn causal_softmax_and_its_gradient() {
    let device = Device::flex().autodiff();
    for (queries, keys) in [(1, 1), (5, 5), (1, 7), (3, 9), (19, 35)] {
        let n = 2 * 3 * queries * keys;
        let (x, w, scale) = (values(n, 3), values(n, 4), 0.37);
        let shape = [2, 3, queries, keys];
        let input = tensor(&x, shape, &device).require_grad();
        let output = causal_softmax(input.clone(), scale);
        let oracle = |x: &[f64]| softmax_oracle(x, 6, queries, keys, scale);
        assert_close(&host(output.clone()), &oracle(&x), 3e-7);
        if n < 1000 {
            let gradients = (output * tensor(&w, shape, &device)).sum().backward();
            let expected = finite_differences(&x, oracle, &w);
            assert_close(&host(input.grad(&gradients).unwrap()), &expected, 1e-6);
        }
    }
}

#[test]
fn layer_norm_and_its_gradients() {
    let device = Device::flex().autodiff();
    // 300 rows: more than one chunk of rows, so that the partial sums are added.
    for (rows, features) in [(1, 3), (4, 33), (300, 5)] {
        let n = rows * features;
        // An offset, so that a one-pass variance would show its cancellation.
        let x: Vec<f64> = values(n, 5).iter().map(|v| f64::from(*v as f32 + 50.0)).collect();
        let (w, gamma, beta) = (values(n, 6), values(features, 7), values(features, 8));
        let input = tensor(&x, [rows, features], &device).require_grad();
        let scale = tensor(&gamma, [features], &device).require_grad();
        let shift = tensor(&beta, [features], &device).require_grad();
        let output = layer_norm(input.clone(), scale.clone(), shift.clone(), 1e-5);
        // The mean of values near 50 is known to 50 · 2⁻²⁴ · a few.
        assert_close(&host(output.clone()), &layer_norm_oracle(&x, &gamma, &beta, 1e-5), 1e-5);
        let gradients = (output * tensor(&w, [rows, features], &device)).sum().backward();
        let of = |t: &[f64], f: &dyn Fn(&[f64]) -> Vec<f64>| finite_differences(t, f, &w);
        let dx = of(&x, &|x| layer_norm_oracle(x, &gamma, &beta, 1e-5));
        let dgamma = of(&gamma, &|g| layer_norm_oracle(&x, g, &beta, 1e-5));
        let dbeta = of(&beta, &|b| layer_norm_oracle(&x, &gamma, b, 1e-5));
        assert_close(&host(input.grad(&gradients).unwrap()), &dx, 2e-5);
        assert_close(&host(scale.grad(&gradients).unwrap()), &dgamma, 2e-5);
        assert_close(&host(shift.grad(&gradients).unwrap()), &dbeta, 2e-5);
    }
}

#[test]
fn plain_versions_agree() {
    let device = Device::flex();
    let x = values(2 * 2 * 6 * 9, 9);
    let scores = tensor(&x, [2, 2, 6, 9], &device);
    assert_close(
        &host(causal_softmax(scores.clone(), 0.5)),
        &host(plain::causal_softmax(scores.clone(), 0.5)),
        3e-7,
    );
    assert_close(&host(gelu(scores.clone())), &host(plain::gelu(scores)), 3e-7);
    let (gamma, beta) = (values(9, 10), values(9, 11));
    let rows = tensor(&x, [24, 9], &device);
    let (gamma, beta) = (tensor(&gamma, [9], &device), tensor(&beta, [9], &device));
    assert_close(
        &host(layer_norm(rows.clone(), gamma.clone(), beta.clone(), 1e-5)),
        &host(plain::layer_norm(rows, gamma, beta, 1e-5)),
        1e-6,
    );
}

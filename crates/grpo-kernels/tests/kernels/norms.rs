//! Layer norm and RMS norm.

use burn::tensor::Tensor;
use grpo_kernels::{layer_norm, plain, rms_norm};

use crate::support::{assert_close, device, finite_differences, host, tensor, values};

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

fn rms_norm_oracle(x: &[f64], gamma: &[f64], epsilon: f64) -> Vec<f64> {
    x.chunks(gamma.len())
        .flat_map(|row| {
            let mean_square = row.iter().map(|x| x * x).sum::<f64>() / gamma.len() as f64;
            let scaled = row.iter().zip(gamma);
            scaled.map(|(x, g)| x / (mean_square + epsilon).sqrt() * g).collect::<Vec<_>>()
        })
        .collect()
}

/// One shape has more features than units of a GPU, and the last one more rows than a chunk, so partial
/// sums are added.
const SHAPES: [[usize; 2]; 4] = [[1, 3], [4, 33], [3, 300], [300, 5]];

#[test]
fn layer_norm_and_its_gradients() {
    let device = device().autodiff();
    for shape in SHAPES {
        let [rows, features] = shape;
        let n = rows * features;
        // With a large offset, a one-pass variance would suffer from cancellation.
        let x: Vec<f64> = values(n, 5).iter().map(|v| f64::from(*v as f32 + 50.0)).collect();
        let (w, gamma, beta) = (values(n, 6), values(features, 7), values(features, 8));
        let expected = layer_norm_oracle(&x, &gamma, &beta, 1e-5);
        let of = |t: &[f64], f: &dyn Fn(&[f64]) -> Vec<f64>| finite_differences(t, f, &w);
        let dx = of(&x, &|x| layer_norm_oracle(x, &gamma, &beta, 1e-5));
        let dgamma = of(&gamma, &|g| layer_norm_oracle(&x, g, &beta, 1e-5));
        let dbeta = of(&beta, &|b| layer_norm_oracle(&x, &gamma, b, 1e-5));
        for operation in [layer_norm, plain::layer_norm] {
            let input = tensor(&x, shape, &device).require_grad();
            let scale = tensor(&gamma, [features], &device).require_grad();
            let shift = tensor(&beta, [features], &device).require_grad();
            let output = operation(input.clone(), scale.clone(), shift.clone(), 1e-5);
            // The mean of values near 50 is accurate to a few times 50 · 2⁻²⁴.
            assert_close(&host(output.clone()), &expected, 1e-5);
            let gradients = (output * tensor(&w, shape, &device)).sum().backward();
            assert_close(&host(input.grad(&gradients).unwrap()), &dx, 2e-5);
            assert_close(&host(scale.grad(&gradients).unwrap()), &dgamma, 2e-5);
            assert_close(&host(shift.grad(&gradients).unwrap()), &dbeta, 2e-5);
        }
    }
}

#[test]
fn rms_norm_and_its_gradients() {
    let device = device().autodiff();
    // The second ε is as large as the mean square, which checks that it is added before taking the
    // root.
    for (shape, epsilon) in SHAPES.into_iter().flat_map(|shape| [(shape, 1e-6), (shape, 2.5)]) {
        let [rows, features] = shape;
        let n = rows * features;
        let (x, w, gamma) = (values(n, 5), values(n, 6), values(features, 7));
        let expected = rms_norm_oracle(&x, &gamma, epsilon);
        let dx = finite_differences(&x, |x| rms_norm_oracle(x, &gamma, epsilon), &w);
        let dgamma = finite_differences(&gamma, |g| rms_norm_oracle(&x, g, epsilon), &w);
        for operation in [rms_norm, plain::rms_norm] {
            let input = tensor(&x, shape, &device).require_grad();
            let scale = tensor(&gamma, [features], &device).require_grad();
            let output = operation(input.clone(), scale.clone(), epsilon);
            assert_close(&host(output.clone()), &expected, 3e-7);
            let gradients = (output * tensor(&w, shape, &device)).sum().backward();
            assert_close(&host(input.grad(&gradients).unwrap()), &dx, 1e-6);
            assert_close(&host(scale.grad(&gradients).unwrap()), &dgamma, 1e-6);
        }
    }
}

/// As with adapters, the parameters are frozen but the input has a gradient.
#[test]
fn frozen_parameters() {
    let device = device().autodiff();
    let (x, gamma, beta) = (values(12, 9), values(4, 10), values(4, 11));
    let operations: [&dyn Fn(Tensor<2>, Tensor<1>, Tensor<1>) -> Tensor<2>; 2] =
        [&|x, gamma, _| rms_norm(x, gamma, 1e-5), &|x, gamma, beta| {
            layer_norm(x, gamma, beta, 1e-5)
        }];
    for operation in operations {
        let gradient = |frozen: bool| {
            let input = tensor(&x, [3, 4], &device).require_grad();
            let scale = tensor(&gamma, [4], &device).set_require_grad(!frozen);
            let shift = tensor(&beta, [4], &device).set_require_grad(!frozen);
            let output = operation(input.clone(), scale.clone(), shift);
            let gradients = output.square().sum().backward();
            assert_eq!(scale.grad(&gradients).is_none(), frozen);
            host(input.grad(&gradients).unwrap())
        };
        assert_eq!(gradient(true), gradient(false));
    }
}

#[test]
fn parameters_that_learn_beside_an_input_that_does_not() {
    let device = device().autodiff();
    let (x, gamma, w) = (values(12, 9), values(4, 10), values(12, 12));
    let scale = tensor(&gamma, [4], &device).require_grad();
    let shift = tensor(&gamma, [4], &device);
    let dgamma = |output: Tensor<2>| {
        let gradients = (output * tensor(&w, [3, 4], &device)).sum().backward();
        host(scale.grad(&gradients).unwrap())
    };
    let input = tensor(&x, [3, 4], &device);
    let expected = finite_differences(&gamma, |g| rms_norm_oracle(&x, g, 1e-5), &w);
    assert_close(&dgamma(rms_norm(input.clone(), scale.clone(), 1e-5)), &expected, 1e-6);
    let expected = finite_differences(&gamma, |g| layer_norm_oracle(&x, g, &gamma, 1e-5), &w);
    assert_close(&dgamma(layer_norm(input, scale.clone(), shift, 1e-5)), &expected, 1e-6);
}

#[test]
#[should_panic(expected = "gamma must have one value per feature of x")]
fn rms_norm_with_a_gamma_of_another_length() {
    let device = device();
    rms_norm(tensor(&[1.0; 6], [2, 3], &device), tensor(&[1.0; 2], [2], &device), 1e-5);
}

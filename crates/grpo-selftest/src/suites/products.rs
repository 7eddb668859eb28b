//! Tests products of factors that are rounded to 16 bits, which GPUs multiply on tensor cores.

use burn::tensor::{Device, Tensor, TensorData, bf16, f16};
use grpo_kernels::{Half, PackedWeight, half_linear};

use crate::report::{Suite, Tolerance};
use crate::tensors::Precision;

/// Rows, inner dimension and columns. Devices divide products differently if they have few rows, few
/// columns or a long inner dimension, or fill no whole tile.
const SHAPES: [[usize; 3]; 6] =
    [[1, 64, 48], [5, 7, 3], [33, 50, 17], [200, 96, 130], [128, 256, 8], [80, 1024, 96]];

/// Magnitude of the upstream gradients. As numbers in f16, all of them would be 0.
const SMALL: f64 = 1.0 / (1_u64 << 40) as f64;

/// Compares outputs and both gradients with f64 loops.
pub(super) fn suite(format: Half, device: &Device) -> Suite {
    let name = match format {
        Half::Bf16 => "products in bf16",
        Half::F16 => "products in f16",
    };
    let mut suite = Suite::new(name, "f64 loops of rounded factors", Precision::F32);
    for (number, [rows, inner, columns]) in SHAPES.into_iter().enumerate() {
        let values = |length: usize, of: u64| numbers(length, 3 * number as u64 + of);
        let (x, w) = (values(rows * inner, 0), values(inner * columns, 1));
        let upstream = values(rows * columns, 2);
        let tracked = device.clone().autodiff();
        let tensor = |values: &[f32], shape: [usize; 2]| -> Tensor<2> {
            Tensor::from_data(TensorData::new(values.to_vec(), shape), &tracked)
        };
        let input = tensor(&x, [rows, inner]).require_grad();
        let weight = tensor(&w, [inner, columns]).require_grad();
        let output = half_linear(input.clone(), weight.clone(), None, format);
        let weighted = output.clone() * (tensor(&upstream, [rows, columns]) * SMALL);
        let gradients = weighted.sum().backward();
        let [x, w, upstream] = [x, w, upstream].map(|values| rounded(&values, format));
        let shape = [rows, inner, columns];
        let mut compared = suite.case(format!("{shape:?}"));
        let across = |values: &[f64], [rows, columns]: [usize; 2]| -> Vec<f64> {
            (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
        };
        let of_x = product(&upstream, &across(&w, [inner, columns]), [rows, columns, inner]);
        let of_w = product(&across(&x, [rows, inner]), &upstream, [inner, rows, columns]);
        let gradient = |of: &Tensor<2>| {
            (of.grad(&gradients).expect("it is tracked") * (1.0 / SMALL)).into_data()
        };
        let (of_input, of_weight) = (gradient(&input), gradient(&weight));
        let expected = product(&x, &w, shape);
        let sampled =
            PackedWeight::rounded(weight.inner(), format).linear(input.inner(), None).into_data();
        for (what, got, expected, terms) in [
            ("output", output.into_data(), expected.clone(), inner),
            ("output while sampling", sampled, expected, inner),
            ("gradient of x", of_input, of_x, columns),
            ("gradient of the weight", of_weight, of_w, rows),
        ] {
            // Tensor cores add four or more terms at a time and may cut off the last bit of the sum.
            // The error of factors that were not rounded, or were rounded to another format, is larger.
            let additions = 4.0 + terms as f64 / 4.0;
            let tolerance = Tolerance::of_largest_or_1(additions * f64::from(f32::EPSILON));
            compared.rows(what, &[got.iter::<f64>().collect()], &[expected], tolerance);
        }
    }
    suite
}

/// Returns numbers between −1 and 1 that 16 bits do not represent.
fn numbers(length: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..length).map(|_| next()).collect()
}

fn rounded(values: &[f32], format: Half) -> Vec<f64> {
    let round = |value: f32| match format {
        Half::Bf16 => bf16::from_f32(value).to_f32(),
        Half::F16 => f16::from_f32(value).to_f32(),
    };
    values.iter().map(|&value| f64::from(round(value))).collect()
}

/// Computes `a · b` for `a` of shape `[m, k]` and `b` of shape `[k, n]`.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let sum = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(sum).collect()
}

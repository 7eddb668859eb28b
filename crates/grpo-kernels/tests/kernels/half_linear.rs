//! Products of factors that are rounded to 16 bits, against sums in f64. That those in bf16 are the
//! same for all instruction sets is tested next to the implementation.

use burn::tensor::{Tensor, bf16, f16};
use grpo_kernels::{Half, PackedWeight, batch_invariant_linear, half_linear, is_cpu, plain};
use proptest::prelude::*;

use crate::support::{assert_close, bits, device, differentiate, host, tensor, transposed, values};

const FORMATS: [Half; 2] = [Half::Bf16, Half::F16];

fn rounded(values: &[f64], format: Half) -> Vec<f64> {
    // Not `from_f64`, which ignores half of the bits in bf16.
    let round = |value: f32| match format {
        Half::Bf16 => bf16::from_f32(value).to_f32(),
        Half::F16 => f16::from_f32(value).to_f32(),
    };
    values.iter().map(|&value| f64::from(round(value as f32))).collect()
}

/// Rounds the gradient of an output, which is first scaled for f16.
fn rounded_gradient(values: &[f64], format: Half) -> Vec<f64> {
    if format == Half::Bf16 {
        return rounded(values, format);
    }
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let scale = 2_f64.powf(14.0 - largest.log2().floor());
    let scaled: Vec<f64> = values.iter().map(|value| value * scale).collect();
    rounded(&scaled, format).iter().map(|value| value / scale).collect()
}

/// Computes `a · b` in f64.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let sum = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(sum).collect()
}

fn half_matmul(a: Tensor<2>, b: Tensor<2>, format: Half) -> Tensor<2> {
    half_linear(a, b, None, format)
}

/// Checks a product and its gradients, with the second factor as a transposed view. The gradient of the
/// output has the magnitude `gradient`.
fn check([m, k, n]: [usize; 3], seed: u64, format: Half, gradient: f64) {
    let device = device().autodiff();
    let (x, y, w) = (values(m * k, seed), values(n * k, seed + 1), values(m * n, seed + 2));
    let w: Vec<f64> = w.iter().map(|value| f64::from((value * gradient) as f32)).collect();
    let inputs = [tensor(&x, [m, k], &device), tensor(&y, [n, k], &device)];
    let (out, [dx, dy]) = differentiate(inputs, &w, |[x, y]| half_matmul(x, y.transpose(), format));
    let [x, y] = [x, y].map(|values| rounded(&values, format));
    let w = rounded_gradient(&w, format);
    let near = |got: &[f64], expected: &[f64], terms: usize, magnitude: f64| {
        let [got, expected] =
            [got, expected].map(|all| all.iter().map(|x| x / magnitude).collect::<Vec<f64>>());
        assert_close(&got, &expected, 1e-6 * (terms as f64).sqrt());
    };
    near(&out, &product(&x, &transposed(&y, [n, k]), [m, k, n]), k, 1.0);
    near(&dx, &product(&w, &y, [m, n, k]), n, gradient);
    near(&dy, &product(&transposed(&w, [m, n]), &x, [n, m, k]), m, gradient);
}

#[test]
fn products_and_gradients_are_those_of_rounded_factors() {
    for format in FORMATS {
        for shape in
            [[1, 1, 1], [5, 7, 3], [33, 50, 17], [300, 200, 190], [8, 1024, 68], [68, 1024, 8]]
        {
            check(shape, 1, format, 1.0);
        }
    }
}

/// Without a scale, they would be 0 or infinite in f16.
#[test]
fn small_and_large_gradients() {
    for format in FORMATS {
        for gradient in [1e-12, 1e12] {
            check([40, 70, 90], 1, format, gradient);
            check([300, 64, 33], 2, format, gradient);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_shape(
        m in 1_usize..20,
        k in 1_usize..40,
        n in 1_usize..80,
        seed in 0_u64..1000,
        exponent in -30..30,
    ) {
        for format in FORMATS {
            check([m, k, n], seed, format, 2_f64.powi(exponent));
        }
    }
}

/// The scale of a gradient has limits, and what is not finite stays so.
#[test]
fn gradients_at_the_limits() {
    let device = device().autodiff();
    let of = |gradient: f32, format| {
        let x = tensor(&[1.0; 6], [2, 3], &device).require_grad();
        let weight = tensor(&[0.5; 12], [3, 4], &device).require_grad();
        let y = half_matmul(x.clone(), weight.clone(), format);
        let mut all = vec![0.0; 8];
        all[5] = f64::from(gradient);
        let gradients = (y * tensor(&all, [2, 4], &device)).sum().backward();
        let [x, weight] = [x, weight].map(|x| host(x.grad(&gradients).unwrap()));
        [x[3], weight[1]]
    };
    for format in FORMATS {
        assert_eq!(of(0.0, format), [0.0, 0.0]);
        for power in [-120, -100, 100, 120, 127] {
            let gradient = 2_f64.powi(power);
            assert_eq!(of(gradient as f32, format), [0.5 * gradient, gradient], "2^{power}");
        }
        assert!(of(f32::INFINITY, format).iter().all(|x| *x == f64::INFINITY));
        assert!(of(f32::NAN, format).iter().all(|x| x.is_nan()));
    }
}

/// Subnormal numbers of f16 are kept, and too large ones become infinite.
#[test]
fn the_range_of_f16() {
    let device = device();
    let factor = |value: f32| tensor(&[f64::from(value); 4], [1, 4], &device);
    let one = tensor(&[0.25; 4], [4, 1], &device);
    for value in [6.1e-5, 5.96e-8, -4.0e-6, 2.9e-8, 3.0e-8, 65_519.0, -65_520.0, 65_520.0, 1e9] {
        let expected = f64::from(f16::from_f32(value).to_f32());
        assert_eq!(host(half_matmul(factor(value), one.clone(), Half::F16)), [expected], "{value}");
    }
}

/// A tied head is a view, and so is a part of a matrix.
#[test]
fn parts_of_matrices() {
    let device = device();
    let all = tensor(&values(40 * 50, 1), [40, 50], &device);
    let (a, b) = (all.clone().slice([3..13, 7..27]), all.slice([20..40, 1..50]));
    for format in FORMATS {
        let (x, y) = (rounded(&host(a.clone()), format), rounded(&host(b.clone()), format));
        let expected = product(&x, &y, [10, 20, 49]);
        assert_close(&host(half_matmul(a.clone(), b.clone(), format)), &expected, 1e-5);
        let across = host(half_matmul(b.clone().transpose(), a.clone().transpose(), format));
        assert_close(&across, &transposed(&expected, [10, 49]), 1e-5);
    }
}

#[test]
fn rows_are_independent_and_the_same_in_all_forms() {
    let device = device();
    for [rows, inner, columns] in [[1, 9, 1], [2, 128, 32], [13, 300, 80], [32, 64, 1056]] {
        let (x, weight) = (values(rows * inner, 1), values(inner * columns, 2));
        let (x, weight) =
            (tensor(&x, [rows, inner], &device), tensor(&weight, [inner, columns], &device));
        let bias = tensor(&values(columns, 3), [columns], &device);
        for format in FORMATS {
            let packed = PackedWeight::rounded(weight.clone(), format);
            let all = packed.linear(x.clone(), Some(bias.clone()));
            let product = half_linear(x.clone(), weight.clone(), Some(bias.clone()), format);
            assert_close(&host(product.clone()), &host(all.clone()), 1e-6 * (inner as f64).sqrt());
            if is_cpu(&device) {
                assert_eq!(bits(product), bits(all.clone()));
                for row in 0..rows {
                    let alone = packed.linear(x.clone().narrow(0, row, 1), Some(bias.clone()));
                    assert_eq!(bits(alone), bits(all.clone().narrow(0, row, 1)));
                }
                // The chain of multiply-adds is that of `f32` for rounded numbers.
                let [x, weight] = [&x, &weight].map(|x| plain::rounded(x.clone(), format));
                assert_eq!(bits(batch_invariant_linear(x, weight, Some(bias.clone()))), bits(all));
            }
        }
    }
}

/// The gradient of a sum is an expanded view.
#[test]
fn an_expanded_gradient() {
    let device = device().autodiff();
    let x = tensor(&values(6, 1), [2, 3], &device).require_grad();
    let constant = tensor(&values(12, 2), [3, 4], &device);
    for format in FORMATS {
        let gradients = half_matmul(x.clone(), constant.clone(), format).sum().backward();
        let weights = rounded(&host(constant.clone().inner()), format);
        let expected: Vec<f64> = weights.chunks(4).map(|row| row.iter().sum()).collect();
        assert_close(&host(x.grad(&gradients).unwrap()), &expected.repeat(2), 1e-6);
    }
}

/// A weight is converted to `f32` first.
#[test]
fn packed_weights_of_other_layouts_and_types() {
    let device = device();
    let (x, weight) = (values(5 * 64, 1), values(64 * 96, 2));
    let x = tensor(&x, [5, 64], &device);
    let rows = tensor(&weight, [64, 96], &device);
    let columns = tensor(&transposed(&weight, [64, 96]), [96, 64], &device).transpose();
    for format in FORMATS {
        let product = |weight: Tensor<2>| bits(half_linear(x.clone(), weight, None, format));
        let sampled =
            |weight: Tensor<2>| bits(PackedWeight::rounded(weight, format).linear(x.clone(), None));
        assert_eq!(sampled(columns.clone()), product(rows.clone()));
        if is_cpu(&device) {
            let half = rows.clone().cast(burn::tensor::FloatDType::BF16);
            assert_eq!(sampled(half.clone()), product(grpo_kernels::dense(half)));
            let packed = grpo_kernels::pack_four_bits(rows.clone());
            assert_eq!(sampled(packed.clone()), product(grpo_kernels::dense(packed)));
        }
    }
}

#[test]
fn the_plain_version_is_the_same_within_rounding() {
    let device = device();
    if !is_cpu(&device) {
        // Not every GPU has bf16.
        return;
    }
    let a = tensor(&values(20 * 70, 1), [20, 70], &device);
    let b = tensor(&values(70 * 30, 2), [70, 30], &device);
    for format in FORMATS {
        let expected = host(plain::half_matmul(a.clone(), b.clone(), format));
        assert_close(&host(half_matmul(a.clone(), b.clone(), format)), &expected, 1e-6);
    }
}

#[test]
fn nothing_to_multiply() {
    let device = device();
    for [m, k, n] in [[0, 3, 4], [2, 3, 0], [2, 0, 4]] {
        let (a, b) = (Tensor::<2>::zeros([m, k], &device), Tensor::<2>::zeros([k, n], &device));
        for format in FORMATS {
            let product = half_matmul(a.clone(), b.clone(), format);
            assert_eq!(product.dims(), [m, n]);
            let [a, b] = [&a, &b].map(|x| Tensor::from_inner(x.clone()).require_grad());
            let gradients = half_matmul(a.clone(), b.clone(), format).sum().backward();
            assert!(a.grad(&gradients).is_some_and(|of_a| of_a.dims() == [m, k]));
            assert!(b.grad(&gradients).is_some_and(|of_b| of_b.dims() == [k, n]));
            assert!(host(product).iter().all(|&value| value == 0.0));
        }
    }
}

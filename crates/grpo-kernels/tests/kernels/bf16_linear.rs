//! Products of factors that are rounded to bf16, against sums in f64. That they are the same for
//! all instruction sets is tested next to the implementation.

use burn::tensor::{Tensor, bf16};
use grpo_kernels::{PackedWeight, batch_invariant_linear, bf16_linear, is_cpu, plain};
use proptest::prelude::*;

use crate::support::{assert_close, bits, device, differentiate, host, tensor, transposed, values};

fn rounded(values: &[f64]) -> Vec<f64> {
    // Not `from_f64`, which ignores half of the bits.
    values.iter().map(|&value| f64::from(bf16::from_f32(value as f32).to_f32())).collect()
}

/// Computes `a · b` in f64.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let sum = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(sum).collect()
}

fn bf16_matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    bf16_linear(a, b, None)
}

/// Checks a product and its gradients, with the second factor as a transposed view.
fn check([m, k, n]: [usize; 3], seed: u64) {
    let device = device().autodiff();
    let (x, y, w) = (values(m * k, seed), values(n * k, seed + 1), values(m * n, seed + 2));
    let inputs = [tensor(&x, [m, k], &device), tensor(&y, [n, k], &device)];
    let (out, [dx, dy]) = differentiate(inputs, &w, |[x, y]| bf16_matmul(x, y.transpose()));
    let [x, y, w] = [x, y, w].map(|values| rounded(&values));
    let near = |got: &[f64], expected: &[f64], terms: usize| {
        assert_close(got, expected, 1e-6 * (terms as f64).sqrt());
    };
    near(&out, &product(&x, &transposed(&y, [n, k]), [m, k, n]), k);
    near(&dx, &product(&w, &y, [m, n, k]), n);
    near(&dy, &product(&transposed(&w, [m, n]), &x, [n, m, k]), m);
}

#[test]
fn products_and_gradients_are_those_of_rounded_factors() {
    for shape in [[1, 1, 1], [5, 7, 3], [33, 50, 17], [300, 200, 190], [8, 1024, 68], [68, 1024, 8]]
    {
        check(shape, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_shape(m in 1_usize..20, k in 1_usize..40, n in 1_usize..80, seed in 0_u64..1000) {
        check([m, k, n], seed);
    }
}

/// A tied head is a view, and so is a part of a matrix.
#[test]
fn parts_of_matrices() {
    let device = device();
    let all = tensor(&values(40 * 50, 1), [40, 50], &device);
    let (a, b) = (all.clone().slice([3..13, 7..27]), all.slice([20..40, 1..50]));
    let (x, y) = (rounded(&host(a.clone())), rounded(&host(b.clone())));
    assert_close(&host(bf16_matmul(a.clone(), b.clone())), &product(&x, &y, [10, 20, 49]), 1e-5);
    let across = host(bf16_matmul(b.transpose(), a.transpose()));
    assert_close(&across, &transposed(&product(&x, &y, [10, 20, 49]), [10, 49]), 1e-5);
}

#[test]
fn rows_are_independent_and_the_same_in_all_forms() {
    let device = device();
    for [rows, inner, columns] in [[1, 9, 1], [2, 128, 32], [13, 300, 80], [32, 64, 1056]] {
        let (x, weight) = (values(rows * inner, 1), values(inner * columns, 2));
        let (x, weight) =
            (tensor(&x, [rows, inner], &device), tensor(&weight, [inner, columns], &device));
        let bias = tensor(&values(columns, 3), [columns], &device);
        let packed = PackedWeight::bf16(weight.clone());
        assert!(format!("{packed:?}").contains("bf16"));
        let all = packed.linear(x.clone(), Some(bias.clone()));
        let product = bf16_linear(x.clone(), weight.clone(), Some(bias.clone()));
        assert_close(&host(product.clone()), &host(all.clone()), 1e-6 * (inner as f64).sqrt());
        if is_cpu(&device) {
            assert_eq!(bits(product), bits(all.clone()));
            for row in 0..rows {
                let alone = packed.linear(x.clone().narrow(0, row, 1), Some(bias.clone()));
                assert_eq!(bits(alone), bits(all.clone().narrow(0, row, 1)));
            }
            // The chain of multiply-adds is that of `f32` for rounded numbers.
            let [x, weight] = [x, weight].map(plain::rounded_to_bf16);
            assert_eq!(bits(batch_invariant_linear(x, weight, Some(bias))), bits(all));
        }
    }
}

/// The gradient of a sum is an expanded view.
#[test]
fn an_expanded_gradient() {
    let device = device().autodiff();
    let x = tensor(&values(6, 1), [2, 3], &device).require_grad();
    let constant = tensor(&values(12, 2), [3, 4], &device);
    let gradients = bf16_matmul(x.clone(), constant.clone()).sum().backward();
    let weights = rounded(&host(constant.inner()));
    let expected: Vec<f64> = weights.chunks(4).map(|row| row.iter().sum()).collect();
    assert_close(&host(x.grad(&gradients).unwrap()), &expected.repeat(2), 1e-6);
}

/// A weight is converted to `f32` first.
#[test]
fn packed_weights_of_other_layouts_and_types() {
    let device = device();
    let (x, weight) = (values(5 * 64, 1), values(64 * 96, 2));
    let x = tensor(&x, [5, 64], &device);
    let rows = tensor(&weight, [64, 96], &device);
    let columns = tensor(&transposed(&weight, [64, 96]), [96, 64], &device).transpose();
    let expected = bits(bf16_linear(x.clone(), rows.clone(), None));
    assert_eq!(bits(PackedWeight::bf16(columns).linear(x.clone(), None)), expected);
    if is_cpu(&device) {
        let half = rows.clone().cast(burn::tensor::FloatDType::BF16);
        assert_eq!(bits(PackedWeight::bf16(half).linear(x.clone(), None)), expected);
        let packed = grpo_kernels::pack_four_bits(rows);
        let plain = grpo_kernels::dense(packed.clone());
        let expected = bits(bf16_linear(x.clone(), plain, None));
        assert_eq!(bits(PackedWeight::bf16(packed).linear(x, None)), expected);
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
    let expected = host(plain::bf16_matmul(a.clone(), b.clone()));
    assert_close(&host(bf16_matmul(a, b)), &expected, 1e-6);
}

#[test]
fn nothing_to_multiply() {
    let device = device();
    for [m, k, n] in [[0, 3, 4], [2, 3, 0], [2, 0, 4]] {
        let (a, b) = (Tensor::<2>::zeros([m, k], &device), Tensor::<2>::zeros([k, n], &device));
        let product = bf16_matmul(a.clone(), b.clone());
        assert_eq!(product.dims(), [m, n]);
        assert!(host(product).iter().all(|&value| value == 0.0));
        assert_eq!(bf16_linear(a, b, None).dims(), [m, n]);
    }
}

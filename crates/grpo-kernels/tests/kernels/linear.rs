//! Linear layers. On the CPU, each element has to be a chain of fused multiply-adds, bit for bit.

use burn::tensor::Tensor;
use grpo_kernels::{PackedWeight, batch_invariant_linear, is_cpu, linear};
use grpo_runtime::beside;
use proptest::prelude::*;

use crate::support::{assert_close, bits, device, host, tensor, transposed, values};

/// Computes `x · W + b` as chains of multiply-adds.
fn chains(x: &[f64], weight: &[f64], bias: Option<&[f64]>, [n, k, m]: [usize; 3]) -> Vec<u32> {
    let element = |at: usize| {
        let (row, column) = (at / m, at % m);
        let chain = (0..k).fold(0.0_f32, |sum, i| {
            (x[row * k + i] as f32).mul_add(weight[i * m + column] as f32, sum)
        });
        bias.map_or(chain, |bias| chain + bias[column] as f32).to_bits()
    };
    (0..n * m).map(element).collect()
}

/// Checks all implementations and layouts of a linear layer `[n, k] · [k, m]`.
fn check([n, k, m]: [usize; 3], seed: u64) {
    let device = device();
    let (x, weight, bias) = (values(n * k, seed), values(k * m, seed + 1), values(m, seed + 2));
    let input = || tensor(&x, [n, k], &device);
    let in_rows = tensor(&weight, [k, m], &device);
    let in_columns = tensor(&transposed(&weight, [k, m]), [m, k], &device).transpose();
    for given in [None, Some(bias.as_slice())] {
        let bias = || given.map(|bias| tensor(bias, [m], &device));
        let expected = chains(&x, &weight, given, [n, k, m]);
        for weight in [&in_rows, &in_columns] {
            let packed = PackedWeight::new(weight.clone());
            let all = [
                linear(input(), weight.clone(), bias()),
                beside(3, || linear(input(), weight.clone(), bias())),
                batch_invariant_linear(input(), weight.clone(), bias()),
                packed.linear(input(), bias()),
            ];
            for (which, got) in all.into_iter().enumerate() {
                if is_cpu(&device) {
                    assert_eq!(bits(got), expected, "{which}: [{n}, {k}] · [{k}, {m}]");
                } else {
                    let expected: Vec<f64> =
                        expected.iter().map(|&bits| f64::from(f32::from_bits(bits))).collect();
                    assert_close(&host(got), &expected, 1e-6 * (1.0 + k as f64).sqrt());
                }
            }
        }
    }
}

#[test]
fn shapes_around_the_sizes_of_blocks_and_parts() {
    for shape in [
        [1, 1, 1],
        [5, 513, 63],
        [6, 64, 64],
        [47, 100, 65],
        [48, 100, 65],
        [49, 1100, 130],
        [95, 3, 17],
        [600, 40, 70],
        [2000, 1030, 9],
        // Several panels of many rows.
        [400, 1100, 700],
    ] {
        check(shape, 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape(n in 1_usize..120, k in 1_usize..60, m in 1_usize..200, seed in 0_u64..1000) {
        check([n, k, m], seed);
    }
}

/// Gradients against sums in f64, with the weight as a transposed view.
#[test]
fn gradients() {
    let device = device().autodiff();
    for [n, k, m] in [[1, 1, 1], [5, 7, 3], [300, 70, 90], [8, 1024, 68]] {
        let (x, w, b) = (values(n * k, 1), values(k * m, 2), values(m, 3));
        let upstream = values(n * m, 4);
        let x_given = tensor(&x, [n, k], &device).require_grad();
        let w_given = tensor(&transposed(&w, [k, m]), [m, k], &device).require_grad();
        let b_given = tensor(&b, [m], &device).require_grad();
        let y = linear(x_given.clone(), w_given.clone().transpose(), Some(b_given.clone()));
        let all = (y * tensor(&upstream, [n, m], &device)).sum().backward();
        let sum = |terms: usize, term: &dyn Fn(usize) -> f64| (0..terms).map(term).sum::<f64>();
        let dx: Vec<f64> = (0..n * k)
            .map(|at| sum(m, &|j| upstream[at / k * m + j] * w[at % k * m + j]))
            .collect();
        let dw: Vec<f64> = (0..m * k)
            .map(|at| sum(n, &|i| x[i * k + at % k] * upstream[i * m + at / k]))
            .collect();
        let db: Vec<f64> = (0..m).map(|j| sum(n, &|i| upstream[i * m + j])).collect();
        let near = |got: Vec<f64>, expected: &[f64], terms: usize| {
            assert_close(&got, expected, 1e-6 * (terms as f64).sqrt());
        };
        near(host(x_given.grad(&all).unwrap()), &dx, m);
        near(host(w_given.grad(&all).unwrap()), &dw, n);
        near(host(b_given.grad(&all).unwrap()), &db, n);
    }
}

/// Parts of other matrices, and a weight whose columns are the same numbers.
#[test]
fn views() {
    let device = device();
    let all = tensor(&values(60 * 50, 1), [60, 50], &device);
    let x = all.clone().slice([1..51, 3..33]);
    let weight = all.clone().slice([20..50, 1..41]);
    let bias: Tensor<1> = all.slice([5..6, 7..47]).squeeze_dim(0);
    let copy = |view: &Tensor<2>| tensor(&host(view.clone()), view.dims(), &device);
    let expected =
        linear(copy(&x), copy(&weight), Some(tensor(&host(bias.clone()), [40], &device)));
    assert_eq!(bits(linear(x.clone(), weight, Some(bias))), bits(expected));
    let column = tensor(&values(30, 5), [30, 1], &device);
    let expanded = column.clone().expand([30, 40]);
    for rows in [2, 50] {
        let x = x.clone().narrow(0, 0, rows);
        let expected = bits(linear(copy(&x), copy(&expanded), None));
        assert_eq!(bits(linear(x, expanded.clone(), None)), expected);
    }
}

/// Only what is tracked has a gradient.
#[test]
fn frozen_weights() {
    let device = device().autodiff();
    let x = tensor(&values(6, 1), [2, 3], &device).require_grad();
    let (w, b) = (tensor(&values(12, 2), [3, 4], &device), tensor(&values(4, 3), [4], &device));
    let gradients = linear(x.clone(), w.clone(), Some(b.clone())).sum().backward();
    let expected = host(w.clone().inner().sum_dim(1)).repeat(2);
    assert_close(&host(x.grad(&gradients).unwrap()), &expected, 1e-6);
    assert!(w.grad(&gradients).is_none() && b.grad(&gradients).is_none());
}

#[test]
fn nothing_to_compute() {
    let device = device();
    let of = |n, k, m, bias: Option<Tensor<1>>| {
        linear(Tensor::zeros([n, k], &device), Tensor::zeros([k, m], &device), bias)
    };
    assert_eq!(of(0, 3, 4, None).dims(), [0, 4]);
    assert_eq!(of(2, 3, 0, None).dims(), [2, 0]);
    let bias = tensor(&[1.0, 2.0, 3.0, 4.0], [4], &device);
    assert_eq!(host(of(2, 0, 4, Some(bias))), [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
#[should_panic(expected = "the bias must have one value per column")]
fn a_bias_of_another_size() {
    let device = device();
    let (x, weight) = (Tensor::zeros([2, 3], &device), Tensor::zeros([3, 5], &device));
    linear(x, weight, Some(Tensor::zeros([4], &device)));
}

//! On the CPU, the matrix product has to match Burn's bit for bit. Everywhere, it has to match f64 within
//! rounding. On GPUs, Burn's product rounds its factors.

use burn::tensor::Tensor;
use grpo_kernels::{is_cpu, matmul, plain};

use crate::support::{assert_close, device, differentiate, host, tensor, values};

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn products_and_gradients_have_the_bits_of_burns() {
    let device = device().autodiff();
    // Several threads compute [300, 200, 190]. On GPUs, products with a long inner dimension and
    // few rows, few columns, or few of both have their own kernels.
    for [m, k, n] in [
        [1, 1, 1],
        [5, 7, 3],
        [1, 64, 200],
        [33, 50, 17],
        [300, 200, 190],
        [8, 1024, 68],
        [68, 1024, 8],
        [68, 1024, 72],
    ] {
        let (x, y, w) = (values(m * k, 1), values(k * n, 2), values(m * n, 3));
        let run = |operation: fn(Tensor<2>, Tensor<2>) -> Tensor<2>| {
            // The first factor is contiguous, and the second is a transposed view of another
            // matrix.
            let inputs = [tensor(&x, [m, k], &device), tensor(&y, [n, k], &device)];
            differentiate(inputs, &w, |[x, y]| operation(x, y.transpose()))
        };
        let ((out, [dx, dy]), (plain, [px, py])) = (run(matmul), run(plain::matmul));
        if is_cpu(&device) {
            assert_eq!(bits(&out), bits(&plain));
            assert_eq!((bits(&dx), bits(&dy)), (bits(&px), bits(&py)));
        }
        let oracle: Vec<f64> = (0..m * n)
            .map(|at| (0..k).map(|i| x[at / n * k + i] * y[at % n * k + i]).sum())
            .collect();
        assert_close(&out, &oracle, 1e-6 * (k as f64).sqrt());
    }
}

#[test]
fn parts_of_matrices() {
    let device = device();
    let all = tensor(&values(40 * 50, 1), [40, 50], &device);
    let part = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
        all.clone().slice([rows, columns])
    };
    let (a, b) = (part(3..13, 7..27), part(20..40, 1..50));
    let (x, y) = (host(a.clone()), host(b.clone()));
    let sum = |at: usize| (0..20).map(|i| x[at / 49 * 20 + i] * y[i * 49 + at % 49]).sum();
    assert_close(&host(matmul(a.clone(), b.clone())), &(0..490).map(sum).collect::<Vec<_>>(), 1e-5);
    if is_cpu(&device) {
        let expected = host(plain::matmul(a.clone(), b.clone()));
        assert_eq!(bits(&host(matmul(a, b))), bits(&expected));
    }
}

#[test]
fn one_factor_alone_may_be_tracked() {
    let device = device().autodiff();
    let x = tensor(&values(6, 1), [2, 3], &device).require_grad();
    let constant = tensor(&values(12, 2), [3, 4], &device);
    let gradients = matmul(x.clone(), constant.clone()).sum().backward();
    let expected = host(constant.clone().inner().sum_dim(1)).repeat(2);
    assert_close(&host(x.grad(&gradients).unwrap()), &expected, 1e-6);
    let w = constant.require_grad();
    let gradients = matmul(x.clone().detach(), w.clone()).sum().backward();
    let sums = host(x.inner().sum_dim(0));
    let expected: Vec<f64> = sums.iter().flat_map(|&sum| [sum; 4]).collect();
    assert_close(&host(w.grad(&gradients).unwrap()), &expected, 1e-6);
}

#[test]
fn nothing_to_multiply() {
    let device = device();
    let product = matmul(Tensor::zeros([0, 3], &device), Tensor::ones([3, 4], &device));
    assert_eq!(product.dims(), [0, 4]);
    let sum_of_none = matmul(Tensor::zeros([2, 0], &device), Tensor::zeros([0, 4], &device));
    assert_eq!(host(sum_of_none), [0.0; 8]);
}

#[test]
#[should_panic(expected = "inner dimensions of the product differ")]
fn shapes_that_disagree() {
    let device = device();
    matmul(Tensor::zeros([2, 3], &device), Tensor::zeros([4, 5], &device));
}

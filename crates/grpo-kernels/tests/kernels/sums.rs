//! Compares sums with f64.

use burn::tensor::Tensor;
use grpo_kernels::{add, add_bias, plain};

use crate::support::{assert_close, device, differentiate, host, tensor, values};

#[test]
fn sums_and_their_gradients() {
    let device = device().autodiff();
    // Several chunks and partial sums, each with a remainder.
    for [rows, columns] in [[1, 1], [3, 17], [300, 65], [131, 300]] {
        let n = rows * columns;
        let (x, y, bias, w) = (values(n, 1), values(n, 2), values(columns, 3), values(n, 4));
        let input = |of: &[f64]| tensor(of, [rows, columns], &device);
        for operation in [add, plain::add] {
            let (out, [dx, dy]) =
                differentiate([input(&x), input(&y)], &w, |[x, y]| operation(x, y));
            let expected: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            assert_close(&out, &expected, 6e-8);
            assert_eq!((&dx, &dy), (&w, &w));
        }
        for operation in [add_bias, plain::add_bias] {
            // The bias is a matrix with one row, so that both inputs have the same rank.
            let row = tensor(&bias, [1, columns], &device);
            let with_bias = |x: Tensor<2>, row: Tensor<2>| operation(x, row.squeeze_dim(0));
            let inputs = [input(&x), row];
            let (out, [dx, db]) = differentiate(inputs, &w, |[x, row]| with_bias(x, row));
            let expected: Vec<f64> =
                x.chunks(columns).flat_map(|x| x.iter().zip(&bias).map(|(x, b)| x + b)).collect();
            assert_close(&out, &expected, 6e-8);
            assert_eq!(dx, w);
            let sums: Vec<f64> =
                (0..columns).map(|j| w.iter().skip(j).step_by(columns).sum()).collect();
            assert_close(&db, &sums, 1e-6);
        }
    }
}

#[test]
fn a_term_that_somebody_holds_is_not_written_to() {
    let device = device();
    let x = tensor(&values(40, 1), [4, 10], &device);
    let kept = x.clone();
    add(x.clone(), x.clone());
    add_bias(x, tensor(&values(10, 2), [10], &device));
    assert_eq!(host(kept), values(40, 1));
}

#[test]
#[should_panic(expected = "the shapes of the terms differ")]
fn terms_of_two_shapes() {
    let device = device();
    add(Tensor::zeros([2, 3], &device), Tensor::zeros([1, 3], &device));
}

#[test]
#[should_panic(expected = "the bias must have one value per column")]
fn a_bias_of_another_width() {
    let device = device();
    add_bias(Tensor::zeros([2, 3], &device), Tensor::zeros([4], &device));
}

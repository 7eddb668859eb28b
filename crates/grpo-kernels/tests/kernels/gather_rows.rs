//! Gathering matrix rows by index.

use burn::tensor::{Device, Int, Tensor};
use grpo_kernels::{gather_rows, is_cpu, plain};
use proptest::prelude::*;

use crate::support::{assert_each_close, bits, device, host, tensor, values};

fn numbers(ids: &[usize], device: &Device) -> Tensor<1, Int> {
    let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    Tensor::from_data(ids.as_slice(), device)
}

type Operation = fn(Tensor<2>, Tensor<1, Int>) -> Tensor<2>;

#[track_caller]
fn check([rows, width]: [usize; 2], ids: &[usize], seed: u64) {
    let device = device().autodiff();
    let (x, w) = (values(rows * width, seed), values(ids.len() * width, seed ^ 1));
    let expected: Vec<f64> = ids.iter().flat_map(|id| x[id * width..][..width].to_vec()).collect();
    let mut slopes = vec![0.0; rows * width];
    for (place, id) in ids.iter().enumerate() {
        for i in 0..width {
            slopes[id * width + i] += w[place * width + i];
        }
    }
    for operation in [gather_rows as Operation, plain::gather_rows] {
        let table = tensor(&x, [rows, width], &device).require_grad();
        let output = operation(table.clone(), numbers(ids, &device));
        assert_eq!(host(output.clone()), expected);
        let weights = tensor(&w, [ids.len(), width], &device);
        let gradients = (output * weights).sum().backward();
        // Up to 49 numbers of up to 3 per row, each accurate to 2⁻²⁴.
        assert_each_close(&host(table.grad(&gradients).unwrap()), &slopes, 1e-5);
    }
}

proptest! {
    #[test]
    fn rows_and_their_gradients(
        (rows, ids) in (1..40_usize).prop_flat_map(|rows| (Just(rows), prop::collection::vec(0..rows, 1..50))),
        width in 1..40_usize, seed: u64,
    ) {
        check([rows, width], &ids, seed);
    }
}

/// The order of an f32 sum matters here: the large terms have to cancel before the small one is
/// added.
#[test]
fn the_gradient_is_summed_in_the_order_of_places() {
    let device = device().autodiff();
    let table = Tensor::<2>::zeros([3, 1], &device).require_grad();
    let upstream = [1e8, 5.0, -1e8, 7.0, 1.0];
    let output = gather_rows(table.clone(), numbers(&[1, 2, 1, 2, 1], &device));
    let gradients = (output * tensor(&upstream, [5, 1], &device)).sum().backward();
    assert_eq!(host(table.grad(&gradients).unwrap()), [0.0, 1.0, 12.0]);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let ids: Vec<usize> = (0..3000).map(|i| i * i % 101).collect();
    let run = || {
        let device = device().autodiff();
        let table = tensor(&values(101 * 33, 1), [101, 33], &device).require_grad();
        let output = gather_rows(table.clone(), numbers(&ids, &device));
        let gradients = output.clone().square().sum().backward();
        [bits(output), bits(table.grad(&gradients).unwrap())]
    };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(run)
    };
    assert!(with(1) == with(5));
}

#[test]
fn views_of_a_table() {
    let device = device();
    let all: Tensor<2> = tensor(&values(63, 2), [7, 9], &device);
    let view = all.transpose().narrow(0, 2, 5);
    let got = gather_rows(view.clone(), numbers(&[4, 0], &device));
    let whole = host(view);
    assert_eq!(host(got), [&whole[28..35], &whole[..7]].concat());
}

#[test]
#[should_panic(expected = "row 3 is out of bounds for a table of 3 rows")]
fn a_row_behind_the_last_one() {
    let device = device();
    assert!(is_cpu(&device), "row 3 is out of bounds for a table of 3 rows, and GPUs do not look");
    gather_rows(Tensor::zeros([3, 2], &device), numbers(&[0, 3], &device));
}

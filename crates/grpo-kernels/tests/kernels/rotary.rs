//! Rotary position embeddings.

use burn::tensor::Tensor;
use grpo_kernels::{RotaryTables, plain, rotary};

use crate::support::{
    assert_close, bits, device, differentiate, finite_differences, host, tensor, values,
};

/// Reference implementation with complex numbers: `(a + ib) e^{iφ}`. `angles` contains the angles
/// of each row.
fn oracle(x: &[f64], columns: usize, angles: &[f64], half: usize) -> Vec<f64> {
    let mut out = x.to_vec();
    for (place, out) in out.iter_mut().enumerate() {
        let (row, column) = (place / columns, place % columns);
        let (pair, is_second) = (column % half, column % (2 * half) >= half);
        let (sin, cos) = angles[row * half + pair].sin_cos();
        *out = match is_second {
            false => x[place] * cos - x[place + half] * sin,
            true => x[place - half] * sin + x[place] * cos,
        };
    }
    out
}

fn tables(angles: &[f64], rows: usize, half: usize) -> RotaryTables {
    let of = |f: fn(f64) -> f64| {
        let values: Vec<f64> = angles.iter().map(|&angle| f(angle)).collect();
        tensor(&values, [rows, half], &device())
    };
    RotaryTables { cos: of(f64::cos), sin: of(f64::sin) }
}

#[test]
fn pairs_are_turned_and_their_gradients_turned_back() {
    let device = device().autodiff();
    for (rows, heads, half) in [(1, 1, 1), (3, 2, 3), (5, 3, 8), (2, 1, 17), (300, 4, 16)] {
        let columns = heads * 2 * half;
        let n = rows * columns;
        let (x, w, angles) = (values(n, 1), values(n, 2), values(rows * half, 3));
        let tables = tables(&angles, rows, half);
        let of_x = |x: &[f64]| oracle(x, columns, &angles, half);
        // A rotation preserves lengths, so the gradient is the inverse rotation.
        let back: Vec<f64> = angles.iter().map(|angle| -angle).collect();
        let slopes = oracle(&w, columns, &back, half);
        if n < 500 {
            assert_close(&slopes, &finite_differences(&x, of_x, &w), 1e-8);
        }
        for operation in [rotary, plain::rotary] {
            let input = tensor(&x, [rows, columns], &device);
            let (output, [gradient]) = differentiate([input], &w, |[x]| operation(x, &tables));
            assert_close(&output, &of_x(&x), 1.5e-7);
            assert_close(&gradient, &slopes, 1.5e-7);
        }
    }
}

#[test]
fn what_somebody_else_holds_stays_as_it_is() {
    let x: Tensor<2> = tensor(&values(24, 1), [3, 8], &device());
    let before = host(x.clone());
    let tables = tables(&values(12, 2), 3, 4);
    let turned = rotary(x.clone(), &tables);
    assert_eq!(host(x.clone()), before);
    assert_ne!(host(turned.clone()), before);
    // Views and uniquely owned tensors give the same result.
    let wide = Tensor::cat(vec![x.clone(), x.clone()], 1);
    assert_eq!(bits(rotary(wide.narrow(1, 8, 8), &tables)), bits(turned.clone()));
    assert_eq!(bits(rotary(x * 1.0, &tables)), bits(turned));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let tables = tables(&values(700 * 16, 2), 700, 16);
    let run = || {
        let x: Tensor<2> = tensor(&values(700 * 96, 1), [700, 96], &device());
        bits(rotary(x, &tables))
    };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(run)
    };
    assert!(with(1) == with(5));
}

#[test]
#[should_panic(expected = "[3, 10] does not fit rotary angles [3, 4]")]
fn columns_that_are_no_heads() {
    let x = Tensor::zeros([3, 10], &device());
    rotary(x, &tables(&[0.0; 12], 3, 4));
}

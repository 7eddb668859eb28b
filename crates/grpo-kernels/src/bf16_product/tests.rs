//! All ways of computing a product have the same bits as a plain chain of multiply-adds.

use burn::tensor::bf16;
use proptest::prelude::*;

use super::*;

fn units() -> Vec<Unit> {
    let mut units = vec![Unit::fastest(), Unit::Portable];
    units.dedup();
    units
}

/// Returns numbers of many magnitudes, none of whose products is subnormal.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let number = |_| {
        let bits = next();
        let magnitude = 1.0 + (bits >> 40) as f32 / (1_u64 << 24) as f32;
        let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
        sign * magnitude * 2.0_f32.powi((bits >> 8 & 31) as i32 - 16)
    };
    (0..count).map(number).collect()
}

fn transposed(values: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
}

/// Computes each element as a chain in the order of its terms.
fn chains(a: &[f32], b: &[f32], [m, k, n]: [usize; 3], bias: Option<&[f32]>) -> Vec<u32> {
    let round = |x: f32| bf16::from_f32(x).to_f32();
    let element = |at: usize| {
        let (row, column) = (at / n, at % n);
        let terms = (0..k).map(|i| (round(a[row * k + i]), round(b[i * n + column])));
        let sum = terms.fold(0.0_f32, |sum, (a, b)| a.mul_add(b, sum));
        (sum + bias.map_or(0.0, |bias| bias[column])).to_bits()
    };
    (0..m * n).map(element).collect()
}

fn check([m, k, n]: [usize; 3], seed: u64) {
    let (a, b, bias) = (numbers(m * k, seed), numbers(k * n, seed + 1), numbers(n, seed + 2));
    let (at, bt) = (transposed(&a, [m, k]), transposed(&b, [k, n]));
    let matrix = |values, rows, columns, is_transposed| Matrix {
        values,
        stride: if is_transposed { rows } else { columns },
        is_transposed,
        rows,
        columns,
    };
    for bias in [None, Some(bias.as_slice())] {
        let expected = chains(&a, &b, [m, k, n], bias);
        for left in [matrix(a.as_slice(), m, k, false), matrix(at.as_slice(), m, k, true)] {
            for right in [matrix(b.as_slice(), k, n, false), matrix(bt.as_slice(), k, n, true)] {
                let (left, right) = (Left::new(&left), Right::new(&right));
                for unit in units() {
                    let got = product_by(unit, &left, &right, bias);
                    let got: Vec<u32> = got.into_iter().map(f32::to_bits).collect();
                    assert_eq!(got, expected, "{unit:?} [{m}, {k}] · [{k}, {n}]");
                }
            }
        }
    }
}

#[test]
fn shapes_around_the_sizes_of_blocks() {
    for [m, k, n] in [
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
        [1, 1, 1],
        [6, 2, 64],
        [7, 3, 65],
        [97, 513, 63],
        [200, 1027, 130],
    ] {
        check([m, k, n], 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_shape(m in 0_usize..40, k in 0_usize..40, n in 0_usize..200, seed in 0_u64..1000) {
        check([m, k, n], seed);
    }
}

#[test]
fn numbers_that_are_not_finite_reach_the_result() {
    let values = [1.0, f32::NAN, f32::INFINITY, -2.0];
    let left = Matrix { values: &values, stride: 2, is_transposed: false, rows: 2, columns: 2 };
    let ones = [1.0; 2];
    let right = Matrix { values: &ones, stride: 1, is_transposed: false, rows: 2, columns: 1 };
    for unit in units() {
        let got = product_by(unit, &Left::new(&left), &Right::new(&right), None);
        assert!(got[0].is_nan() && got[1] == f32::INFINITY, "{unit:?} {got:?}");
    }
}

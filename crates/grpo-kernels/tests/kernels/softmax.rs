//! Softmax of attention scores over visible keys.
#![expect(clippy::single_range_in_vec_init, reason = "a batch of one row has one range")]

use std::ops::Range;

use grpo_kernels::{Visible, attention_softmax, plain};

use crate::support::{
    assert_close, device, differentiate, finite_differences, host, tensor, values,
};

/// Reference implementation for scores `[batch, heads, queries, keys]`, which handles each
/// query–key pair separately.
pub(crate) fn oracle(x: &[f64], shape: [usize; 4], scale: f64, visible: &Visible) -> Vec<f64> {
    let [_, heads, queries, keys] = shape;
    let mut out = vec![0.0; x.len()];
    for row in 0..x.len() / keys {
        let (batch, query) = (row / queries / heads, row % queries);
        let own = query + keys - queries;
        let mut sees: Vec<usize> = (0..keys)
            .filter(|key| visible.tokens.as_ref().is_none_or(|t| t[batch].contains(key)))
            .filter(|&key| !visible.causal || key <= own)
            .collect();
        if sees.is_empty() {
            sees.push(own);
        }
        let total: f64 = sees.iter().map(|key| (scale * x[row * keys + key]).exp()).sum();
        for key in sees {
            out[row * keys + key] = (scale * x[row * keys + key]).exp() / total;
        }
    }
    out
}

/// Checks values to 1.5e-7 and gradients to 2e-7 for the fused and the plain version.
#[track_caller]
fn check(shape: [usize; 4], visible: &Visible) {
    let device = device().autodiff();
    let n = shape.iter().product();
    let (x, w, scale) = (values(n, 3), values(n, 4), 0.37);
    let of_x = |x: &[f64]| oracle(x, shape, scale, visible);
    let slopes = (n < 1000).then(|| finite_differences(&x, of_x, &w));
    for operation in [attention_softmax, plain::attention_softmax] {
        let input = tensor(&x, shape, &device);
        let (output, [gradient]) =
            differentiate([input], &w, |[scores]| operation(scores, scale, visible));
        assert_close(&output, &of_x(&x), 1.5e-7);
        if let Some(slopes) = &slopes {
            assert_close(&gradient, slopes, 2e-7);
        }
    }
}

fn ranges(batch: usize, of: impl Fn(usize) -> Range<usize>) -> Vec<Range<usize>> {
    (0..batch).map(of).collect()
}

#[test]
fn without_padding() {
    for [queries, keys] in [[1, 1], [5, 5], [1, 7], [3, 9], [19, 35]] {
        check([2, 3, queries, keys], &Visible::causal());
        check([2, 3, queries, keys], &Visible::all());
    }
}

#[test]
fn with_padding() {
    for visible in [Visible::causal(), Visible::all()] {
        for [queries, keys] in [[6, 6], [1, 7], [3, 9], [19, 35]] {
            let shape = [3, 2, queries, keys];
            check(shape, &visible.clone().within(ranges(3, |row| 0..keys - row)));
            check(shape, &visible.clone().within(ranges(3, |row| row..keys)));
            check(shape, &visible.clone().within(ranges(3, |row| 2 * row..keys - row)));
        }
    }
}

#[test]
fn rows_of_padding_alone() {
    for visible in [Visible::causal(), Visible::all()] {
        check([2, 1, 4, 6], &visible.clone().within([3..3, 0..0]));
        check([2, 1, 4, 6], &visible.within([6..6, 5..6]));
    }
}

#[test]
fn what_is_hidden_is_never_read() {
    let device = device().autodiff();
    let visible = Visible::causal().within([1..3]);
    let mut x = values(16, 5);
    let clean = tensor(&x, [1, 1, 4, 4], &device);
    for (i, expected) in oracle(&x, [1, 1, 4, 4], 0.5, &visible).iter().enumerate() {
        if *expected == 0.0 {
            x[i] = f64::NAN;
        }
    }
    assert_eq!(x.iter().filter(|x| x.is_nan()).count(), 10);
    let dirty = tensor(&x, [1, 1, 4, 4], &device);
    let w = values(16, 6);
    for operation in [attention_softmax, plain::attention_softmax] {
        let of = |x| differentiate([x], &w, |[x]| operation(x, 0.5, &visible));
        assert_eq!(of(clean.clone()), of(dirty.clone()));
    }
}

/// Scores that are far apart, with an offset that would overflow an exponential.
#[test]
fn extremes_are_finite() {
    let x = [-3e38, 1e4, 1e4 - 1.0, 0.0];
    let scores = tensor(&x, [1, 1, 1, 4], &device());
    let got = host(attention_softmax(scores, 1.0, &Visible::all()));
    let e = std::f64::consts::E;
    assert_close(&got, &[0.0, e / (1.0 + e), 1.0 / (1.0 + e), 0.0], 1e-7);
}

#[track_caller]
fn soften(shape: [usize; 4], visible: &Visible) {
    let n = shape.iter().product();
    attention_softmax(tensor(&values(n, 1), shape, &device()), 1.0, visible);
}

#[test]
#[should_panic(expected = "3 queries need at least as many keys, found 2 keys")]
fn more_queries_than_keys() {
    soften([1, 1, 3, 2], &Visible::all());
}

#[test]
#[should_panic(expected = "expected one token range per row of the batch")]
fn ranges_for_another_batch() {
    soften([3, 1, 2, 2], &Visible::causal().within([0..1, 0..2]));
}

#[test]
#[should_panic(expected = "row 1: token range 1..3 is outside 2 keys")]
fn a_range_beyond_the_keys() {
    soften([2, 1, 2, 2], &Visible::all().within([0..2, 1..3]));
}

#[test]
#[should_panic(expected = "row 0: token range 2..1 is outside 2 keys")]
fn a_range_from_its_end_to_its_start() {
    let (start, end) = (2, 1);
    soften([1, 1, 2, 2], &Visible::all().within([start..end]));
}

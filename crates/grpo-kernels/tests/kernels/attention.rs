//! Attention over packed sequences.

use burn::tensor::Tensor;
use grpo_kernels::{
    Heads, Packing, Scoring, Sequence, attention, joint_attention, padded_attention,
};
use proptest::prelude::*;

use crate::support::{assert_close, bits, device, finite_differences, host, tensor, values};

const WIDE: Heads = Heads { heads: 2, kv_heads: 2, width: 32 };

/// Keeps scores below 10, so that rounding of the weights and the output dominates. Rounded to f32
/// like in the kernel.
fn scale(width: usize) -> f64 {
    f64::from(1.0 / width as f32)
}

/// Creates a packing from sequence lengths and continued sequences.
fn packed(sequences: &[(usize, Option<usize>)], causal: bool) -> Packing {
    let mut start = 0;
    let sequence = |&(length, behind): &(usize, Option<usize>)| {
        let rows = start..start + length;
        start = rows.end;
        Sequence { rows, behind }
    };
    Packing::new(sequences.iter().map(sequence).collect::<Vec<_>>(), causal)
}

/// Reference implementation that handles each query–key pair separately. `x` is
/// `[rows][queries, keys, values]`.
fn oracle(x: &[f64], heads: Heads, scoring: Scoring, packing: &Packing) -> Vec<f64> {
    let Scoring { scale, window, cap } = scoring;
    let (of_queries, of_keys) = (heads.query_columns(), heads.key_columns());
    let columns = of_queries + 2 * of_keys;
    let mut out = vec![0.0; packing.rows() * of_queries];
    for (index, sequence) in packing.sequences().iter().enumerate() {
        let keys: Vec<usize> = packing.prefix(index).chain(sequence.rows.clone()).collect();
        for row in sequence.rows.clone() {
            for head in 0..heads.heads {
                let kv_head = head * heads.kv_heads / heads.heads;
                let part = |row: usize, first: usize| &x[row * columns + first..][..heads.width];
                let query = part(row, head * heads.width);
                let position = packing.prefix(index).len() + row - sequence.rows.start;
                let weights: Vec<f64> = keys
                    .iter()
                    .enumerate()
                    .map(|(place, &key)| {
                        let of_key = part(key, of_queries + kv_head * heads.width);
                        let dot: f64 = query.iter().zip(of_key).map(|(q, k)| q * k).sum();
                        let is_later = packing.is_causal() && place > position;
                        let is_too_far = window.is_some_and(|window| place + window <= position);
                        let score = cap.map_or(scale * dot, |cap| cap * (scale * dot / cap).tanh());
                        if is_later || is_too_far { 0.0 } else { score.exp() }
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for (weight, &key) in weights.iter().zip(&keys) {
                    let value = part(key, of_queries + of_keys + kv_head * heads.width);
                    let out = &mut out[row * of_queries + head * heads.width..][..heads.width];
                    for (out, value) in out.iter_mut().zip(value) {
                        *out += weight / total * value;
                    }
                }
            }
        }
    }
    out
}

fn plain_joint(x: Tensor<2>, heads: Heads, scoring: Scoring, packing: &Packing) -> Tensor<2> {
    let (queries, keys) = (heads.query_columns(), heads.key_columns());
    let part = |start: usize, length: usize| x.clone().narrow(1, start, length);
    let parts = [part(0, queries), part(queries, keys), part(queries + keys, keys)];
    let [query, keys, values] = parts;
    padded_attention(query, keys, values, heads, scoring, packing, |weights| weights)
}

/// Attention with three separate matrices.
fn separate(x: Tensor<2>, heads: Heads, scoring: Scoring, packing: &Packing) -> Tensor<2> {
    let (queries, keys) = (heads.query_columns(), heads.key_columns());
    let part = |start: usize, length: usize| x.clone().narrow(1, start, length) * 1.0;
    attention(
        part(0, queries),
        part(queries, keys),
        part(queries + keys, keys),
        heads,
        scoring,
        packing,
    )
}

type Operation = fn(Tensor<2>, Heads, Scoring, &Packing) -> Tensor<2>;

/// Checks the values and gradients of all variants. Gradients of small inputs are compared with
/// finite differences, others with the plain version.
#[track_caller]
fn check(heads: Heads, packing: &Packing) {
    check_scoring(heads, scale(heads.width).into(), packing);
}

#[track_caller]
fn check_scoring(heads: Heads, scoring: Scoring, packing: &Packing) {
    let device = device().autodiff();
    let columns = heads.query_columns() + 2 * heads.key_columns();
    let shape = [packing.rows(), columns];
    let n = shape[0] * columns;
    let (x, w) = (values(n, 3), values(packing.rows() * heads.query_columns(), 4));
    let expected = oracle(&x, heads, scoring, packing);
    let run = |operation: Operation| {
        let input = tensor(&x, shape, &device).require_grad();
        let output = operation(input.clone(), heads, scoring, packing);
        let weights = tensor(&w, output.dims(), &device);
        let gradients = (output.clone() * weights).sum().backward();
        (host(output), host(input.grad(&gradients).unwrap()))
    };
    let slopes =
        (n < 600).then(|| finite_differences(&x, |x| oracle(x, heads, scoring, packing), &w));
    let (_, of_plain) = run(plain_joint);
    for operation in [joint_attention as Operation, separate, plain_joint] {
        let (output, gradient) = run(operation);
        assert_close(&output, &expected, 6e-7);
        match &slopes {
            Some(slopes) => assert_close(&gradient, slopes, 1e-6),
            None => assert_close(&gradient, &of_plain, 2e-6),
        }
    }
}

#[test]
fn small_sequences_of_every_kind() {
    for causal in [true, false] {
        for (heads, kv_heads, width) in [(1, 1, 1), (2, 2, 3), (4, 2, 2), (3, 1, 5)] {
            let heads = Heads { heads, kv_heads, width };
            check(heads, &packed(&[(1, None)], causal));
            check(heads, &packed(&[(2, None), (1, None), (5, None)], causal));
            check(heads, &packed(&[(3, None), (2, Some(0)), (1, Some(0))], causal));
            check(
                heads,
                &packed(&[(2, None), (1, None), (2, Some(1)), (3, Some(0)), (1, Some(1))], causal),
            );
        }
    }
}

/// Windows of one token, of about a register, a page and a task, and longer than the sequence. Bounds
/// that are reached and that are not.
#[test]
fn windows_and_bounds_of_scores() {
    let small = Heads { heads: 2, kv_heads: 1, width: 2 };
    let bounded = |scale: f64, window, cap| Scoring { window, cap, ..scale.into() };
    for window in [1, 2, 3, 7, 40] {
        let scoring = bounded(0.5, Some(window), None);
        check_scoring(small, scoring, &packed(&[(5, None), (3, Some(0)), (9, None)], true));
    }
    for cap in [0.3, 2.0, 50.0] {
        let scoring = bounded(0.5, Some(3), Some(cap));
        check_scoring(small, scoring, &packed(&[(5, None), (3, Some(0)), (2, None)], true));
        check_scoring(small, bounded(0.5, None, Some(cap)), &packed(&[(6, None)], false));
    }
    let heads = Heads { heads: 2, kv_heads: 1, width: 20 };
    for window in [1, 15, 16, 17, 33, 100, 130, 500] {
        for cap in [None, Some(1.0)] {
            let scoring = bounded(scale(20), Some(window), cap);
            let sequences = [(127, None), (150, Some(0)), (40, None), (15, Some(0))];
            check_scoring(heads, scoring, &packed(&sequences, true));
        }
    }
}

/// Covers queries with a single visible key, and blocks with one query more than fits into a
/// register.
#[test]
fn lengths_around_blocks_tiles_and_tasks() {
    for causal in [true, false] {
        for length in [7, 8, 9, 15, 16, 17, 31, 33, 63, 65] {
            check(Heads { heads: 1, kv_heads: 1, width: 2 }, &packed(&[(length, None)], causal));
        }
        // GPUs have kernels for widths that divide 128.
        for width in [16, 20] {
            let heads = Heads { heads: 2, kv_heads: 1, width };
            check(heads, &packed(&[(127, None), (129, None), (128, None)], causal));
            check(heads, &packed(&[(130, None), (260, Some(0)), (15, Some(0))], causal));
        }
    }
    check(Heads { heads: 2, kv_heads: 2, width: 128 }, &packed(&[(50, None), (48, None)], true));
}

/// The sequences are processed by different tasks and blocks.
#[test]
fn a_row_does_not_depend_on_the_other_sequences() {
    let columns = WIDE.query_columns() + 2 * WIDE.key_columns();
    let lengths = [150, 5, 48, 17];
    let whole = packed(&lengths.map(|length| (length, None)), true);
    let x: Tensor<2> = tensor(&values(220 * columns, 5), [220, columns], &device());
    let run = |x: Tensor<2>, packing: &Packing| joint_attention(x, WIDE, 0.2, packing);
    let together = run(x.clone(), &whole);
    for sequence in whole.sequences() {
        let rows = sequence.rows.clone();
        let alone =
            run(x.clone().narrow(0, rows.start, rows.len()), &packed(&[(rows.len(), None)], true));
        assert_eq!(bits(alone), bits(together.clone().narrow(0, rows.start, rows.len())));
    }
}

/// The gradient of the shared keys is summed over several tasks, and with more threads, more of
/// them are processed at a time.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let packing =
        packed(&[(150, None), (40, None), (140, Some(0)), (20, Some(1)), (50, Some(0))], true);
    let columns = WIDE.query_columns() + 2 * WIDE.key_columns();
    let run = || {
        let x = tensor(&values(400 * columns, 8), [400, columns], &device().autodiff());
        let x = x.require_grad();
        let output = joint_attention(x.clone(), WIDE, 0.2, &packing);
        let gradients = output.clone().square().sum().backward();
        [bits(output), bits(x.grad(&gradients).unwrap())]
    };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(run)
    };
    let one = with(1);
    for threads in [2, 3, 4, 8] {
        assert!(one == with(threads), "1 and {threads} threads");
    }
}

/// Shared rows give the same result as a copy in front of each sequence.
#[test]
fn a_shared_prefix_is_one_in_front_of_each() {
    let columns = WIDE.query_columns() + 2 * WIDE.key_columns();
    let x: Tensor<2> = tensor(&values(90 * columns, 6), [90, columns], &device());
    let rows = |start: usize, length: usize| x.clone().narrow(0, start, length);
    let shared = packed(&[(21, None), (30, Some(0)), (39, Some(0))], true);
    let together = joint_attention(x.clone(), WIDE, 0.2, &shared);
    for (start, length) in [(21, 30), (51, 39)] {
        let whole = Tensor::cat(vec![rows(0, 21), rows(start, length)], 0);
        let apart = joint_attention(whole, WIDE, 0.2, &packed(&[(21 + length, None)], true));
        assert_eq!(
            bits(apart.narrow(0, 21, length)),
            bits(together.clone().narrow(0, start, length))
        );
    }
}

/// Later tokens don't affect earlier ones, and sequences don't affect each other.
#[test]
fn what_a_token_does_not_see_changes_no_bit() {
    let columns = WIDE.query_columns() + 2 * WIDE.key_columns();
    let packing = packed(&[(40, None), (20, None)], true);
    let x = values(60 * columns, 7);
    let run = |x: &[f64]| {
        let x = tensor(x, [60, columns], &device());
        bits(joint_attention(x, WIDE, 0.2, &packing))
    };
    let before = run(&x);
    let mut changed = x.clone();
    changed[30 * columns..40 * columns].iter_mut().for_each(|x| *x = 1e4);
    let after = run(&changed);
    let width = WIDE.query_columns();
    assert_eq!(before[..30 * width], after[..30 * width]);
    assert_ne!(before[30 * width..31 * width], after[30 * width..31 * width]);
    assert_eq!(before[40 * width..], after[40 * width..]);
}

#[test]
fn scores_far_apart_are_finite() {
    let heads = Heads { heads: 1, kv_heads: 1, width: 1 };
    // Queries 1e4 and −1e4 over the keys 1, 0, −1 put all the weight on a single key.
    let x = [1e4, 1.0, 5.0, -1e4, 0.0, 7.0, 1e4, -1.0, 9.0];
    let x = tensor(&x, [3, 3], &device());
    let packing = packed(&[(3, None)], false);
    let got = host(joint_attention(x, heads, 1.0, &packing));
    assert_close(&got, &[5.0, 9.0, 5.0], 1e-7);
}

proptest! {
    #[test]
    fn outputs_are_means_of_values(
        lengths in prop::collection::vec(1..40_usize, 1..5), width in 1..40_usize,
        kv_heads in 1..3_usize, group in 1..3_usize, causal: bool, seed: u64,
    ) {
        let heads = Heads { heads: group * kv_heads, kv_heads, width };
        let sequences: Vec<_> = lengths.iter().enumerate().map(|(i, &n)| (n, (i > 0).then_some(0))).collect();
        let packing = packed(&sequences, causal);
        let columns = heads.query_columns() + 2 * heads.key_columns();
        let x = values(packing.rows() * columns, seed);
        let scale = scale(width);
        let got = host(joint_attention(
            tensor(&x, [packing.rows(), columns], &device()), heads, scale, &packing,
        ));
        // A score is the sum of 40 products, with an error of about 4e-7. The relative error of its
        // weight is the same. The largest observed error in the mean of 91 values is 6.2e-7.
        assert_close(&got, &oracle(&x, heads, scale.into(), &packing), 1.5e-6);
    }
}

#[test]
#[should_panic(expected = "queries, keys and values")]
fn columns_that_are_not_those_of_the_heads() {
    let x: Tensor<2> = Tensor::zeros([3, 100], &device());
    joint_attention(x, WIDE, 1.0, &packed(&[(3, None)], true));
}

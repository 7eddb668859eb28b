//! Tests derivatives of log-probabilities and entropies. Small cases are also compared with
//! difference quotients by `grpo selftest`.

use burn::tensor::DType;
use grpo_oracle as oracle;
use grpo_oracle::{ScoreCase, Under};
use grpo_selftest::scores;
use grpo_selftest::scores::{Scored, Way, scored};

use crate::{device, formats, most_accurate};

#[track_caller]
fn close(got: &Option<Vec<f64>>, expected: &Option<Vec<f64>>, tolerance: f64) {
    assert_eq!(got.is_some(), expected.is_some());
    let (Some(got), Some(expected)) = (got, expected) else { return };
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, e| largest.max(e.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        assert!(difference <= tolerance * largest, "{i}: {got}, expected {expected} of {largest}");
    }
}

fn run(case: &ScoreCase, way: Way, upstream: [&[f64]; 2], dtype: DType) -> Scored {
    scored(case, way, upstream, &device(), dtype)
}

/// Frozen head, frozen hidden states, or neither frozen.
fn ways(fused: bool, tied: bool) -> [Way; 3] {
    [(true, false), (false, true), (true, true)].map(|(track_hidden, track_head)| Way {
        fused,
        tied,
        track_hidden,
        track_head,
    })
}

fn upstream(n: usize) -> [Vec<f64>; 2] {
    [1.0, 2.0].map(|k| (0..n).map(|i| ((i as f64 + 1.0) * k * 1.7).sin()).collect())
}

/// Compares scores from hidden states in all precisions with scores from logits in the highest.
#[track_caller]
fn check_both_paths(case: &ScoreCase, tied: bool, upstream: [&[f64]; 2]) {
    for (fused, logits) in ways(true, tied).into_iter().zip(ways(false, tied)) {
        let (exact, _) = most_accurate([0.0; 2]);
        let expected = run(case, logits, upstream, exact);
        for (dtype, tolerance) in formats([3e-6, 1e-12]) {
            let got = run(case, fused, upstream, dtype);
            let pairs = got.gradients.iter().zip(&expected.gradients);
            pairs.for_each(|(got, expected)| close(got, expected, tolerance));
        }
    }
}

#[test]
fn both_paths_have_the_same_gradients() {
    for under in Under::all() {
        for (tied, bias) in [(false, true), (true, false)] {
            let case = ScoreCase::generated([7, 5, 37], under, bias);
            let [g, h] = upstream(7);
            for h in [&h, &vec![0.0; 7]] {
                check_both_paths(&case, tied, [&g, h]);
            }
        }
    }
}

#[test]
fn gradients_equal_difference_quotients() {
    for under in Under::all() {
        let case = ScoreCase::generated([3, 3, 11], under, true);
        let [g, h] = upstream(3);
        let expected = oracle::score_gradients(&case, [&g, &h]);
        for (dtype, tolerance) in formats([2e-6, 1e-8]) {
            let got = run(&case, ways(true, false)[2], [&g, &h], dtype);
            let pairs = got.gradients.iter().zip(&expected);
            pairs.for_each(|(got, expected)| close(got, expected, tolerance));
        }
    }
}

/// Uses more positions and more ids than fit into a tile.
#[test]
fn tiles_make_no_difference_to_gradients() {
    let restricted =
        Under { temperature: Some(0.9), forbidding: true, truncated: true, penalty: Some(1.2) };
    for (under, tied) in [(Under::default(), false), (restricted, true)] {
        let case = ScoreCase::generated([2060, 4, 4200], under, !tied);
        let [g, h] = upstream(2060);
        let zero = vec![0.0; 2060];
        for h in [&h, &zero] {
            for (fused, logits) in ways(true, tied).into_iter().zip(ways(false, tied)) {
                for (dtype, tolerance) in formats([1e-5, 1e-11]) {
                    let got = run(&case, fused, [&g, h], dtype);
                    let expected = run(&case, logits, [&g, h], dtype);
                    let pairs = got.gradients.iter().zip(&expected.gradients);
                    pairs.for_each(|(got, expected)| close(got, expected, tolerance));
                }
            }
        }
    }
}

/// Only ids in the last tile can be sampled, so all other tiles are empty.
#[test]
fn tiles_without_a_possible_id_leave_no_gradient() {
    let mut case = ScoreCase::generated([3, 4, 4200], Under::default(), false);
    case.ids = vec![4199, 4150, 4100];
    case.kept = Some(vec![vec![4199], vec![4150, 4199], vec![4100, 4101]]);
    let [g, h] = upstream(3);
    for h in [&h, &vec![0.0; 3]] {
        check_both_paths(&case, false, [&g, h]);
    }
}

/// If an id cannot be sampled at any position, the gradient of its head column is exactly 0.
#[test]
fn forbidden_ids_have_no_gradient() {
    let under = Under { forbidding: true, truncated: true, ..Under::default() };
    let case = ScoreCase::generated([7, 5, 37], under, false);
    let [g, h] = upstream(7);
    for (dtype, _) in formats([0.0; 2]) {
        let scores::Scored { gradients: [_, weight, _], .. } =
            run(&case, ways(true, false)[2], [&g, &h], dtype);
        for row in weight.expect("a gradient").chunks(37) {
            case.forbidden.iter().for_each(|&id| assert_eq!(row[id as usize], 0.0));
            assert!(row.iter().any(|&gradient| gradient != 0.0));
        }
    }
}

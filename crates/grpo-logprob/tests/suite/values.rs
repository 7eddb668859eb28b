//! Tests log-probabilities, entropies and the exact KL.

use burn::tensor::{DType, Tensor, TensorData};
use grpo_data::TokenSet;
use grpo_logprob::{Head, Targets, exact_kl, score, score_logits};
use grpo_oracle as oracle;
use grpo_oracle::{ScoreCase, Under};
use grpo_selftest::scores::{Scored, Way, scored, targets};
use proptest::prelude::*;

use crate::{device, formats, most_accurate};

#[track_caller]
fn close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(1.0_f64, |largest, e| largest.max(e.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        assert!(difference <= tolerance * largest, "{i}: {got}, expected {expected}");
    }
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn run(case: &ScoreCase, fused: bool, tied: bool, dtype: DType) -> Scored {
    let way = Way { fused, tied, track_hidden: false, track_head: false };
    scored(case, way, [&[], &[]], &device(), dtype)
}

/// Compares both implementations with the definition.
#[track_caller]
fn check(case: &ScoreCase, dtype: DType, tolerance: f64) {
    let expected: Vec<[f64; 2]> = (0..case.sizes[0]).map(|i| oracle::score(case, i)).collect();
    let [logprobs, entropies] = [0, 1].map(|c| expected.iter().map(|e| e[c]).collect::<Vec<_>>());
    for (fused, tied) in [(true, false), (true, true), (false, false)] {
        let got = run(case, fused, tied, dtype);
        close(&got.logprobs, &logprobs, tolerance);
        close(&got.entropies, &entropies, tolerance);
    }
}

#[test]
fn both_paths_equal_the_definition() {
    for under in Under::all() {
        for bias in [false, true] {
            let case = ScoreCase::generated([7, 5, 37], under, bias);
            formats([2e-6, 1e-13]).for_each(|(dtype, tolerance)| check(&case, dtype, tolerance));
        }
    }
}

/// Uses more positions and more ids than fit into a tile.
#[test]
fn tiles_make_no_difference() {
    let restricted =
        Under { temperature: Some(0.9), forbidding: true, truncated: true, penalty: Some(1.2) };
    for under in [Under::default(), restricted] {
        let case = ScoreCase::generated([2060, 4, 4200], under, false);
        formats([4e-6, 1e-12]).for_each(|(dtype, tolerance)| check(&case, dtype, tolerance));
    }
}

/// Only one or two ids in the last tile can be sampled, so all other tiles are empty.
#[test]
fn tiles_without_a_possible_id_leave_no_trace() {
    for (dtype, tolerance) in formats([2e-6, 1e-13]) {
        let mut case = ScoreCase::generated([3, 4, 4200], Under::default(), false);
        case.ids = vec![4199, 4150, 4100];
        case.kept = Some(vec![vec![4199], vec![4150, 4199], vec![4100, 4101]]);
        check(&case, dtype, tolerance);
        let got = run(&case, true, false, dtype);
        // With a single possible id, its probability is 1. (On the CPU, each impossible id adds
        // e⁻⁸⁷ to the sum.)
        assert_eq!(got.logprobs[0], 0.0);
        assert!((0.0..1e-30).contains(&got.entropies[0]), "{}", got.entropies[0]);
    }
}

/// In f32, logits must not be exponentiated directly, only their differences to the largest logit.
#[test]
fn large_logits_do_not_overflow() {
    let mut case = ScoreCase::generated([6, 4, 50], Under::default(), false);
    case.hidden.iter_mut().for_each(|h| *h *= 400.0);
    // The rounding error of a logit of 3,000 in f32 is 2e-4.
    formats([1e-3, 1e-12]).for_each(|(dtype, tolerance)| check(&case, dtype, tolerance));
}

/// A vocabulary may be padded with ids whose logits are −∞.
#[test]
fn an_infinitely_unlikely_id_changes_nothing() {
    let mut case = ScoreCase::generated([4, 4, 50], Under::default(), true);
    case.ids.iter_mut().for_each(|id| *id %= 40);
    let bias = case.bias.as_mut().expect("a bias");
    bias[40..].fill(-1e30);
    let fused = formats([0.0; 2]).map(|(dtype, _)| (true, dtype));
    for (fused, dtype) in fused.chain([(false, DType::F32)]) {
        let expected = run(&case, fused, false, dtype);
        let mut infinite = case.clone();
        infinite.bias.as_mut().expect("a bias")[40..].fill(f64::NEG_INFINITY);
        let got = run(&infinite, fused, false, dtype);
        assert_eq!(got.logprobs, expected.logprobs);
        assert_eq!(got.entropies, expected.entropies);
    }
}

#[test]
fn a_diverged_model_is_not_hidden() {
    let mut case = ScoreCase::generated([3, 4, 50], Under::default(), false);
    case.hidden[4] = f64::NAN;
    let fused = formats([0.0; 2]).map(|(dtype, _)| (true, dtype));
    for (fused, dtype) in fused.chain([(false, DType::F32)]) {
        let got = run(&case, fused, false, dtype);
        for values in [got.logprobs, got.entropies] {
            let nan: Vec<bool> = values.into_iter().map(f64::is_nan).collect();
            assert_eq!(nan, [false, true, false], "fused: {fused}, {dtype:?}");
        }
    }
}

#[test]
fn an_id_that_could_not_be_drawn_is_all_but_impossible() {
    let device = device();
    let targets = Targets::new(vec![2, 1], 3).without(&[2]);
    let head = Head::new(Tensor::from_data([[1.0, 2.0, 3.0]], &device));
    let hidden: Tensor<2> = Tensor::from_data([[1.0], [1.0]], &device);
    for scores in
        [score(hidden.clone(), &head, &targets), score_logits(head.logits(hidden), &targets)]
    {
        let logprobs = host(scores.logprobs);
        assert!(logprobs[0] < -9e29 && logprobs[0].is_finite(), "{logprobs:?}");
        assert!((logprobs[1] - -(1.0 + (-1.0_f64).exp()).ln()).abs() < 1e-6);
    }
}

#[test]
#[should_panic(expected = "there are no positions to score")]
fn nothing_is_no_score() {
    let device = device();
    let head = Head::new(Tensor::zeros([2, 3], &device));
    score(Tensor::zeros([0, 2], &device), &head, &Targets::new(vec![], 3));
}

#[test]
fn exact_kl_equals_the_definition() {
    let device = device();
    let (format, tolerance) = most_accurate([2e-6, 1e-13]);
    for under in Under::all() {
        let case = ScoreCase::generated([5, 4, 19], under, false);
        let mut reference = case.clone();
        reference.hidden.iter_mut().for_each(|h| *h = *h * 0.5 + 0.1);
        let expected: Vec<f64> = (0..5)
            .map(|i| {
                // The KL covers all ids that can be sampled, even if truncated sampling kept only
                // some of them.
                let all = |case: &ScoreCase| ScoreCase { kept: None, ..case.clone() };
                let pairs = oracle::log_policy(&all(&case), i).into_iter();
                let pairs = pairs.zip(oracle::log_policy(&all(&reference), i));
                pairs.map(|((_, p), (_, q))| p.exp() * (p - q)).sum()
            })
            .collect();
        let logits = |case: &ScoreCase| {
            let logits: Vec<f64> = (0..5).flat_map(|i| case.logits(i)).collect();
            Tensor::<2>::from_data(TensorData::new(logits, [5, 19]), (&device, format))
        };
        let got = exact_kl(logits(&case), logits(&reference), &targets(&case));
        close(&host(got), &expected, tolerance);
        let same = exact_kl(logits(&case), logits(&case), &targets(&case));
        assert!(host(same).iter().all(|&kl| kl == 0.0));
    }
}

proptest! {
    /// With the kept set recorded by truncated sampling, scores are a softmax over this set.
    #[test]
    fn scoring_within_a_kept_set_is_a_renormalised_softmax(
        logits in prop::collection::vec(-8.0_f32..8.0, 12),
        kept in prop::collection::btree_set(0_u32..12, 1..12),
        pick in any::<prop::sample::Index>(),
    ) {
        let device = device();
        let kept: Vec<u32> = kept.into_iter().collect();
        let id = kept[pick.index(kept.len())];
        let full: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
        let mass: f64 = kept.iter().map(|&id| full[id as usize]).sum();
        let expected = (full[id as usize] / mass).ln();
        let set = TokenSet::from_sorted(&kept, 12).expect("ascending");
        let targets = Targets::new(vec![id], 12).within(vec![set]);
        let head = Head::new(Tensor::from_data(TensorData::new(logits, [1, 12]), &device));
        let hidden: Tensor<2> = Tensor::from_data([[1.0]], &device);
        let fused = host(score(hidden.clone(), &head, &targets).logprobs)[0];
        let plain = host(score_logits(head.logits(hidden), &targets).logprobs)[0];
        prop_assert!((fused - expected).abs() < 4e-6, "{fused}, expected {expected}");
        prop_assert!((plain - expected).abs() < 4e-6, "{plain}, expected {expected}");
    }
}

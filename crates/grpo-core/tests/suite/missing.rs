//! Tests that a missing required input causes a panic.

use burn::tensor::{DType, Device};
use grpo_core::{
    BatchTotals, HighEntropy, KlEstimator, LossConfig, LossInputs, Preset, grpo_loss, sequence_kl,
};

use crate::strategies::{corrections, penalties};
use crate::support::{Batch, Run, on_policy, vector};

/// Computes the loss for a single token after `change` has added or removed inputs.
fn one_token(config: &LossConfig, change: impl Fn(&mut LossInputs<'_>, &mut BatchTotals)) {
    let device = Device::flex();
    let one = |value: f64| vector(&[value], DType::F32, &device);
    let mut inputs = LossInputs {
        ref_logprobs: Some(&[-1.0]),
        sampling_logprobs: Some(&[-1.0]),
        entropies: Some(one(1.0)),
        ..LossInputs::on_policy(one(-1.0), &[0], &[1.0])
    };
    let kept = HighEntropy { threshold: 0.0, tokens: 1 };
    let mut totals =
        BatchTotals { sequences: 1, tokens: 1, max_completion_length: 1, high_entropy: Some(kept) };
    change(&mut inputs, &mut totals);
    grpo_loss(&inputs, config, &totals);
}

#[test]
#[should_panic(expected = "a high-entropy mask requires entropies")]
fn a_mask_without_entropies_is_a_broken_invariant() {
    let config = LossConfig { high_entropy_share: Some(0.5), ..Preset::Grpo.config() };
    one_token(&config, |inputs, _| inputs.entropies = None);
}

#[test]
#[should_panic(expected = "a high-entropy mask requires a threshold")]
fn a_mask_without_a_threshold_is_a_broken_invariant() {
    let config = LossConfig { high_entropy_share: Some(0.5), ..Preset::Grpo.config() };
    one_token(&config, |_, totals| totals.high_entropy = None);
}

#[test]
#[should_panic(expected = "an entropy bonus requires entropies")]
fn a_bonus_without_entropies_is_a_broken_invariant() {
    one_token(&Preset::Grpo.config(), |inputs, _| {
        inputs.entropies = None;
        inputs.entropy_coef = 0.1;
    });
}

#[test]
#[should_panic(expected = "each sequence has an advantage")]
fn a_sequence_without_an_advantage_is_a_broken_invariant() {
    one_token(&Preset::Grpo.config(), |inputs, _| inputs.rows = &[1]);
}

#[test]
#[should_panic(expected = "each token has one value of each input")]
fn more_old_log_probabilities_than_tokens_are_a_broken_invariant() {
    one_token(&Preset::Grpo.config(), |inputs, _| inputs.old_logprobs = Some(&[-1.0, -1.0]));
}

#[test]
#[should_panic(expected = "a KL penalty requires a reference")]
fn a_penalty_without_a_reference_is_a_broken_invariant() {
    let kl = penalties()[1];
    let config = LossConfig { kl, ..Preset::Grpo.config() };
    one_token(&config, |inputs, _| inputs.ref_logprobs = None);
}

#[test]
#[should_panic(expected = "the exact KL of each position is given")]
fn an_exact_penalty_without_the_exact_kl_is_a_broken_invariant() {
    let kl = penalties()[5];
    one_token(&LossConfig { kl, ..Preset::Grpo.config() }, |_, _| {});
}

#[test]
#[should_panic(expected = "a mismatch correction requires the sampler's")]
fn a_correction_without_the_sampler_is_a_broken_invariant() {
    let mismatch = Some(corrections()[0]);
    let config = LossConfig { mismatch, ..Preset::Grpo.config() };
    one_token(&config, |inputs, _| inputs.sampling_logprobs = None);
}

#[test]
#[should_panic(expected = "the exact KL of each position is given")]
fn a_metric_of_the_exact_kl_without_it_is_a_broken_invariant() {
    let config = LossConfig { kl: penalties()[5], ..Preset::Grpo.config() };
    let batch = on_policy(vec![vec![-1.0]], vec![1.0]);
    Batch { reference: Some(vec![vec![-1.0]]), ..batch }.statistics(&config);
}

#[test]
#[should_panic(expected = "the exact KL of each position is given")]
fn the_exact_penalty_of_a_completion_needs_the_exact_kl() {
    sequence_kl(KlEstimator::Exact, &[-1.0], &[-1.0], None);
}

#[test]
#[should_panic(expected = "log-probabilities of policy and reference")]
fn a_penalty_of_two_lengths_is_a_broken_invariant() {
    sequence_kl(KlEstimator::K1, &[-1.0], &[-1.0, -2.0], None);
}

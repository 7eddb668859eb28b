//! Compares loss, gradients and metrics with the f64 reference implementation.

use burn::tensor::DType;
use grpo_core::{EntropyBonus, KlConfig, LossConfig, RatioLevel, sequence_kl};
use grpo_oracle as oracle;
use proptest::prelude::*;

use crate::strategies::{batches, configs, every_option, penalties};
use crate::support::{Batch, Rows, Run, all_close, cases, close, largest};

/// Difference quotients are accurate to about 1e-10 of the largest derivative. In f32, rounding
/// dominates.
fn tolerance(dtype: DType, values: &Rows) -> f64 {
    let relative = if dtype == DType::F64 { 1e-9 } else { 3e-6 };
    relative * largest(values.iter().flatten()).max(0.1)
}

#[track_caller]
fn check(dtype: DType, batch: &Batch, config: &LossConfig) {
    let totals = batch.totals(config.high_entropy_share);
    let (terms, got) = batch.evaluate(dtype, config, &totals);
    let loss = oracle::loss(batch, config, &totals);
    let relative = if dtype == DType::F64 { 1e-13 } else { 1e-5 };
    close(got.loss, loss, relative * loss.abs().max(1.0), &format!("loss of {config:?}"));
    let only_policy = LossConfig { kl: KlConfig { coef: 0.0, ..config.kl }, ..*config };
    let no_bonus = |batch: &Batch| Batch { entropy_coef: 0.0, ..batch.clone() };
    let policy_loss = oracle::loss(&no_bonus(batch), &only_policy, &totals);
    let kl_penalty = oracle::loss(&no_bonus(batch), config, &totals) - policy_loss;
    let scale = policy_loss.abs().max(kl_penalty.abs()).max(1.0);
    close(terms.policy_loss, policy_loss, relative * scale, &format!("policy, {config:?}"));
    close(terms.kl_penalty, kl_penalty, relative * scale, &format!("penalty, {config:?}"));
    let expected = oracle::gradient(batch, config, &totals);
    let what = |of: &str| format!("gradient by {of}, {config:?}");
    let near = tolerance(dtype, &expected.logprobs);
    all_close(&got.gradient, &expected.logprobs, near, &what("log-probabilities"));
    let near = tolerance(dtype, &expected.entropies);
    all_close(&got.entropy_gradient, &expected.entropies, near, &what("entropies"));
    if let Some(exact) = expected.exact_kl {
        let near = tolerance(dtype, &exact);
        all_close(&got.exact_gradient, &exact, near, &what("exact KL"));
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn loss_and_gradient_equal_the_loops(
        batch in batches(),
        config in configs(),
        first in any::<bool>(),
    ) {
        let old = if first { None } else { batch.old.clone() };
        let batch = Batch { old, ..batch };
        prop_assume!(!oracle::near_a_kink(&batch, &config, 1e-4));
        check(DType::F64, &batch, &config);
        check(DType::F32, &batch, &config);
    }

    #[test]
    fn metrics_equal_the_loops(batch in batches(), config in configs(), given in any::<[bool; 3]>()) {
        let [old, sampling, reference] = given;
        let batch = Batch {
            old: batch.old.filter(|_| old),
            sampling: batch.sampling.filter(|_| sampling || config.mismatch.is_some()),
            reference: batch.reference.filter(|_| reference),
            ..batch
        };
        let totals = batch.totals(config.high_entropy_share);
        let got = batch.statistics(&config);
        let expected = oracle::metrics(&batch, &config, &totals);
        prop_assert_eq!(got.metrics().len(), expected.len(), "{:?}", got.metrics());
        for (name, value) in got.metrics() {
            close(value, expected[name], 1e-12 * value.abs().max(1.0), name);
            prop_assert_eq!(got.metric(name), Some(value));
        }
        prop_assert_eq!(got.tokens(), batch.tokens() as u64);
    }

    /// Sampler metrics include all tokens, regardless of masks.
    #[test]
    fn metrics_of_the_sampler_are_before_every_mask(batch in batches(), config in configs()) {
        let got = batch.statistics(&config);
        let (sampling, masked) = (batch.sampling.as_ref().unwrap(), &batch.mask);
        let trainer = batch.old.as_ref().unwrap_or(&batch.logprobs);
        let of_sequence = config.mismatch.is_some_and(|it| it.level == RatioLevel::Sequence);
        let (mut tokens, mut entropy, mut sum, mut largest) = (0.0_f64, 0.0, 0.0, 0.0_f64);
        let mut quotients: Vec<f64> = vec![];
        for b in 0..masked.len() {
            let mut product = 1.0;
            for t in (0..masked[b].len()).filter(|&t| masked[b][t]) {
                let log = trainer[b][t] - sampling[b][t];
                tokens += 1.0;
                entropy -= sampling[b][t];
                sum += log.abs();
                largest = largest.max(log.abs());
                product *= log.exp();
                if !of_sequence {
                    quotients.push(log.exp());
                }
            }
            if of_sequence && masked[b].contains(&true) {
                quotients.push(product);
            }
        }
        let least = quotients.iter().copied().fold(f64::INFINITY, f64::min);
        let most = quotients.iter().copied().fold(0.0, f64::max);
        let mean = quotients.iter().sum::<f64>() / quotients.len() as f64;
        for (name, expected) in [
            ("sampling/entropy", entropy / tokens),
            ("sampling/sampling_logp_difference/mean", sum / tokens),
            ("sampling/sampling_logp_difference/max", largest),
            ("sampling/raw_importance_sampling_ratio/min", least),
            ("sampling/raw_importance_sampling_ratio/mean", mean),
            ("sampling/raw_importance_sampling_ratio/max", most),
        ] {
            match got.metric(name) {
                Some(value) => close(value, expected, 1e-12 * expected.abs().max(1.0), name),
                None => prop_assert_eq!(tokens, 0.0, "{}", name),
            }
        }
    }

    #[test]
    fn the_penalty_of_a_completion_equals_the_loops(batch in batches()) {
        let (logprobs, reference) = (&batch.logprobs[0], &batch.reference.as_ref().unwrap()[0]);
        let exact = batch.exact_kl.as_ref().map(|rows| &rows[0][..]);
        for kl in penalties() {
            let got = sequence_kl(kl.estimator, logprobs, reference, exact);
            let expected = oracle::sequence_kl(kl.estimator, logprobs, reference, exact);
            close(got, expected, 1e-13 * expected.abs().max(1.0), "KL of a completion");
        }
    }
}

/// Tests every preset with each option on its own, using a batch in which every option has an
/// effect.
#[test]
fn each_option_alone_equals_the_loops() {
    let batch = crate::toy::Scene::new().batch();
    for config in every_option() {
        let entropy_coef = match config.entropy_bonus {
            Some(EntropyBonus::Static { coef }) => coef,
            _ => 0.0,
        };
        let batch = Batch { entropy_coef, ..batch.clone() };
        assert!(!oracle::near_a_kink(&batch, &config, 1e-4), "{config:?}");
        check(DType::F64, &batch, &config);
    }
}

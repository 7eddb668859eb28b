//! Tests names and values of the metrics in an actual step.

use std::collections::BTreeSet;
use std::sync::Arc;

use grpo_data::{Completion, Finish, Sample};
use grpo_train::{Decode, Metrics, StepReport};

use crate::oracle::{advantages, completions};
use crate::support::{chains, config, grpo, take_step};

const NAMES: [&str; 70] = [
    "step",
    "reward",
    "reward_std",
    "reward_min",
    "reward_max",
    "reward_share/qed",
    "reward_share/sa",
    "reward_dominance",
    "advantage_max",
    "frac_reward_zero_std",
    "rewards/qed/mean",
    "rewards/qed/std",
    "rewards/sa/mean",
    "rewards/sa/std",
    "rewards/valid/mean",
    "rewards/valid/std",
    "rewards/abstained",
    "rewards/failed",
    "kl",
    "kl_p99",
    "kl_max",
    "kl_sequence",
    "entropy",
    "ratio/min",
    "ratio/max",
    "ratio/p99",
    "clip_ratio/low_mean",
    "clip_ratio/low_min",
    "clip_ratio/high_mean",
    "clip_ratio/high_max",
    "clip_ratio/region_mean",
    "sampling/entropy",
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "sampling/raw_importance_sampling_ratio/min",
    "sampling/raw_importance_sampling_ratio/mean",
    "sampling/raw_importance_sampling_ratio/max",
    "kl_coef",
    "reference_age",
    "loss",
    "policy_loss",
    "kl_penalty",
    "grad_norm",
    "learning_rate",
    "completions/mean_length",
    "completions/min_length",
    "completions/max_length",
    "completions/mean_terminated_length",
    "completions/min_terminated_length",
    "completions/max_terminated_length",
    "completions/clipped_ratio",
    "completions/mean_characters",
    "completions/unique_ratio",
    "completions/collapsed_groups",
    "num_tokens",
    "step_time",
    "time/rollout",
    "time/reward",
    "time/update",
    "time/reference",
    "time/forward",
    "time/backward",
    "time/optimizer",
    "time/reused",
    "tokens_per_second",
    "memory/rss",
    "memory/peak",
    "memory/rollout",
    "memory/reward",
    "memory/update",
];

fn report() -> StepReport {
    let mut config = config();
    config.sampling.max_new_tokens = 6;
    take_step(&mut grpo(config, chains()), 0)
}

#[test]
fn names_are_stable_and_values_finite() {
    // Memory usage is not available on every system.
    let mut without = report();
    (without.observed.memory, without.observed.phase_memory) = (None, None);
    for report in [report(), without] {
        let metrics = Metrics::of(&report, 1234);
        let names: Vec<&str> = metrics.iter().map(|(name, _)| name).collect();
        let is_known =
            |name: &&str| report.observed.memory.is_some() || !name.starts_with("memory/");
        let known: Vec<&str> = NAMES.iter().copied().filter(is_known).collect();
        assert_eq!(names, known);
    }
    let metrics = Metrics::of(&report(), 1234);
    for (name, value) in metrics.iter() {
        assert!(value.is_finite(), "{name} is {value}");
    }
    assert_eq!(metrics.get("no such metric"), None);
}

#[test]
fn values_are_those_of_the_completions() {
    let report = report();
    let metrics = Metrics::of(&report, 1234);
    let all: Vec<&Completion> = completions(&report).collect();
    let lengths: Vec<f64> =
        all.iter().map(|completion| completion.action_ids().count() as f64).collect();
    let ended: Vec<f64> = all
        .iter()
        .filter(|completion| completion.finish() == Finish::EndToken)
        .map(|completion| completion.action_ids().count() as f64)
        .collect();
    assert!(!ended.is_empty() && ended.len() < all.len(), "both kinds of ends are needed");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let rewards: Vec<f64> = report.samples().map(|sample| sample.reward().unwrap()).collect();
    let variance = rewards.iter().map(|r| (r - mean(&rewards)).powi(2)).sum::<f64>() / 23.0;
    let outcomes = || report.samples().map(|sample| sample.outcome.as_ref().unwrap());
    let valid: Vec<f64> = outcomes().map(|outcome| outcome.part("valid").unwrap()).collect();
    let qed: Vec<f64> = outcomes().filter_map(|outcome| outcome.part("qed")).collect();
    assert!(qed.len() < rewards.len(), "an invalid molecule is needed");
    let advantages: Vec<f64> = advantages(&report).into_iter().map(f64::abs).collect();
    let texts: BTreeSet<&String> = report.samples().map(|sample| &sample.text).collect();
    for (name, expected) in [
        ("step", 1.0),
        ("num_tokens", 1234.0),
        ("reward", mean(&rewards)),
        ("reward_std", variance.sqrt()),
        ("rewards/valid/mean", mean(&valid)),
        ("rewards/qed/mean", mean(&qed)),
        ("rewards/failed", 0.0),
        ("reward_min", least(&rewards)),
        ("reward_max", most(&rewards)),
        ("advantage_max", most(&advantages)),
        ("reward_dominance", metrics.get("reward_share/qed").unwrap()),
        ("kl_coef", 0.05),
        ("reference_age", 0.0),
        ("learning_rate", 1e-2),
        ("completions/mean_length", mean(&lengths)),
        ("completions/min_length", least(&lengths)),
        ("completions/max_length", most(&lengths)),
        ("completions/mean_terminated_length", mean(&ended)),
        ("completions/min_terminated_length", least(&ended)),
        ("completions/max_terminated_length", most(&ended)),
        ("completions/clipped_ratio", 1.0 - ended.len() as f64 / all.len() as f64),
        ("completions/unique_ratio", texts.len() as f64 / all.len() as f64),
        ("completions/collapsed_groups", 0.0),
    ] {
        let value = metrics.get(name).unwrap();
        assert!((value - expected).abs() < 1e-12, "{name}: {value}, expected {expected}");
    }
    let speed = metrics.get("tokens_per_second").unwrap() * metrics.get("step_time").unwrap();
    assert!((speed - lengths.iter().sum::<f64>()).abs() < 1e-6);
}

/// A completion that ends at a stop string counts as terminated, just like one with an end token.
#[test]
fn a_stop_string_is_an_end_of_the_policys_own() {
    let letter = |id: &u32| char::from(b'a' + *id as u8);
    let letters: Decode = Arc::new(move |ids| ids.iter().map(letter).collect());
    let mut config = config();
    config.sampling.max_new_tokens = 6;
    // d is the letter for the end token.
    config.sampling.stop = vec!["b".to_owned(), "ef".to_owned()];
    let report = take_step(&mut grpo(config, letters), 0);
    let metrics = Metrics::of(&report, 1234);
    let mut lengths = [vec![], vec![]];
    for Sample { completion, text, .. } in report.samples() {
        let is_stopped = text.ends_with('b') || text.ends_with("ef");
        assert_eq!(completion.finish() == Finish::Stop, is_stopped, "{text}");
        let before = &text[..text.len() - 1];
        assert!(!before.contains('b') && !before.contains("ef"), "{text} goes on");
        lengths[usize::from(completion.finish() == Finish::Length)].push(text.len() as f64);
    }
    let [ended, cut] = lengths;
    assert!(report.samples().any(|sample| sample.text.ends_with('b')) && !cut.is_empty());
    let clipped = cut.len() as f64 / (cut.len() + ended.len()) as f64;
    assert_eq!(metrics.get("completions/clipped_ratio"), Some(clipped));
    let mean = ended.iter().sum::<f64>() / ended.len() as f64;
    assert_eq!(metrics.get("completions/mean_terminated_length"), Some(mean));
}

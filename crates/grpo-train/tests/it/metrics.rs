//! Tests names and values of the metrics in an actual step.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{EntropyBonus, KlPlacement, Preset};
use grpo_data::{Completion, Example, Finish, Sample};
use grpo_extensions::{
    Bucketing, ExtensionKind, ExtensionParts, extension_kinds, metrics_of_kinds,
};
use grpo_model::Transformer;
use grpo_train::{
    AboveTolerance, Decode, Evaluation, Grpo, GrpoConfig, Metrics, NextTokens, Parts, StepDone,
    StepReport, TrainError, TrainObserver, Training, unconditional_prompts,
};

use crate::oracle::{advantages, completions};
use crate::support::{SEED, chains, config, grpo, model, molecules, parts, take_step, vocabulary};

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

/// The names of all metrics that a run writes.
#[derive(Default)]
struct Written(BTreeSet<String>);

impl TrainObserver<Transformer> for Written {
    fn step(&mut self, done: &StepDone<'_>, _: &Training<Transformer>) -> Result<(), TrainError> {
        self.0.extend(done.metrics.iter().map(|(name, _)| name.to_owned()));
        Ok(())
    }
}

/// Trains a few steps with the extensions of these sections. The metrics that the run writes must be those
/// that are declared for its configuration.
#[track_caller]
fn writes_what_is_declared(config: &GrpoConfig, sections: &str) {
    let kinds = extension_kinds::<Transformer>();
    let mut keys: toml::Table = toml::from_str(sections).unwrap();
    let own = |kind: &ExtensionKind<Transformer>| {
        (kind.parse)(kind.take(&mut keys)?, &[Bucketing::TEXT]).unwrap()
    };
    let used: Vec<_> = kinds.iter().filter_map(own).collect();
    assert!(keys.is_empty(), "{keys:?}");
    let declared = config.metrics_with(metrics_of_kinds(&kinds, &used)).unwrap().measured;

    let boundary = vocabulary().boundary();
    let mut examples = |_: &str, _: &std::path::Path| {
        Ok([1, 2, 3].map(|id| Example::of_all(vec![boundary, id, id, boundary])).to_vec())
    };
    let mut extension_parts = ExtensionParts {
        device: &Device::flex(),
        seed: SEED,
        config,
        similarity: None,
        identify: None,
        variation: None,
        examples: &mut examples,
    };
    let extensions = used.iter().map(|of| of.build(&mut extension_parts).unwrap()).collect();
    let policy = model(vocabulary().len(), 2.0);
    let actions = NextTokens { end_ids: vec![boundary] };
    let evaluation = (config.eval.every > 0).then(|| {
        let (prompts, reward) = (unconditional_prompts(3, boundary), molecules(0.7));
        Evaluation::new(prompts, &policy, config, &actions, reward, chains(), SEED).unwrap()
    });
    let parts = parts(Arc::new(actions), molecules(0.7), policy, chains());
    let grpo = Grpo::new(Parts { extensions, ..parts }, config.clone(), SEED).unwrap();
    let mut written = Written::default();
    let prompts = |_| Ok(unconditional_prompts(3, boundary));
    Training::new(grpo, evaluation).run(prompts, &mut written).unwrap();

    for name in &written.0 {
        assert!(declared.iter().any(|spec| spec.is_named(name)), "{name} is not declared");
    }
    for spec in declared {
        let is_elsewhere = spec.requires.starts_with("a reward of type")
            || (spec.requires == "Linux" && !cfg!(target_os = "linux"));
        let is_written = written.0.iter().any(|name| spec.is_named(name));
        assert!(is_written || is_elsewhere, "{} is declared, but not written", spec.name);
    }
}

#[test]
fn a_run_writes_the_metrics_that_are_declared() {
    let with = |change: &dyn Fn(&mut GrpoConfig)| {
        let mut config = config();
        (config.train.steps, config.sampling.max_new_tokens) = (3, 6);
        change(&mut config);
        config
    };
    let of_loss = with(&|c| {
        c.loss.off_policy_threshold = Some(1.0);
        c.loss.entropy_bonus = Some(EntropyBonus::Static { coef: 0.01 });
        (c.eval.every, c.eval.group_size) = (1, 2);
    });
    writes_what_is_declared(
        &of_loss,
        "[combined]\nfile = \"a.jsonl\"\nbatch_size = 2\nmeasure = \"distinct\"\n[diversity_bonus]\nweight = 0.1\nmeasure = \"bleu\"",
    );
    let of_sampler = with(&|c| {
        c.loss.preset = Preset::Cispo;
        c.loss.kl_placement = Some(KlPlacement::Reward);
        c.sampler_check.above = Some(AboveTolerance::Correct);
    });
    writes_what_is_declared(
        &of_sampler,
        "[train]\nstaleness = 1\n[diversity_filter]\nbucket = \"text\"\nmin_reward = 0.0",
    );
    let of_archive = with(&|c| c.loss.preset = Preset::Vespo);
    writes_what_is_declared(&of_archive, "[replay]\nupdates = 1\nsamples = 2");
    writes_what_is_declared(&with(&|_| ()), "");
}

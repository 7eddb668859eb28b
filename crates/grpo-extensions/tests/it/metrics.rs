//! Tests that runs write the metrics that are declared, with and without extensions.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{EntropyBonus, KlPlacement, Preset};
use grpo_data::Example;
use grpo_extensions::{
    Bucketing, ExtensionKind, ExtensionParts, Variation, extension_kinds, metrics_of_kinds,
};
use grpo_model::Transformer;
use grpo_rewards::Identity;
use grpo_train::{
    AboveTolerance, Evaluation, Grpo, GrpoConfig, NextTokens, Parts, StepDone, TrainError,
    TrainObserver, Training, unconditional_prompts,
};

use crate::support::{SEED, chains, config, model, molecules, parts, vocabulary};

/// The names of all metrics that a run writes.
#[derive(Default)]
struct Written(BTreeSet<String>);

impl TrainObserver<Transformer> for Written {
    fn step(&mut self, done: &StepDone<'_>, _: &Training<Transformer>) -> Result<(), TrainError> {
        self.0.extend(done.metrics.iter().map(|(name, _)| name.to_owned()));
        Ok(())
    }
}

/// A completion is its text.
fn by_text(texts: &[&str]) -> Vec<Identity> {
    texts.iter().map(|text| Identity::Canonical((*text).to_owned())).collect()
}

/// Writes chains of [`chains`].
struct Chains;

impl Variation for Chains {
    fn written(&self, canonical: &str, _: Option<u32>) -> Option<Vec<u32>> {
        let boundary = std::iter::once(vocabulary().boundary());
        Some(canonical.chars().map(|_| 2).chain(boundary).collect())
    }

    fn mutated(&self, _: &str, _: &mut dyn FnMut() -> u32) -> Option<String> {
        None
    }

    fn combined(&self, _: [&str; 2], _: &mut dyn FnMut() -> u32) -> Option<String> {
        None
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
    keys.retain(|_, left| !left.as_table().is_some_and(toml::Table::is_empty));
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
        identify: Some(by_text),
        variation: Some(Arc::new(Chains)),
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

//! Configurations of extensions, alone and with the rest of a run.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{Aggregation, MismatchCorrection, MismatchMode, RatioLevel};
use grpo_data::ConfigFault;
use grpo_extensions::{
    ArchiveConfig, Bucketing, BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind,
    ExtensionParts, ReplayConfig, build_extensions, check_extensions, extension_kinds,
    metrics_of_kinds,
};
use grpo_model::{ProductPrecision, Transformer, WeightPrecision};
use grpo_train::{ExtensionRole, GrpoConfig, StepExtension};
use toml::Table;

use crate::support::{SEED, config};

/// Guards know the metrics of all kinds of extensions.
#[test]
fn guards_on_metrics_of_extensions() {
    let guarded = |watch: &str| {
        let guard = serde_json::json!({"watch": watch, "above": 1.0, "action": "warn"});
        GrpoConfig { guards: Some(vec![serde_json::from_value(guard).unwrap()]), ..config() }
    };
    let kinds = extension_kinds::<Transformer>();
    let configured = |text: &str| -> Vec<Arc<dyn ExtensionConfig<Transformer>>> {
        let mut keys = toml::from_str(text).unwrap();
        let own = |kind: &ExtensionKind<Transformer>| {
            (kind.parse)(kind.take(&mut keys)?, &[Bucketing::TEXT]).unwrap()
        };
        kinds.iter().filter_map(own).collect()
    };
    let all = configured(
        "[train]\nstaleness = 1\n[combined]\nfile = \"a.jsonl\"\nmeasure = \"bleu\"\n[replay]\nproposals = 2\n[diversity_bonus]\nweight = 0.1\nmeasure = \"bleu\"\n[diversity_filter]\nbucket = \"text\"",
    );
    assert_eq!(all.len(), kinds.len());
    for metric in kinds.iter().flat_map(|kind| kind.metrics) {
        guarded(metric.name).check_with(metrics_of_kinds(&kinds, &all)).unwrap();
        let without = metrics_of_kinds(&kinds, &[]);
        assert_eq!(
            guarded(metric.name).check_with(without).unwrap_err().to_string(),
            format!(
                "guards[0]: watch = \"{}\": this run has no such metric; it requires {}",
                metric.name, metric.requires
            )
        );
    }
    // A limit of calls has an archive, but replays nothing.
    let limited = metrics_of_kinds(&kinds, &configured("[train]\nmax_reward_calls = 9"));
    guarded("archive/calls").check_with(limited.clone()).unwrap();
    let error = guarded("replay/loss").check_with(limited.clone()).unwrap_err().to_string();
    assert!(
        error.ends_with("it requires a [replay] section with a positive replay.updates"),
        "{error}"
    );
    let slip = guarded("combined/diversty").check_with(metrics_of_kinds(&kinds, &all));
    let error = slip.unwrap_err().to_string();
    assert!(error.contains("did you mean 'combined/diversity'?"), "{error}");
}

#[test]
fn replay_refuses_settings_it_cannot_be_used_with() {
    let checked = |change: &dyn Fn(&mut GrpoConfig, &mut ReplayConfig)| {
        let (mut config, mut replay) = (config(), ReplayConfig::default());
        change(&mut config, &mut replay);
        let archive = ArchiveConfig { replay: Some(replay), ..ArchiveConfig::default() };
        archive.check_values()?;
        config.check()?;
        let run = ConfiguredRun { config: &config, extensions: &["archive"], has_prompts: false };
        ExtensionConfig::<Transformer>::check(&archive, &run)
    };
    let refused = |change: &dyn Fn(&mut GrpoConfig, &mut ReplayConfig), expected: &str| {
        assert_eq!(checked(change).unwrap_err().to_string(), expected);
    };
    refused(
        &|_, replay| replay.samples = 1,
        "replay.samples = 1 is out of range; expected 2 to 10000",
    );
    let unmodified = "[replay] requires completions that are sampled from the unmodified policy, because the probability of a replayed completion is not known otherwise; remove [replay], or sampling.top_k, top_p, min_p, sampling.weights and loss.mismatch";
    refused(&|c, _| c.sampling.top_k = Some(3), unmodified);
    refused(&|c, _| c.sampling.top_p = Some(0.9), unmodified);
    refused(&|c, _| c.sampling.min_p = Some(0.1), unmodified);
    let corrected = MismatchCorrection {
        level: RatioLevel::Token,
        mode: MismatchMode::Truncate,
        min: 0.0,
        max: 2.0,
    };
    refused(&|c, _| c.loss.mismatch = Some(corrected), unmodified);
    refused(
        &|c, _| {
            c.loss.mismatch = Some(corrected);
            c.sampling.weights = WeightPrecision::Bf16;
        },
        unmodified,
    );
    refused(
        &|c, _| c.advantage.aggregation = Aggregation::NormalizeThenSum,
        "advantage.aggregation = \"normalize_then_sum\" normalises rewards within each group, so replayed completions cannot be compared with sampled ones; remove it, or [replay]",
    );
    checked(&|_, _| {}).unwrap();
    // Sampling and training round alike.
    checked(&|c, _| c.train.precision = ProductPrecision::Bf16).unwrap();
}

/// Says with these roles what sets bonuses.
#[derive(Debug)]
struct Bonuses(&'static [ExtensionRole]);

impl ExtensionConfig<Transformer> for Bonuses {
    fn name(&self) -> &'static str {
        "bonuses"
    }

    fn settings(&self) -> Table {
        Table::new()
    }

    fn roles(&self) -> &'static [ExtensionRole] {
        self.0
    }

    fn check(&self, _run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        Ok(())
    }

    fn build(&self, _parts: &mut ExtensionParts<'_>) -> BuiltExtension<Transformer> {
        Ok(Box::new(SetsBonuses))
    }
}

struct SetsBonuses;

impl StepExtension<Transformer> for SetsBonuses {
    fn name(&self) -> &'static str {
        "bonuses"
    }

    fn sets_bonus(&self) -> bool {
        true
    }
}

/// A configuration says before a run what its extension does in it.
#[test]
fn roles_are_declared_and_compared() {
    let config = config();
    let build = |roles| {
        let used: Arc<dyn ExtensionConfig<Transformer>> = Arc::new(Bonuses(roles));
        let mut parts = ExtensionParts {
            device: &Device::flex(),
            seed: SEED,
            config: &config,
            similarity: None,
            identify: None,
            variation: None,
            examples: &mut |_, _| unreachable!("it reads no examples"),
        };
        let built = build_extensions(&[used], &mut parts);
        built.map(|extensions| extensions.len()).map_err(|error| error.to_string())
    };
    assert_eq!(build(&[ExtensionRole::Bonus]), Ok(1));
    assert_eq!(
        build(&[]).unwrap_err(),
        "the extension bonuses has the roles [Bonus] and looks 0 steps ahead, but its configuration bonuses declares [] and 0; correct ExtensionConfig"
    );
    let bonus = toml::from_str("[diversity_bonus]\nweight = 0.1\nmeasure = \"bleu\"").unwrap();
    let kinds = extension_kinds::<Transformer>();
    let kind = kinds.iter().find(|kind| kind.name == "diversity_bonus").unwrap();
    let other = (kind.parse)(bonus, &[]).unwrap().unwrap();
    let used: [Arc<dyn ExtensionConfig<Transformer>>; 2] =
        [other, Arc::new(Bonuses(&[ExtensionRole::Bonus]))];
    assert_eq!(
        check_extensions(&used, &config, false).unwrap_err().to_string(),
        "diversity_bonus and bonuses cannot be combined; remove one of them"
    );
    check_extensions(&used[..1], &config, false).unwrap();
}

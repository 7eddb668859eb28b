//! The extension that keeps the scores of a run: each distinct completion is scored once, and the best
//! ones are replayed.

use std::slice;
use std::sync::Arc;

use grpo_core::Aggregation;
use grpo_data::schema::Keys;
use grpo_data::statistics::mean;
use grpo_data::{ConfigFault, Ranges, Sample, SampledUnder, deserialize_settings};
use grpo_model::{LanguageModel, WeightPrecision};
use grpo_rewards::Identify;
use grpo_run::{EndedBy, FurtherUpdates, Plan};
use grpo_runtime::awake;
use grpo_train::{
    ExtensionRole, FurtherUpdate, GrpoConfig, MetricSpec, SamplingConfig, ScoreKeeper, ScoredStep,
    StepExtension, TrainError, Update, UpdatedStep,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use crate::replay::Replay;
use crate::{
    Archive, ArchivedCall, BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind,
    ExtensionParts, ReplayConfig, Variation, refuse_with,
};

/// Keeps an [`Archive`] of the scores of a run, and replays its best completions if
/// [`ArchiveConfig::replay`] is set.
#[derive(Debug)]
pub struct ScoreArchive {
    archive: Archive,
    replay: Option<Replay>,
    /// Rewards of the proposals of the step, `None` for those without.
    proposed: Option<Vec<Option<f64>>>,
}

static METRICS: [MetricSpec; 7] = [
    MetricSpec::new(
        "archive/calls",
        "≥ 0",
        "number of distinct completions that the reward has scored in the run",
    )
    .requires(KEPT),
    MetricSpec::new("archive/top_10", "", "mean of the ten highest rewards of the run")
        .requires(KEPT),
    MetricSpec::new(
        "proposals/count",
        "count",
        "number of the step's proposals, which no other metric includes",
    )
    .requires(PROPOSED),
    MetricSpec::new("proposals/reward", "", "mean reward of the step's proposals")
        .requires(PROPOSED),
    MetricSpec::new(
        "replay/reward",
        "",
        "mean reward of the replayed completions over the step's updates with them",
    )
    .requires(REPLAYED),
    MetricSpec::new("replay/loss", "", "mean loss of the same updates").requires(REPLAYED),
    MetricSpec::new(
        "replay/grad_norm",
        "≥ 0",
        "mean gradient norm of the same updates before clipping",
    )
    .requires(REPLAYED),
];
const KEPT: &str = "a [replay] section or train.max_reward_calls";
const REPLAYED: &str = "a [replay] section with a positive replay.updates";
const PROPOSED: &str = "a [replay] section with a positive replay.proposals";

/// Name of the extension.
const ARCHIVE: &str = "archive";

impl<M: LanguageModel> StepExtension<M> for ScoreArchive {
    fn name(&self) -> &'static str {
        ARCHIVE
    }

    fn check(&self, config: &GrpoConfig, extensions: &[&'static str]) -> Result<(), ConfigFault> {
        match self.replay {
            Some(_) => refuse_incomparable(config, extensions),
            None => Ok(()),
        }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn score_keeper(&mut self) -> Option<&mut dyn ScoreKeeper> {
        Some(&mut self.archive)
    }

    /// Scores new completions derived from the best ones so far, unless proposals are disabled.
    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        self.proposed = None;
        let Some(replay) = self.replay.as_ref().filter(|replay| !replay.proposes_nothing()) else {
            return Ok(());
        };
        let mut group = replay.proposals(&self.archive, &step.prompts[0], step.step);
        if !group.samples.is_empty() {
            let calls = self.archive.score(slice::from_mut(&mut group), step.scorer)?;
            step.added.calls.extend(calls);
            step.scorer.refuse_interrupt()?;
            step.scorer.refuse_failures(group.samples.iter(), ", proposals")?;
            step.scorer.refuse_interrupt()?;
        }
        self.proposed = Some(group.samples.iter().map(Sample::reward).collect());
        step.added.groups.push(group);
        Ok(())
    }

    /// Updates the policy with completions from the archive. Nothing is replayed if it has fewer than
    /// two, or if no completion of the step was scored.
    fn after_updates(&mut self, step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        let (rewards, updates) = self.replayed(step)?;
        let metrics = &mut step.added.metrics;
        metrics.push(("archive/calls", self.archive.calls().len() as f64));
        let best: Vec<f64> = self.archive.best().take(10).map(ArchivedCall::reward).collect();
        if !best.is_empty() {
            metrics.push(("archive/top_10", mean(&best)));
        }
        if let Some(proposed) = &self.proposed {
            metrics.push(("proposals/count", proposed.len() as f64));
            let rewards: Vec<f64> = proposed.iter().copied().flatten().collect();
            if !rewards.is_empty() {
                metrics.push(("proposals/reward", mean(&rewards)));
            }
        }
        if !updates.is_empty() {
            let of =
                |value: fn(&Update) -> f64| mean(&updates.iter().map(value).collect::<Vec<_>>());
            metrics.extend([
                ("replay/reward", mean(&rewards)),
                ("replay/loss", of(|update| update.loss)),
                ("replay/grad_norm", of(|update| update.grad_norm)),
            ]);
        }
        let updates = updates.into_iter().map(|update| update.ledger);
        let updates = updates.map(|ledger| FurtherUpdate { grad_norm: None, ledger });
        step.learned.further.extend(updates);
        Ok(())
    }

    /// The number of calls, because the archive only grows.
    fn mark(&self) -> Value {
        self.archive.calls().len().into()
    }

    fn undo(&mut self, mark: Value) {
        let known = serde_json::from_value(mark).expect("it is a mark of this extension");
        self.archive.forget_after(known);
    }

    fn ending(&self) -> Option<String> {
        let calls = self.archive.calls().len() as u64;
        self.archive.is_exhausted().then(|| EndedBy::calls_used(calls).reason)
    }

    fn state(&self) -> Value {
        match self.archive.calls() {
            [] => Value::Null,
            calls => serde_json::to_value(calls).expect("names and numbers are JSON"),
        }
    }

    fn restore(&mut self, state: Value) -> Result<(), String> {
        self.archive.restore(archived_calls(state)?);
        Ok(())
    }
}

/// Reads the distinct completions that the reward has scored from the saved state of the extension, in
/// the order in which it scored them.
///
/// # Errors
/// Returns a description of what is wrong with it.
pub fn archived_calls(state: Value) -> Result<Vec<ArchivedCall>, String> {
    match state {
        Value::Null => Ok(Vec::new()),
        state => serde_json::from_value(state).map_err(|error| error.to_string()),
    }
}

impl ScoreArchive {
    /// Name of the extension.
    pub const NAME: &str = ARCHIVE;

    /// Returns the mean reward of the replayed completions of each update, and the updates.
    fn replayed<M: LanguageModel>(
        &self,
        step: &mut UpdatedStep<'_, M>,
    ) -> Result<(Vec<f64>, Vec<Update>), TrainError> {
        let (mut means, mut updates) = (Vec::new(), Vec::new());
        let Some(replay) = &self.replay else { return Ok((means, updates)) };
        if step.learned.objectives.iter().all(Option::is_none) {
            return Ok((means, updates));
        }
        for update in 0..replay.updates() {
            let mut groups = [replay.group(&self.archive, &step.prompts[0], step.step, update)];
            if groups[0].samples.len() < 2 {
                break;
            }
            let rewards: Vec<f64> = groups[0].samples.iter().filter_map(Sample::reward).collect();
            means.push(mean(&rewards));
            let (learned, learning_rate) = (&*step.learned, step.learning_rate);
            updates.push(awake(|| step.learner.replay(&mut groups, learned, learning_rate))?);
        }
        Ok((means, updates))
    }
}

/// Checks that replayed completions can be compared with sampled ones.
fn refuse_incomparable(
    config: &GrpoConfig,
    extensions: &[&'static str],
) -> Result<(), ConfigFault> {
    let SamplingConfig { top_k, top_p, min_p, weights, .. } = &config.sampling;
    let is_truncated = top_k.is_some() || top_p.is_some() || min_p.is_some();
    let corrects_mismatch = config.loss.resolve()?.mismatch.is_some();
    if is_truncated || corrects_mismatch || *weights != WeightPrecision::F32 {
        return Err(ConfigFault::new(
            "replay",
            "[replay] requires completions that are sampled from the unmodified policy, because the probability of a replayed completion is not known otherwise",
            "remove [replay], or sampling.top_k, top_p, min_p, sampling.weights and loss.mismatch",
        ));
    }
    if config.advantage.aggregation == Aggregation::NormalizeThenSum {
        return Err(ConfigFault::new(
            "advantage.aggregation",
            "advantage.aggregation = \"normalize_then_sum\" normalises rewards within each group, so replayed completions cannot be compared with sampled ones",
            "remove it, or [replay]",
        ));
    }
    refuse_with("replay", extensions, &["combined"])
}

/// The keys of the archive in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    /// The `[replay]` section: updates with the best completions so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayConfig>,
    /// The limit in the `[train]` section.
    pub train: CallLimit,
}

/// The limit of reward calls in the `[train]` section.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Ranges,
)]
#[serde(deny_unknown_fields, default)]
pub struct CallLimit {
    /// The run ends when the reward has scored this many distinct completions. Equivalent
    /// completions are scored once. Invalid ones, completions that a
    /// filter rejects before an external reward is asked, calls that fail or
    /// abstain, and calls that are repeated because a run was killed are not counted. Scores of
    /// evaluations and of the preflight are not counted either: set `eval.samples` and
    /// `preflight.samples` to 0 if they must not exceed the limit. A roll-back by a guard also
    /// takes back the calls since its checkpoint. Requires a task that
    /// can tell which completions are equivalent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1e9), extend("x-basic" = true))]
    pub max_reward_calls: Option<u32>,
}

/// Returns the kind of extension that a `[replay]` section or `train.max_reward_calls` asks for.
pub(crate) const fn kind<M: LanguageModel>() -> ExtensionKind<M> {
    ExtensionKind {
        name: ARCHIVE,
        keys: &["replay", LIMIT],
        schema: Keys::of::<ArchiveConfig>(),
        metrics: &METRICS,
        parse: |keys, _| {
            let config: ArchiveConfig = deserialize_settings(keys)?;
            config.check_values()?;
            Ok(Some(Arc::new(config)))
        },
    }
}

const LIMIT: &str = "train.max_reward_calls";

impl<M: LanguageModel> ExtensionConfig<M> for ArchiveConfig {
    fn name(&self) -> &'static str {
        ARCHIVE
    }

    fn settings(&self) -> Table {
        Table::try_from(self).expect("settings consist of texts, numbers and tables")
    }

    fn roles(&self) -> &'static [ExtensionRole] {
        &[ExtensionRole::Scores]
    }

    fn check(&self, run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        if run.has_prompts {
            let message = "[replay] and train.max_reward_calls compare all completions of a run with each other, so they cannot be used with prompts or conditions";
            return Err(ConfigFault::new(self.key(), message, "remove them"));
        }
        match self.replay {
            Some(_) => refuse_incomparable(run.config, run.extensions),
            None => Ok(()),
        }
    }

    fn measures(&self, metric: &str) -> bool {
        let replay = self.replay.as_ref();
        match metric.split_once('/') {
            Some(("replay", _)) => replay.is_some_and(|replay| replay.updates > 0),
            Some(("proposals", _)) => replay.is_some_and(|replay| replay.proposals > 0),
            _ => true,
        }
    }

    fn pulls(&self) -> Vec<&'static str> {
        let replays = self.replay.as_ref().is_some_and(|replay| replay.updates > 0);
        replays.then_some("replay of earlier completions (replay.updates)").into_iter().collect()
    }

    fn plan(&self, plan: &mut Plan) {
        let replays = self.replay.as_ref().map(|replay| replay.updates as usize);
        let key = "replay.updates";
        let replays = replays.map(|count| FurtherUpdates { key, count, replay: true });
        plan.further_updates.extend(replays);
        plan.endings
            .extend(self.train.max_reward_calls.map(|most| EndedBy::calls_used(most.into())));
    }

    fn build(&self, parts: &mut ExtensionParts<'_>) -> BuiltExtension<M> {
        let ExtensionParts { seed, config, identify, .. } = *parts;
        Ok(Box::new(self.archive(identify, parts.variation.clone(), &config.sampling, seed)?))
    }
}

impl ArchiveConfig {
    /// Returns the key that asks for the archive.
    fn key(&self) -> &'static str {
        if self.replay.is_some() { "replay" } else { LIMIT }
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    /// Returns an error for the first key that is not.
    pub fn check_values(&self) -> Result<(), ConfigFault> {
        self.train.check_ranges("train")?;
        self.replay.as_ref().map_or(Ok(()), ReplayConfig::check)
    }

    /// Creates an empty archive. `identify` tells equivalent completions and `variation` writes and varies
    /// them, if the task can. `sampling` is how the run samples.
    ///
    /// # Errors
    /// Returns an error if the configuration needs what the task cannot do.
    pub fn archive(
        &self,
        identify: Option<Identify>,
        variation: Option<Arc<dyn Variation>>,
        sampling: &SamplingConfig,
        seed: u64,
    ) -> Result<ScoreArchive, ConfigFault> {
        let key = self.key();
        let unknown = || {
            let message = format!(
                "{key} requires completions that can be compared by a canonical form, such as molecules"
            );
            ConfigFault::new(key, message, "remove it")
        };
        let archive = Archive::new(identify.ok_or_else(unknown)?, self.train.max_reward_calls);
        let Some(settings) = &self.replay else {
            return Ok(ScoreArchive { archive, replay: None, proposed: None });
        };
        let unknown = || {
            let message = "[replay] requires completions that the task can vary, such as molecules";
            ConfigFault::new("replay", message, "remove it")
        };
        let variation = variation.ok_or_else(unknown)?;
        let SamplingConfig { temperature, repetition_penalty, max_new_tokens, .. } = *sampling;
        let repetition_penalty = repetition_penalty.unwrap_or(1.0);
        let under = SampledUnder { temperature, repetition_penalty, ..SampledUnder::default() };
        let replay = Replay::new(settings.clone(), variation, max_new_tokens, under, seed);
        Ok(ScoreArchive { archive, replay: Some(replay), proposed: None })
    }
}

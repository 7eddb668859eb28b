//! Features that are added to the steps of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::{Completion, ConfigFault, Group, Outcome, Prompt, Purpose, Sample};
use grpo_metrics::MetricSpec;
use grpo_model::{Frozen, LanguageModel, WeightPrecision, WeightsDigest, weights_digest};
use grpo_rewards::{ExternalCalls, RewardInput, RewardRunner};
use grpo_rollout::{Engine, StepKey, check_groups};
use grpo_runtime::{RankError, Ranks};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::refuse_failures;
use crate::extension_roles::{ExtensionRole, refuse_conflicts};
use crate::{Cut, Decode, GradientSum, GrpoConfig, LearnResult, Learner, TrainError};

/// A feature that is added to the steps of a run, e.g. a filter, a bonus, a replay or a curriculum.
///
/// [`Grpo::step`](crate::Grpo::step) calls the extensions in the order of
/// [`Parts::extensions`](crate::Parts::extensions) and knows none of them by name. All random numbers
/// and decisions must follow from the seed, the step and the state, so that a resumed run continues
/// exactly.
pub trait StepExtension<M>: Send {
    /// Returns the name, which is unique in a run: that of its section of the configuration, and the key
    /// of its state.
    fn name(&self) -> &'static str;

    /// Checks that it can be used in a run with this configuration and with the extensions of these
    /// names. A run begins only then.
    ///
    /// # Errors
    /// Returns an error that names the key.
    fn check(&self, config: &GrpoConfig, extensions: &[&'static str]) -> Result<(), ConfigFault> {
        let _ = (config, extensions);
        Ok(())
    }

    /// Returns whether it sets [`Sample::bonus`](grpo_data::Sample::bonus). The bonus is then a reward
    /// term with the name of the extension, and its mean and standard deviation are the metrics
    /// `{name}/mean` and `{name}/std`, which [`Self::metrics`] declares. Only one extension of a run can
    /// do this.
    fn sets_bonus(&self) -> bool {
        false
    }

    /// Returns its metrics. Only these may be added to [`Added::metrics`], and guards can watch them.
    fn metrics(&self) -> &'static [MetricSpec] {
        &[]
    }

    /// Returns the number of later steps whose prompts it has to know before a step.
    fn looks_ahead(&self) -> u32 {
        0
    }

    /// Called once with the prompts of each step, between two steps: as early as the extension of the run
    /// that looks ahead furthest needs them.
    fn upcoming(&mut self, sampler: &StepSampler<'_, M>) {
        let _ = sampler;
    }

    /// Samples the completions of a step. Returns `None` to sample them with the current policy, as a step
    /// does otherwise. The first extension of a run that samples a step decides.
    ///
    /// # Errors
    /// Returns an error if sampling fails or is interrupted.
    fn rollout(&mut self, sampler: &StepSampler<'_, M>) -> Result<Option<Sampled>, TrainError> {
        let _ = sampler;
        Ok(None)
    }

    /// Returns what scores the completions of a step in place of the call of the reward, e.g. a memory. Only
    /// one extension of a run can do this, and it must always or never do it.
    fn score_keeper(&mut self) -> Option<&mut dyn ScoreKeeper> {
        None
    }

    /// Changes how the scored completions of a step count, before the advantages are computed. Samples
    /// and their completions must stay as they are: each update uses all of them, which an audit checks.
    /// Each sample must keep an outcome, because completions are recorded with theirs.
    ///
    /// A sample whose outcome becomes [`Outcome::abstained`] has the advantage 0 and loses its reward in
    /// metrics and records. It stays in the step: the KL penalty, the entropy bonus and all denominators
    /// include it.
    ///
    /// # Errors
    /// Returns an error if the run must end. The step is then undone in all extensions ([`Self::undo`]).
    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        let _ = step;
        Ok(())
    }

    /// Returns the auxiliary loss that the updates of a step also minimise. Only one extension of a run can
    /// do this, and it must always or never do it.
    fn auxiliary_loss(&mut self) -> Option<&mut dyn AuxiliaryLoss<M>> {
        None
    }

    /// Adds updates of the policy to those of the step ([`LearnResult::further`]).
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn after_updates(&mut self, step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        let _ = step;
        Ok(())
    }

    /// Returns what [`Self::undo`] needs in order to return to the state before a step. Called at the
    /// beginning of each step, so it should be cheap.
    fn mark(&self) -> Value {
        self.state()
    }

    /// Returns to the state before a step, which failed before the policy was updated and may be
    /// repeated.
    fn undo(&mut self, mark: Value) {
        self.restore(mark).expect("it is a state of this extension");
    }

    /// Returns why the run ends after this step, as a sentence, if the extension ends it
    /// ([`Ending::OfExtension`](crate::Ending::OfExtension)).
    fn ending(&self) -> Option<String> {
        None
    }

    /// Returns the state that later steps depend on, or [`Value::Null`] if there is none.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Replaces the state by a saved one.
    ///
    /// # Errors
    /// Returns a description of what is wrong with it.
    fn restore(&mut self, state: Value) -> Result<(), String> {
        match state {
            Value::Null => Ok(()),
            _ => Err("it keeps no state".to_owned()),
        }
    }

    /// Checks a restored state against a run that has completed `steps` steps.
    ///
    /// # Errors
    /// Returns a description of what is wrong with it.
    fn check_restored(&self, steps: u32, policy_version: u64) -> Result<(), String> {
        let _ = (steps, policy_version);
        Ok(())
    }
}

/// Scores completions in place of the reward. See [`StepExtension::score_keeper`].
pub trait ScoreKeeper {
    /// Scores the completions of a step.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    fn score(
        &mut self,
        groups: &mut [Group],
        scorer: &StepScorer<'_>,
    ) -> Result<Option<ExternalCalls>, RankError>;
}

/// A loss that is minimised together with the GRPO loss. See [`StepExtension::auxiliary_loss`].
pub trait AuxiliaryLoss<M> {
    /// Returns the weight of the GRPO loss in the whole loss.
    fn grpo_weight(&self) -> f64;

    /// Adds the gradient of the auxiliary loss to the weighted one of an update, and returns the whole
    /// loss that the update minimises.
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn add(&mut self, update: &mut PolicyUpdate<'_, M>) -> Result<f64, TrainError>;
}

/// Samples completions for the prompts of a step.
pub struct StepSampler<'a, M> {
    pub(crate) learner: &'a Learner<M>,
    pub(crate) engine: &'a Arc<dyn Engine<M>>,
    pub(crate) weights: WeightPrecision,
    pub(crate) seed: u64,
    pub(crate) interrupt: &'a AtomicBool,
    /// Number of the step, counted from 0.
    pub step: u32,
    /// Prompts of the step.
    pub prompts: &'a [Prompt],
}

/// The policy with which a step is sampled.
pub struct Snapshot<M> {
    /// The policy.
    pub policy: Frozen<M>,
    /// Hash of its weights before they were rounded for sampling.
    pub weights: WeightsDigest,
    /// Random numbers of the step.
    pub key: StepKey,
}

/// The completions of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Number of optimizer steps applied to the policy that sampled them.
    pub policy_version: u64,
    /// Hash of that policy's weights.
    pub weights: String,
    /// Completions of each prompt.
    pub completions: Vec<Vec<Completion>>,
}

impl Sampled {
    /// Returns the completions as groups of `prompts`.
    ///
    /// # Errors
    /// Returns a description of the first difference if they are not groups of this size of these prompts.
    pub(crate) fn into_groups(
        self,
        prompts: &[Prompt],
        group_size: usize,
    ) -> Result<Vec<Group>, String> {
        if self.completions.len() != prompts.len() {
            let groups = self.completions.len();
            return Err(format!("{groups} groups for {} prompts", prompts.len()));
        }
        let groups = prompts.iter().cloned().zip(self.completions);
        let groups: Vec<Group> = groups.map(|(prompt, all)| Group::new(prompt, all)).collect();
        check_groups(prompts, &groups, group_size)?;
        Ok(groups)
    }
}

impl<M: LanguageModel> StepSampler<'_, M> {
    /// Returns the engine that samples completions.
    pub fn engine(&self) -> &Arc<dyn Engine<M>> {
        self.engine
    }

    /// Returns the number of optimizer steps applied to the policy so far.
    pub fn policy_version(&self) -> u64 {
        self.learner.version()
    }

    /// Returns the current policy, as this step samples with it.
    pub fn snapshot(&self) -> Snapshot<M> {
        let policy = Frozen::snapshot_in(self.learner.policy(), self.weights);
        let weights = match self.weights {
            WeightPrecision::F32 => policy.digest(),
            // The weights of the snapshot are rounded.
            _ => weights_digest(self.learner.policy()),
        };
        let (seed, policy_version) = (self.seed, self.policy_version());
        let key = StepKey { seed, purpose: Purpose::SAMPLING, step: self.step, policy_version };
        Snapshot { policy, weights, key }
    }

    /// Returns whether the run is interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// The scored completions of a step.
pub struct ScoredStep<'a> {
    /// Number of the step, counted from 0.
    pub step: u32,
    /// The prompts of the step.
    pub prompts: &'a [Prompt],
    /// The groups, whose samples have outcomes.
    pub groups: &'a mut [Group],
    /// The ranks, over which expensive work can be distributed.
    pub ranks: &'a Ranks,
    /// Scores further completions.
    pub scorer: &'a StepScorer<'a>,
    /// What the extensions add to the step.
    pub added: &'a mut Added,
}

/// An update of the policy whose gradients have been computed.
pub struct PolicyUpdate<'a, M> {
    /// The policy.
    pub policy: &'a M,
    /// Number of optimizer steps so far.
    pub version: u64,
    /// The groups of the step.
    pub groups: &'a [Group],
    /// GRPO loss without its weight.
    pub grpo_loss: f64,
    /// How examples are split into micro-batches.
    pub cut: Cut,
    /// The gradients.
    pub gradients: &'a mut GradientSum,
}

/// A step after the updates of the policy.
pub struct UpdatedStep<'a, M> {
    /// Number of the step, counted from 0.
    pub step: u32,
    /// The prompts of the step.
    pub prompts: &'a [Prompt],
    /// The policy and its optimizer.
    pub learner: &'a mut Learner<M>,
    /// The result of the updates. [`LearnResult::further`] takes those of extensions.
    pub learned: &'a mut LearnResult,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// What the extensions add to the step.
    pub added: &'a mut Added,
}

/// What extensions add to a step.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// Metrics by name.
    pub metrics: Vec<(&'static str, f64)>,
    /// Groups that were scored in addition. They are not learned from.
    pub groups: Vec<Group>,
    /// Calls of external programs and servers for them.
    pub calls: Vec<ExternalCalls>,
}

/// Scores completions during a step.
pub struct StepScorer<'a> {
    pub(crate) rewards: &'a RewardRunner,
    pub(crate) decode: &'a Decode,
    pub(crate) ranks: &'a Ranks,
    pub(crate) interrupt: &'a AtomicBool,
    /// Number of the step, counted from 1.
    pub(crate) step: u32,
    /// See [`crate::TrainConfig::max_failed_rewards`].
    pub(crate) max_failed: f64,
}

impl StepScorer<'_> {
    /// Calls the reward for all samples.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn score(&self, groups: &mut [Group]) -> Result<Option<ExternalCalls>, RankError> {
        self.rewards.score_groups(groups, Some(self.step), &**self.decode)
    }

    /// Like [`Self::score`], but only for samples for which `known` returns `None`. The others get the
    /// outcome that it returns.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn score_except(
        &self,
        groups: &mut [Group],
        known: impl FnOnce(&[RewardInput]) -> Vec<Option<Outcome>>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        self.rewards.score_groups_except(groups, Some(self.step), &**self.decode, known)
    }

    /// Checks that the reward failed for at most `train.max_failed_rewards` of the samples. `of` says
    /// which ones of the step they are, e.g. `, proposals`.
    ///
    /// # Errors
    /// Returns [`TrainError::Reward`] if more failed.
    pub fn refuse_failures<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample> + Clone,
        of: &str,
    ) -> Result<(), TrainError> {
        refuse_failures(samples, self.max_failed, || format!("step {}{of}", self.step))
    }

    /// Fails on all ranks if any of them was interrupted. All ranks must call it.
    ///
    /// # Errors
    /// Returns [`TrainError::Interrupted`] then.
    pub fn refuse_interrupt(&self) -> Result<(), TrainError> {
        match self.ranks.any(self.interrupt.load(Ordering::Relaxed))? {
            true => Err(TrainError::Interrupted),
            false => Ok(()),
        }
    }
}

/// The extensions of a run, in the order in which they are called.
pub type StepExtensions<M> = Vec<Box<dyn StepExtension<M>>>;

/// Returns what [`undo`] needs.
pub(crate) fn marks<M>(extensions: &StepExtensions<M>) -> Vec<Value> {
    extensions.iter().map(|extension| extension.mark()).collect()
}

/// Returns all extensions to their state before a step.
pub(crate) fn undo<M>(extensions: &mut StepExtensions<M>, marks: Vec<Value>) {
    extensions.iter_mut().zip(marks).for_each(|(extension, mark)| extension.undo(mark));
}

/// Scores the completions of a step and calls the extensions. Returns what they add.
///
/// # Errors
/// Returns an error if the step must end.
pub(crate) fn score<M>(
    extensions: &mut StepExtensions<M>,
    prompts: &[Prompt],
    groups: &mut [Group],
    scorer: &StepScorer<'_>,
) -> Result<Added, TrainError> {
    let keeper = extensions.iter_mut().find_map(|extension| {
        let name = extension.name();
        extension.score_keeper().map(|keeper| (name, keeper))
    });
    let (scored_by, calls) = match keeper {
        Some((name, keeper)) => (name, keeper.score(groups, scorer)?),
        None => ("rewards", scorer.score(groups)?),
    };
    // An interrupt makes the reward fail.
    scorer.refuse_interrupt()?;
    refuse_unscored(scored_by, groups)?;
    scorer.refuse_failures(groups.iter().flat_map(|group| &group.samples), "")?;
    let mut added = Added { calls: calls.into_iter().collect(), ..Added::default() };
    for extension in &mut *extensions {
        let (step, ranks) = (scorer.step - 1, scorer.ranks);
        let (added, groups) = (&mut added, &mut *groups);
        let mut scored = ScoredStep { step, prompts, groups, ranks, scorer, added };
        extension.after_rewards(&mut scored)?;
        refuse_unscored(extension.name(), scored.groups)?;
    }
    let has_bonus = groups.iter().flat_map(|group| &group.samples).any(|of| of.bonus.is_some());
    if has_bonus && bonus_metrics(extensions).is_none() {
        let methods = "StepExtension::sets_bonus and StepExtension::metrics";
        return Err(undeclared("a bonus was set", methods));
    }
    Ok(added)
}

/// Checks that all samples have an outcome. An extension could have returned fewer known scores than samples,
/// or removed an outcome.
fn refuse_unscored(scored_by: &'static str, groups: &[Group]) -> Result<(), TrainError> {
    let samples = || groups.iter().flat_map(|group| &group.samples);
    match samples().filter(|sample| sample.outcome.is_none()).count() {
        0 => Ok(()),
        left => {
            let all = samples().count();
            let source = format!("{left} of {all} completions were left without an outcome");
            Err(TrainError::Extension { name: scored_by, source: source.into() })
        }
    }
}

/// Returns the metrics that the extensions added, with their declarations.
///
/// # Errors
/// Returns an error that names a metric that none of them declares.
pub(crate) fn declared<M>(
    extensions: &StepExtensions<M>,
    added: &[(&'static str, f64)],
) -> Result<Vec<(&'static MetricSpec, f64)>, TrainError> {
    let declaration = |(name, value): &(&'static str, f64)| match metrics(extensions)
        .find(|metric| metric.name == *name)
    {
        Some(metric) => Ok((metric, *value)),
        None => Err(undeclared(&format!("the metric {name} was added"), "StepExtension::metrics")),
    };
    added.iter().map(declaration).collect()
}

/// Creates the error for what no extension of the run declares.
fn undeclared(what: &str, method: &str) -> TrainError {
    let source = format!("{what}, but no extension declares it; override {method}").into();
    TrainError::Extension { name: "extensions", source }
}

/// Returns the roles of an extension.
pub fn roles_of<M>(extension: &mut dyn StepExtension<M>) -> Vec<ExtensionRole> {
    let held = [
        (extension.sets_bonus(), ExtensionRole::Bonus),
        (extension.score_keeper().is_some(), ExtensionRole::Scores),
        (extension.auxiliary_loss().is_some(), ExtensionRole::Loss),
    ];
    held.into_iter().filter(|(is_held, _)| *is_held).map(|(_, role)| role).collect()
}

/// Checks the extensions of a run with its configuration and with each other.
pub(crate) fn check<M>(
    extensions: &mut StepExtensions<M>,
    config: &GrpoConfig,
) -> Result<(), ConfigFault> {
    let names: Vec<&'static str> = extensions.iter().map(|extension| extension.name()).collect();
    extensions.iter().try_for_each(|extension| extension.check(config, &names))?;
    let roles = extensions.iter_mut().map(|extension| roles_of(&mut **extension));
    refuse_conflicts(&names.into_iter().zip(roles).collect::<Vec<_>>())
}

/// Refuses an extension that keeps scores if the reward compares completions, whose scores are then only
/// valid in their group.
pub(crate) fn check_scores<M>(
    extensions: &mut StepExtensions<M>,
    rewards: &RewardRunner,
) -> Result<(), ConfigFault> {
    let mut extensions = extensions.iter_mut().filter(|_| rewards.is_relative());
    match extensions.find_map(|of| of.score_keeper().is_some().then(|| of.name())) {
        Some(name) => {
            let message = format!(
                "{name} keeps the scores of completions, but this reward compares the completions of a group"
            );
            let remedy = "remove [replay] and train.max_reward_calls, or use another reward";
            Err(ConfigFault::new(name, message, remedy))
        }
        None => Ok(()),
    }
}

/// Returns the extension that sets bonuses, if any.
pub(crate) fn with_bonus<M>(extensions: &StepExtensions<M>) -> Option<&'static str> {
    extensions.iter().find(|extension| extension.sets_bonus()).map(|extension| extension.name())
}

/// Returns all metrics of the extensions.
pub(crate) fn metrics<M>(
    extensions: &StepExtensions<M>,
) -> impl Iterator<Item = &'static MetricSpec> {
    extensions.iter().flat_map(|extension| extension.metrics())
}

/// Returns the metrics of the bonus, its mean and its standard deviation, if an extension sets it and
/// declares them.
pub(crate) fn bonus_metrics<M>(extensions: &StepExtensions<M>) -> Option<[&'static MetricSpec; 2]> {
    let bonus = with_bonus(extensions)?;
    let of = |what: &str| {
        let name = format!("{bonus}/{what}");
        metrics(extensions).find(|metric| metric.name == name)
    };
    Some([of("mean")?, of("std")?])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use grpo_data::PartName;
    use grpo_rewards::Reward;

    use super::*;
    use crate::test_groups::group;

    /// Scores nothing.
    #[derive(Debug)]
    struct Nothing;

    impl Reward for Nothing {
        fn parts(&self) -> Vec<PartName> {
            Vec::new()
        }

        fn score(&self, inputs: &[RewardInput]) -> Vec<Outcome> {
            inputs.iter().map(|_| Outcome::abstained()).collect()
        }
    }

    /// Counts steps, and fails in the one with this number.
    struct Counter {
        name: &'static str,
        steps: u32,
        fails_in: Option<u32>,
    }

    impl StepExtension<()> for Counter {
        fn name(&self) -> &'static str {
            self.name
        }

        fn metrics(&self) -> &'static [MetricSpec] {
            const METRICS: &[MetricSpec] = &[MetricSpec::new("counter/steps", "count", "steps")];
            METRICS
        }

        fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
            if self.fails_in == Some(step.step) {
                let source = "the server does not answer".into();
                return Err(TrainError::Extension { name: self.name, source });
            }
            self.steps += 1;
            step.added.metrics.push(("counter/steps", self.steps.into()));
            Ok(())
        }

        fn state(&self) -> Value {
            self.steps.into()
        }

        fn restore(&mut self, state: Value) -> Result<(), String> {
            self.steps = serde_json::from_value(state).map_err(|error| error.to_string())?;
            Ok(())
        }
    }

    /// Scores a group, and undoes the step if that fails.
    fn call(
        extensions: &mut StepExtensions<()>,
        group: Group,
        step: u32,
    ) -> Result<Added, TrainError> {
        let scorer = StepScorer {
            rewards: &RewardRunner::new(Arc::new(Nothing), Duration::from_secs(1)),
            decode: &(Arc::new(|_: &[u32]| String::new()) as Decode),
            ranks: &Ranks::alone(),
            interrupt: &AtomicBool::new(false),
            step: step + 1,
            max_failed: 0.0,
        };
        let marks = marks(extensions);
        let added = score(extensions, &[], &mut [group], &scorer);
        if added.is_err() {
            undo(extensions, marks);
        }
        added
    }

    /// The step can be repeated as if it had not begun.
    #[test]
    fn a_step_that_an_extension_ends_is_undone_in_all_of_them() {
        let counter = |name, fails_in| Box::new(Counter { name, steps: 0, fails_in });
        let mut extensions: StepExtensions<()> =
            vec![counter("a", None), counter("b", Some(1)), counter("c", None)];
        let mut call = |step| call(&mut extensions, group(Vec::new()), step);
        assert_eq!(call(0).unwrap().metrics, [("counter/steps", 1.0); 3]);
        let error = call(1).unwrap_err().to_string();
        assert_eq!(error, "b: the server does not answer");
        let states: Vec<Value> = extensions.iter().map(|extension| extension.state()).collect();
        assert_eq!(states, [1, 1, 1]);
    }

    /// Knows the scores of fewer completions than there are.
    struct Forgetful;

    impl StepExtension<()> for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }

        fn score_keeper(&mut self) -> Option<&mut dyn ScoreKeeper> {
            Some(self)
        }
    }

    impl ScoreKeeper for Forgetful {
        fn score(
            &mut self,
            groups: &mut [Group],
            scorer: &StepScorer<'_>,
        ) -> Result<Option<ExternalCalls>, RankError> {
            scorer.score_except(groups, |_| vec![Some(Outcome::abstained())])
        }
    }

    /// Removes an outcome.
    struct Remover;

    impl StepExtension<()> for Remover {
        fn name(&self) -> &'static str {
            "remover"
        }

        fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
            step.groups[0].samples[1].outcome = None;
            Ok(())
        }
    }

    #[test]
    fn all_completions_have_an_outcome() {
        let mut group = group(vec![Outcome::abstained(); 3]);
        group.samples.iter_mut().for_each(|sample| sample.outcome = None);
        call(&mut Vec::new(), group.clone(), 0).unwrap();
        let error = call(&mut vec![Box::new(Forgetful)], group.clone(), 0).unwrap_err().to_string();
        assert_eq!(error, "forgetful: 2 of 3 completions were left without an outcome");
        let error = call(&mut vec![Box::new(Remover)], group, 0).unwrap_err().to_string();
        assert_eq!(error, "remover: 1 of 3 completions were left without an outcome");
    }

    #[test]
    fn metrics_are_declared() {
        let counter = |name| Box::new(Counter { name, steps: 0, fails_in: None });
        let both: StepExtensions<()> = vec![counter("a"), counter("b")];
        let added = declared(&both, &[("counter/steps", 1.0)]).unwrap();
        assert_eq!((added[0].0.name, added[0].1), ("counter/steps", 1.0));
        let error = declared(&both, &[("counter/step", 1.0)]).unwrap_err().to_string();
        assert!(error.contains("the metric counter/step was added"), "{error}");
    }
}

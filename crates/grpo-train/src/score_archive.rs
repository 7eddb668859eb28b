//! The extension that keeps the scores of a run: each distinct completion is scored once, and the best
//! ones are replayed.

use std::slice;
use std::sync::Arc;

use grpo_data::statistics::mean;
use grpo_data::{ConfigFault, Group, Sample, SampledUnder};
use grpo_model::LanguageModel;
use grpo_rewards::{ExternalCalls, Identify};
use grpo_runtime::{RankError, awake};
use serde_json::Value;

use crate::extension::{ScoredStep, StepExtension, StepScorer, UpdatedStep};
use crate::replay::Replay;
use crate::{
    Archive, ArchivedCall, Ending, GrpoConfig, SamplingConfig, TrainError, Update, Variation,
};

/// Keeps an [`Archive`] of the scores of a run, and replays its best completions if
/// [`GrpoConfig::replay`] is set.
#[derive(Debug)]
pub struct ScoreArchive {
    archive: Archive,
    replay: Option<Replay>,
}

/// Name of the extension.
pub(crate) const ARCHIVE: &str = "archive";

impl<M: LanguageModel> StepExtension<M> for ScoreArchive {
    fn name(&self) -> &'static str {
        ARCHIVE
    }

    fn keeps_scores(&self) -> bool {
        true
    }

    fn score(
        &mut self,
        groups: &mut [Group],
        scorer: &StepScorer<'_>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        self.archive.score(groups, scorer)
    }

    /// Scores new completions derived from the best ones so far, unless proposals are disabled.
    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
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
        for group in &step.added.groups {
            metrics.push(("proposals/count", group.samples.len() as f64));
            let rewards: Vec<f64> = group.samples.iter().filter_map(Sample::reward).collect();
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
        step.added.ledger.extend(updates.into_iter().map(|update| update.ledger));
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

    fn ending(&self) -> Option<Ending> {
        let calls = self.archive.calls().len();
        self.archive.is_exhausted().then_some(Ending::CallsUsed { calls })
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

/// Reads the saved state of an archive.
pub(crate) fn archived_calls(state: Value) -> Result<Vec<ArchivedCall>, String> {
    match state {
        Value::Null => Ok(Vec::new()),
        state => serde_json::from_value(state).map_err(|error| error.to_string()),
    }
}

impl ScoreArchive {
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
            let (learned, learning_rate) = (step.learned, step.learning_rate);
            updates.push(awake(|| step.learner.replay(&mut groups, learned, learning_rate))?);
        }
        Ok((means, updates))
    }
}

impl GrpoConfig {
    /// Creates an empty archive if the configuration needs one. `identify` tells equivalent completions
    /// and `variation` writes and varies them, if the task can.
    ///
    /// # Errors
    /// Returns an error if the configuration needs what the task cannot do.
    pub fn score_archive(
        &self,
        identify: Option<Identify>,
        variation: Option<Arc<dyn Variation>>,
        seed: u64,
    ) -> Result<Option<ScoreArchive>, TrainError> {
        let key = match (&self.replay, self.train.max_reward_calls) {
            (Some(_), _) => "replay",
            (None, Some(_)) => "train.max_reward_calls",
            (None, None) => return Ok(None),
        };
        let unknown = || {
            let message = format!(
                "{key} requires completions that can be compared by a canonical form, such as molecules"
            );
            ConfigFault::new(key, message, "remove it")
        };
        let archive = Archive::new(identify.ok_or_else(unknown)?, self.train.max_reward_calls);
        Ok(Some(ScoreArchive { archive, replay: self.replaying(variation, seed)? }))
    }

    /// Creates the replay, if it is configured.
    fn replaying(
        &self,
        variation: Option<Arc<dyn Variation>>,
        seed: u64,
    ) -> Result<Option<Replay>, ConfigFault> {
        let Some(settings) = &self.replay else { return Ok(None) };
        let unknown = || {
            let message = "[replay] requires completions that the task can vary, such as molecules";
            ConfigFault::new("replay", message, "remove it")
        };
        let variation = variation.ok_or_else(unknown)?;
        let SamplingConfig { temperature, repetition_penalty, max_new_tokens, .. } = self.sampling;
        let repetition_penalty = repetition_penalty.unwrap_or(1.0);
        let under = SampledUnder { temperature, repetition_penalty, ..SampledUnder::default() };
        Ok(Some(Replay::new(settings.clone(), variation, max_new_tokens, under, seed)))
    }
}

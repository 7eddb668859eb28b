//! The parts of a step that use the archive: proposals and replay.

use std::slice;
use std::sync::Arc;

use grpo_data::statistics::mean;
use grpo_data::{ConfigFault, Group, Prompt, Sample, SampledUnder};
use grpo_model::LanguageModel;
use grpo_rewards::{ExternalCalls, Identify};

use crate::archive_report::{ArchiveReport, ReplayMeans, Replayed};
use crate::error::refuse_failures;
use crate::learner::LearnResult;
use crate::replay::Replay;
use crate::{
    Archive, ArchivedCall, Grpo, GrpoConfig, SamplingConfig, TrainError, Update, Variation,
};

impl<M: LanguageModel> Grpo<M> {
    /// Scores new completions derived from the best ones so far. Returns them, unless proposals are
    /// disabled, and the calls of external programs.
    pub(crate) fn propose(
        &mut self,
        prompts: &[Prompt],
        step: u32,
    ) -> Result<(Option<ExternalCalls>, Option<Group>), TrainError> {
        let (Some(archive), Some(replay)) = (&self.archive, &self.replay) else {
            return Ok((None, None));
        };
        if replay.proposes_nothing() {
            return Ok((None, None));
        }
        let mut group = replay.proposals(archive, &prompts[0], step);
        if group.samples.is_empty() {
            return Ok((None, Some(group)));
        }
        let calls = self.scored(slice::from_mut(&mut group), step)?;
        self.refuse_interrupt()?;
        let most = self.config.train.max_failed_rewards;
        let place = || format!("step {}, proposals", u64::from(step) + 1);
        refuse_failures(group.samples.iter(), most, place)?;
        Ok((calls, Some(group)))
    }

    /// Updates the policy with completions from the archive. Nothing is replayed if it has fewer than
    /// two, or if no completion of the step was scored.
    pub(crate) fn replay(
        &mut self,
        prompts: &[Prompt],
        step: u32,
        sampled: &LearnResult,
        learning_rate: f64,
    ) -> Result<Replayed, TrainError> {
        let mut replayed = Replayed::default();
        let (Some(archive), Some(replay)) = (&self.archive, &self.replay) else {
            return Ok(replayed);
        };
        if sampled.objectives.iter().all(Option::is_none) {
            return Ok(replayed);
        }
        for update in 0..replay.updates() {
            let mut groups = [replay.group(archive, &prompts[0], step, update)];
            if groups[0].samples.len() < 2 {
                break;
            }
            let rewards: Vec<f64> = groups[0].samples.iter().filter_map(Sample::reward).collect();
            replayed.rewards.push(mean(&rewards));
            replayed.updates.push(self.learner.replay(&mut groups, sampled, learning_rate)?);
        }
        Ok(replayed)
    }

    /// Returns the use of the archive, if there is one.
    pub(crate) fn archive_report(
        &self,
        proposals: Option<Group>,
        replayed: &Replayed,
    ) -> Option<ArchiveReport> {
        let archive = self.archive.as_ref()?;
        let best: Vec<f64> = archive.best().take(10).map(ArchivedCall::reward).collect();
        let means = || {
            let of = |value: fn(&Update) -> f64| {
                mean(&replayed.updates.iter().map(value).collect::<Vec<f64>>())
            };
            ReplayMeans {
                reward: mean(&replayed.rewards),
                loss: of(|update| update.loss),
                grad_norm: of(|update| update.grad_norm),
            }
        };
        Some(ArchiveReport {
            calls: archive.calls().len(),
            top_10: (!best.is_empty()).then(|| mean(&best)),
            proposals,
            replay: (!replayed.updates.is_empty()).then(means),
        })
    }
}

impl GrpoConfig {
    /// Creates an empty archive, if the configuration needs one.
    pub(crate) fn archive(
        &self,
        identify: Option<Identify>,
    ) -> Result<Option<Archive>, ConfigFault> {
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
        Ok(Some(Archive::new(identify.ok_or_else(unknown)?, self.train.max_reward_calls)))
    }

    /// Creates the replay, if it is configured.
    pub(crate) fn replaying(
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

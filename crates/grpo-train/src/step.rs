//! One step of GRPO: collect, score, update.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use grpo_core::{Advantages, TokenStatistics};
use grpo_data::{Group, Prompt, Purpose};
use grpo_kernels::awake;
use grpo_model::{Frozen, LanguageModel, WeightPrecision, WeightsDigest, weights_digest};
use grpo_process::ResidentMemory;
use grpo_rewards::{Outcome, PartName, RewardRunner, Sample};
use grpo_rollout::{Decode, Rollout, StepKey};
use grpo_run::{LedgerRollout, LedgerStep, ReferenceChange};

use crate::learner::{Learner, Lesson, LessonTimes, Update};
use crate::ledger::entry;
use crate::{CombinedTerms, DiversityBonus, GrpoConfig, TokenRecord, TrainError};

/// A policy in training, and what samples from it and judges it.
pub struct Grpo<M> {
    pub(crate) learner: Learner<M>,
    pub(crate) sampler: Arc<dyn Rollout<M>>,
    pub(crate) rewards: RewardRunner,
    /// What rewards get on top.
    pub(crate) bonus: Option<DiversityBonus>,
    pub(crate) decode: Decode,
    /// Prompts of an epoch.
    pub(crate) epoch: Option<usize>,
    pub(crate) config: GrpoConfig,
    pub(crate) seed: u64,
    /// What learning rates are multiplied by; less than 1 after a run went back.
    pub(crate) learning_rate_factor: f64,
    /// Whether the run shall end.
    pub(crate) interrupt: Arc<AtomicBool>,
    /// Hash of the model that an adapter is trained on.
    pub(crate) base: Option<WeightsDigest>,
}

/// What came of a step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The step, from 0.
    pub step: u32,
    /// What was sampled.
    pub groups: Vec<Group>,
    /// Each completion as text, group by group.
    pub texts: Vec<String>,
    /// Verdicts of the reward, group by group.
    pub outcomes: Vec<Outcome>,
    /// Names of the terms of a scored outcome, where there are several.
    pub term_names: Vec<PartName>,
    /// Names of all parts that a scored outcome can have, whether one of this step has them or not.
    pub part_names: Vec<PartName>,
    /// What they made of it.
    pub advantages: Advantages,
    /// Sums over tokens of all updates of the step.
    pub tokens: TokenStatistics,
    /// Mean over completions of the KL that their rewards lost; `None` where it is no part of the reward.
    pub reward_kl: Option<f64>,
    /// Coefficient of the KL penalty.
    pub kl_coef: f64,
    /// See [`Lesson::reference_age`].
    pub reference_age: u64,
    /// Part of the policy in what the reference became after the step (α); `None` where it did not change.
    pub reference_updated: Option<f64>,
    /// See [`Lesson::corrected`].
    pub corrected: Option<bool>,
    /// The terms of a combined loss, where it is one.
    pub combined: Option<CombinedTerms>,
    /// Mean loss of the step's updates.
    pub loss: f64,
    /// Coefficient of the entropy bonus in the last update, and the mean loss of GRPO without the bonus; `None`
    /// where there is none.
    pub entropy_bonus: Option<(f64, f64)>,
    /// Mean gradient norm before clipping, over the optimizer steps of the step, those among them that have examples
    /// alone.
    pub grad_norm: f64,
    /// What the updates used.
    pub learning_rate: f64,
    /// What was computed for the tokens of each completion, where [`Grpo::set_recording`] asked for it.
    pub token_records: Option<Vec<TokenRecord>>,
    /// Where the time went.
    pub times: PhaseTimes,
    /// Memory of the process after the step, where the system says.
    pub memory: Option<ResidentMemory>,
    /// Memory of the process after each phase, where the system says.
    pub phase_memory: Option<PhaseMemory>,
    /// Which weights sampled the completions, and which updates used them.
    pub ledger: LedgerStep,
}

/// What an update learns from.
struct Collected {
    groups: Vec<Group>,
    texts: Vec<String>,
    outcomes: Vec<Outcome>,
}

/// Duration of each phase of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseTimes {
    /// Sampling.
    pub rollout: Duration,
    /// Rewards.
    pub reward: Duration,
    /// Reference, advantages, loss, gradients, optimizer.
    pub update: Duration,
    /// Parts of the update.
    pub lesson: LessonTimes,
}

/// Bytes of the process that are in RAM at the end of each phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseMemory {
    /// After sampling.
    pub rollout: u64,
    /// After the rewards.
    pub reward: u64,
    /// After the updates and what the reference became.
    pub update: u64,
}

fn resident() -> Option<u64> {
    Some(ResidentMemory::of_this_process()?.now)
}

impl<M: LanguageModel> Grpo<M> {
    /// Samples groups for `prompts`, scores them, and updates the policy on them: nothing is kept for later.
    ///
    /// # Errors
    /// Rewards that failed or are not finite; a sampler that is not the trainer; a loss or gradient that is not
    /// finite. The policy is then as it was after its last whole update. An interrupt, before the policy moves.
    pub fn step(&mut self, prompts: &[Prompt], step: u32) -> Result<StepReport, TrainError> {
        let started = Instant::now();
        self.refuse_interrupt()?;
        // o_i ~ π_old(· | q), with their log-probabilities
        let (groups, sampled) = self.sample(prompts, step)?;
        self.refuse_interrupt()?;
        let rollout = started.elapsed();
        let after_rollout = resident();

        // r_i with parts
        let samples = samples(&groups, &self.decode);
        let texts: Vec<String> = samples.iter().map(|sample| sample.text.clone()).collect();
        let mut outcomes = self.rewards.score(samples);
        self.refuse_failures(&outcomes, step)?;
        if let Some(bonus) = &self.bonus {
            bonus.add(&mut outcomes, &texts, self.config.train.group_size)?;
        }
        self.refuse_interrupt()?;
        let reward = started.elapsed() - rollout;
        let after_reward = resident();

        // Â_i, then μ updates of log π_θ
        let learning_rate = self.learning_rate_factor * self.config.learning_rate(step);
        let lesson = awake(|| self.learner.learn(&groups, &outcomes, learning_rate))?;
        // π_ref
        let reference_updated = self.reference_due(step);
        if let Some(mix) = reference_updated {
            self.learner.update_reference(mix)?;
        }
        let update = started.elapsed() - rollout - reward;
        let phase_memory = (|| {
            let (rollout, reward) = (after_rollout?, after_reward?);
            Some(PhaseMemory { rollout, reward, update: resident()? })
        })();

        let times = PhaseTimes { rollout, reward, update, lesson: lesson.times };
        let ledger = self.ledger(step, sampled, &lesson);
        let collected = Collected { groups, texts, outcomes };
        let report = StepReport::new(step, collected, lesson, learning_rate, times, ledger);
        Ok(StepReport {
            reference_updated,
            term_names: self.term_names(),
            part_names: self.part_names(),
            phase_memory,
            ..report
        })
    }

    /// From now on, whether reports say what was computed for each token: see [`Learner::set_recording`].
    pub fn set_recording(&mut self, is_recording: bool) {
        self.learner.set_recording(is_recording);
    }

    /// Part of the policy in what the reference becomes after `step`, from 0; `None` where it stays what it is.
    pub fn reference_due(&self, step: u32) -> Option<f64> {
        self.config.reference.due(step + 1, self.config.train.prompts_per_step, self.epoch)
    }

    /// The snapshot is gone when this returns: the optimizer then changes the policy in place.
    fn sample(
        &self,
        prompts: &[Prompt],
        step: u32,
    ) -> Result<(Vec<Group>, LedgerRollout), TrainError> {
        let (key, weights) = (self.key(step), self.config.sampling.weights);
        let policy = Frozen::snapshot_in(self.learner.policy(), weights);
        let groups = self.sampler.sample(&policy, prompts, key)?;
        // Of what sampled, where it is not a rounded copy.
        let digest = match weights {
            WeightPrecision::F32 => policy.digest(),
            _ => weights_digest(self.learner.policy()),
        };
        let completions = groups.iter().flat_map(|group| &group.completions).map(entry).collect();
        let policy_version = key.policy_version;
        Ok((groups, LedgerRollout { policy_version, weights: digest.into(), completions }))
    }

    fn ledger(&self, step: u32, rollout: LedgerRollout, lesson: &Lesson) -> LedgerStep {
        LedgerStep {
            step: u64::from(step) + 1,
            rollout,
            updates: {
                let on_completions = lesson.updates.iter().map(|update| &update.ledger);
                let supervised = lesson.supervised.iter().map(|update| &update.ledger);
                on_completions.chain(supervised).cloned().collect()
            },
            reference: lesson.reference.into(),
            reference_changed: self.reference_due(step).map(|mix| ReferenceChange {
                mix,
                weights: self.learner.reference_digest().into(),
            }),
            base: self.base.map(String::from),
        }
    }

    fn key(&self, step: u32) -> StepKey {
        let policy_version = self.learner.version();
        StepKey { seed: self.seed, purpose: Purpose::Sampling, step, policy_version }
    }

    fn refuse_interrupt(&self) -> Result<(), TrainError> {
        if self.interrupt.load(Ordering::Relaxed) { Err(TrainError::Interrupted) } else { Ok(()) }
    }

    /// Ends the run where too many rewards failed.
    fn refuse_failures(&self, outcomes: &[Outcome], step: u32) -> Result<(), TrainError> {
        let mut failures = outcomes.iter().filter_map(Outcome::failure);
        let Some(reason) = failures.next() else { return Ok(()) };
        let failed = 1 + failures.count();
        if failed as f64 <= self.config.train.max_failed_rewards * outcomes.len() as f64 {
            return Ok(());
        }
        Err(TrainError::Reward {
            step: u64::from(step) + 1,
            failed,
            all: outcomes.len(),
            reason: reason.to_owned(),
        })
    }
}

/// What a reward sees of completions, group by group.
pub(crate) fn samples(groups: &[Group], decode: &Decode) -> Vec<Sample> {
    let completions = groups.iter().flat_map(|group| {
        group.completions.iter().map(move |completion| (&group.prompt, completion))
    });
    completions
        .map(|(prompt, completion)| Sample {
            text: decode(&completion.text_ids()),
            fields: prompt.fields.clone(),
        })
        .collect()
}

impl StepReport {
    fn new(
        step: u32,
        collected: Collected,
        lesson: Lesson,
        learning_rate: f64,
        times: PhaseTimes,
        ledger: LedgerStep,
    ) -> Self {
        let Collected { groups, texts, outcomes } = collected;
        let (tokens, grad_norm) = (lesson.tokens(), lesson.grad_norm());
        let Lesson { advantages, reward_kl, kl_coef, reference_age, corrected, combined, .. } =
            lesson;
        let (updates, token_records) = (lesson.updates, lesson.recorded);
        let mean = |of: &dyn Fn(&Update) -> f64| {
            updates.iter().map(of).sum::<f64>() / updates.len() as f64
        };
        let coefficient = updates.last().and_then(|update| update.entropy_coef);
        Self {
            step,
            groups,
            texts,
            outcomes,
            term_names: Vec::new(),
            part_names: Vec::new(),
            advantages,
            tokens,
            reward_kl,
            kl_coef,
            reference_age,
            reference_updated: None,
            corrected,
            combined,
            loss: mean(&|update| update.loss),
            entropy_bonus: coefficient
                .map(|coefficient| (coefficient, mean(&|update| update.loss_without_bonus()))),
            grad_norm,
            learning_rate,
            token_records,
            times,
            ledger,
            memory: ResidentMemory::of_this_process(),
            phase_memory: None,
        }
    }
}

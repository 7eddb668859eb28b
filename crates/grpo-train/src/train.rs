//! Training loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use grpo_data::Prompt;
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::{Distributed, EngineFactory};
use grpo_runtime::Ranks;
use serde::{Deserialize, Serialize};

use crate::best_samples::BestSamples;
use crate::eval_config::Evaluations;
use crate::evaluated::Evaluated;
use crate::evaluation::Evaluation;
use crate::extension::{self, StepExtensions};
use crate::guards::refuse_other_rewards;
use crate::{
    Decode, Ending, Grpo, GrpoConfig, GuardTrigger, Guards, Learner, Metrics, RunMetrics,
    StepReport, TrainError,
};

/// Receives progress updates during training.
pub trait TrainObserver<M> {
    /// Called after each step. The state of `training` is complete, so it can be saved to resume
    /// the run later.
    ///
    /// # Errors
    /// If an error is returned, the run ends.
    fn step(&mut self, done: &StepDone<'_>, training: &Training<M>) -> Result<(), TrainError>;

    /// Called if a failed step triggers guards. The run then either ends or is rolled back.
    ///
    /// # Errors
    /// If an error is returned, the run ends.
    fn failed(&mut self, triggers: &[GuardTrigger]) -> Result<(), TrainError> {
        let _told_elsewhere = triggers;
        Ok(())
    }

    /// Returns whether to record token traces in `step`, counted from 0.
    fn records(&self, step: u32) -> bool {
        let _of_every_step = step;
        false
    }
}

/// A completed step.
#[derive(Clone, Copy, Debug)]
pub struct StepDone<'a> {
    /// Report for this step.
    pub report: &'a StepReport,
    /// Metrics for the step and for the evaluation after it.
    pub metrics: &'a Metrics,
    /// Evaluation after this step, if one was due.
    pub evaluated: Option<&'a Evaluated>,
    /// Whether the evaluation was the best so far.
    pub is_best: bool,
    /// Guards triggered in this step.
    pub triggers: &'a [GuardTrigger],
    /// How the run ended, if this was the last step.
    pub ending: Option<&'a Ending>,
}

/// A training run.
pub struct Training<M> {
    pub(crate) grpo: Grpo<M>,
    evaluation: Option<Evaluation<M>>,
    pub(crate) progress: TrainingProgress,
    pub(crate) guards: Guards,
    /// The best completions, if they are collected.
    pub(crate) best: Option<BestSamples>,
    /// Number of optimizer steps in all completed training steps.
    pub(crate) version: u64,
}

/// Training progress. Does not include the state of the learner and the guards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingProgress {
    /// Number of completed steps.
    pub steps: u32,
    /// Number of sampled tokens.
    pub num_tokens: u64,
    /// Number of roll-backs.
    pub roll_backs: u32,
    /// Step that the run was last rolled back to.
    #[serde(default)]
    pub rolled_back_to: Option<u32>,
    /// Early stopping state.
    pub evaluations: Evaluations,
    /// Message from the guard that stopped the run.
    pub stopped: Option<String>,
    /// Whether the reward has scored a completion that it had to score ([`grpo_data::Outcome::was_due`]). `None` if
    /// it is not known, because an older version wrote the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_scored: Option<bool>,
}

/// Components of a run, in addition to its configuration.
pub struct Parts<M> {
    /// Initial policy.
    pub policy: M,
    /// Reference policy.
    pub reference: Frozen<M>,
    /// Creates the engine that samples from the policy.
    pub engine: Arc<dyn EngineFactory<M>>,
    /// Reward function.
    pub reward: Arc<dyn Reward>,
    /// Extensions of the steps, in the order in which they are called.
    pub extensions: StepExtensions<M>,
    /// Maximum prompt length in tokens.
    pub longest_prompt: usize,
    /// Number of prompts in the file, or `None` if prompts don't come from a file.
    pub epoch: Option<usize>,
    /// Decodes completion ids ([`grpo_data::Completion::text_ids`]) to text. The result is passed
    /// to the reward function and compared with `sampling.stop`.
    pub decode: Decode,
}

impl<M: LanguageModel> Grpo<M> {
    /// Assembles the components of a run.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or incompatible with the model.
    pub fn new(parts: Parts<M>, config: GrpoConfig, seed: u64) -> Result<Self, TrainError> {
        let Parts { policy, reference, engine, reward, mut extensions, .. } = parts;
        let Parts { longest_prompt, epoch, decode, .. } = parts;
        let measured = extension::metrics(&extensions).collect();
        config.check_with(RunMetrics { measured, missing: Vec::new() })?;
        extension::check(&mut extensions, &config)?;
        let group_size = config.train.group_size;
        let sampler = config.sampler(&policy, &*engine, group_size, longest_prompt, &decode)?;
        // Activations of an earlier policy are of no use.
        let looks_ahead = extensions.iter().any(|extension| extension.looks_ahead() > 0);
        let activations = config.rollout_activations(&policy.device()).filter(|_| !looks_ahead);
        let keeping = activations.clone().and_then(|activations| sampler.keeping(activations));
        let activations = activations.filter(|_| keeping.is_some());
        let sampler = keeping.unwrap_or(sampler);
        let time_limit = Duration::from_secs_f64(config.train.reward_time_limit);
        let rewards = RewardRunner::new(reward, time_limit);
        extension::check_scores(&mut extensions, &rewards)?;
        let base = policy.base_digest();
        let mut learner = Learner::new(policy, reference, &config)?;
        if let Some(activations) = activations {
            learner.reuse(activations);
        }
        learner.allow_turns(engine.max_turns());
        let auxiliary = extensions.iter_mut().find_map(|extension| extension.auxiliary_loss());
        learner.weigh(auxiliary.map_or(1.0, |auxiliary| auxiliary.grpo_weight()));
        let (learning_rate_factor, interrupt) = (1.0, Arc::default());
        let grpo = Self {
            learner,
            sampler,
            rewards,
            extensions,
            decode,
            epoch,
            config,
            seed,
            learning_rate_factor,
            interrupt,
            base,
        };
        refuse_other_rewards(&grpo.config.guards(), &grpo.reward_names())?;
        Ok(grpo)
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &M {
        self.learner.policy()
    }

    /// Returns the reward runner.
    pub fn rewards(&self) -> &RewardRunner {
        &self.rewards
    }

    /// Makes the current step return [`TrainError::Interrupted`] after `flag` is set. If the policy
    /// is already being updated, the step is completed first.
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.sampler = self.sampler.interrupted_by(Arc::clone(&flag));
        self.rewards = self.rewards.clone().interrupted_by(Arc::clone(&flag));
        self.interrupt = flag;
    }

    /// Distributes sampling, rewards and micro-batches over `ranks`. All of them must have the same
    /// configuration and files. Results are bit for bit the same as on a single rank.
    pub fn distribute_over(&mut self, ranks: &Ranks) {
        let sampler = Arc::clone(&self.sampler);
        self.sampler = Arc::new(Distributed::new(sampler, ranks.clone()));
        self.rewards = self.rewards.clone().distributed_over(ranks.clone());
        self.learner.distribute_over(ranks.clone());
    }

    /// Returns the learner.
    pub fn learner(&self) -> &Learner<M> {
        &self.learner
    }

    /// Returns a mutable reference to the learner, so that settings for later steps can be changed.
    pub fn learner_mut(&mut self) -> &mut Learner<M> {
        &mut self.learner
    }
}

impl<M: LanguageModel> Training<M> {
    /// Creates a new run. `evaluation` is performed as configured in `[eval]`. The interrupt flag
    /// and the ranks of `grpo` also apply to evaluations.
    pub fn new(grpo: Grpo<M>, evaluation: Option<Evaluation<M>>) -> Self {
        let like_steps = |evaluation: Evaluation<M>| {
            let interrupt = Arc::clone(&grpo.interrupt);
            evaluation.interrupted_by(interrupt).distributed_over(grpo.learner.ranks())
        };
        let evaluation = evaluation.map(like_steps);
        Self {
            guards: Guards::new(&grpo.config.guards()),
            grpo,
            evaluation,
            progress: TrainingProgress { has_scored: Some(false), ..TrainingProgress::default() },
            best: None,
            version: 0,
        }
    }

    /// Consumes the run and returns its components.
    pub fn into_grpo(self) -> Grpo<M> {
        self.grpo
    }

    /// Returns the components that perform the steps.
    pub fn grpo(&self) -> &Grpo<M> {
        &self.grpo
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u32 {
        self.progress.steps
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &M {
        self.grpo.policy()
    }

    /// Runs all remaining steps. `prompts` returns the prompts for a step, counted from 0.
    ///
    /// # Errors
    /// Returns an error if [`Grpo::step`], the evaluation, the observer or `prompts` fails.
    pub fn run(
        &mut self,
        prompts: impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        self.run_to(self.grpo.config.train.steps, prompts, observer)
    }

    /// Like [`Self::run`], but only runs until `last` steps are completed. It then returns
    /// [`Ending::Finished`].
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::run`].
    pub fn run_to(
        &mut self,
        last: u32,
        mut prompts: impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        let mut upcoming = VecDeque::new();
        loop {
            // A run that had already ended does not continue after it is resumed.
            if let Some(message) = self.progress.stopped.clone() {
                return Ok(Ending::Stopped { message });
            }
            if let Some(ending) = self.no_gain().or_else(|| self.ended()) {
                return Ok(ending);
            }
            if self.progress.steps >= last {
                return Ok(Ending::Finished);
            }
            let of_step = self.grpo.look_ahead(self.progress.steps, &mut upcoming, &mut prompts)?;
            match self.advance(&of_step, observer) {
                Ok(None) => {}
                Ok(Some(ending)) => return Ok(ending),
                Err(TrainError::Interrupted) => return Ok(Ending::Interrupted),
                Err(error) => return Err(error),
            }
        }
    }

    /// Performs one step, evaluates the policy if necessary, and calls the guards and the observer.
    fn advance(
        &mut self,
        prompts: &[Prompt],
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Option<Ending>, TrainError> {
        self.grpo.set_recording(observer.records(self.progress.steps));
        let report = match self.grpo.step(prompts, self.progress.steps) {
            Ok(report) => report,
            Err(error) => return self.failed(error, observer).map(Some),
        };
        self.progress.steps += 1;
        self.version = self.grpo.learner.version();
        self.progress.num_tokens += report.actions() as u64;
        let scores_invalid = self.grpo.rewards.scores_invalid();
        let mut outcomes = report.samples().filter_map(|sample| sample.outcome.as_ref());
        if outcomes.any(|of| of.was_due(scores_invalid) && of.total().is_some()) {
            self.progress.has_scored = Some(true);
        }
        if let Some(best) = &mut self.best {
            best.observe(&report.groups, self.progress.steps);
            best.observe(&report.further_groups, self.progress.steps);
        }
        let mut metrics = Metrics::of(&report, self.progress.num_tokens);

        let config = &self.grpo.config;
        let is_due = config.eval.is_due(self.progress.steps, config.train.steps);
        let evaluated = if is_due { self.evaluate()? } else { None };
        let mut is_best = false;
        if let Some(evaluated) = &evaluated {
            let config = &self.grpo.config.eval;
            is_best =
                self.progress.evaluations.observe(self.progress.steps, evaluated.reward(), config);
            metrics.extend(evaluated.metrics());
        }
        let triggers = self.guards.observe(self.progress.steps.into(), &metrics);
        let ending = Ending::of_triggers(self.progress.steps, &triggers).or_else(|| self.no_gain());
        let ending = ending.or_else(|| self.ended());
        if let Some(Ending::Stopped { message }) = &ending {
            self.progress.stopped = Some(message.clone());
        }
        observer.step(
            &StepDone {
                report: &report,
                metrics: &metrics,
                evaluated: evaluated.as_ref(),
                is_best,
                triggers: &triggers,
                ending: ending.as_ref(),
            },
            self,
        )?;
        Ok(ending)
    }

    /// Evaluates the current policy. Returns `None` if the run has no evaluation.
    ///
    /// # Errors
    /// Returns an error if [`Evaluation::of`] fails.
    pub fn evaluate(&self) -> Result<Option<Evaluated>, TrainError> {
        self.evaluation.as_ref().map(|evaluation| evaluation.of(self.policy())).transpose()
    }

    /// Returns the evaluation prompts.
    pub fn evaluated_prompts(&self) -> &[Prompt] {
        self.evaluation.as_ref().map_or(&[], Evaluation::prompts)
    }

    /// Returns the number of completions per evaluation.
    pub fn evaluated_count(&self) -> usize {
        self.evaluation.as_ref().map_or(0, Evaluation::count)
    }

    /// Returns whether the last step was completed. A step that fails after some of its updates is
    /// incomplete.
    pub fn is_between_steps(&self) -> bool {
        self.grpo.learner.version() == self.version
    }

    /// Returns the step and the reward of the best evaluation, if any.
    pub fn best_evaluation(&self) -> Option<(u32, f64)> {
        self.progress.evaluations.best
    }

    /// Returns [`TrainingProgress::has_scored`].
    pub fn has_scored(&self) -> Option<bool> {
        self.progress.has_scored
    }

    /// Returns the number of roll-backs.
    pub fn roll_backs(&self) -> u32 {
        self.progress.roll_backs
    }

    /// Returns the step that the run was last rolled back to.
    pub fn rolled_back_to(&self) -> Option<u32> {
        self.progress.rolled_back_to
    }

    /// Returns the factor applied to learning rates.
    pub fn learning_rate_factor(&self) -> f64 {
        self.grpo.learning_rate_factor
    }

    /// Returns the KL coefficient for the next step, without the schedule.
    pub fn kl_coef(&self) -> f64 {
        self.grpo.learner.kl_coef()
    }

    /// Decides how the run ends after a failed step.
    fn failed(
        &mut self,
        error: TrainError,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        let step = self.progress.steps + 1;
        let triggers = self.guards.failed(step.into(), &error);
        observer.failed(&triggers)?;
        match Ending::of_triggers(step, &triggers) {
            Some(ending @ Ending::RollBack { .. }) => Ok(ending),
            // Return the original error, because it explains the failure better.
            _ => Err(error),
        }
    }

    /// Returns the ending if an extension ends the run.
    fn ended(&self) -> Option<Ending> {
        let mut endings = self.grpo.extensions.iter().map(|of| (of.name(), of.ending()));
        endings.find_map(|(name, reason)| Some(Ending::OfExtension { name, reason: reason? }))
    }

    /// Returns the ending if early stopping applies.
    fn no_gain(&self) -> Option<Ending> {
        match self.progress.evaluations.best {
            Some(best) if self.progress.evaluations.are_enough(&self.grpo.config.eval) => {
                Some(Ending::NoGain { step: self.progress.steps, best })
            }
            _ => None,
        }
    }
}

/// Creates `count` prompts that consist of the boundary token only.
pub fn unconditional_prompts(count: u32, boundary: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt::of_ids(index, vec![boundary])).collect()
}

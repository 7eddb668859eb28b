//! The training loop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use grpo_data::Prompt;
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::Actions;
use serde::{Deserialize, Serialize};

use crate::eval_config::Evaluations;
use crate::evaluation::{Evaluated, Evaluation};
use crate::guards::refuse_other_rewards;
use crate::{
    Action, Combined, Decode, DiversityBonus, Grpo, GrpoConfig, GuardTrigger, Guards, Learner,
    Metrics, StepReport, TrainError,
};

/// An observer of a training run.
pub trait TrainObserver<M> {
    /// Called after each step. The state of `training` suffices to resume.
    ///
    /// # Errors
    /// An error ends the run.
    fn step(&mut self, done: &StepDone<'_>, training: &Training<M>) -> Result<(), TrainError>;

    /// Called with the guards that triggered before a run ends or rolls back because of a failed
    /// step.
    ///
    /// # Errors
    /// An error ends the run.
    fn failed(&mut self, triggers: &[GuardTrigger]) -> Result<(), TrainError> {
        let _told_elsewhere = triggers;
        Ok(())
    }

    /// Returns whether the report of step `step` (from 0) should contain token traces.
    fn records(&self, step: u32) -> bool {
        let _of_every_step = step;
        false
    }
}

/// A completed step.
#[derive(Clone, Copy, Debug)]
pub struct StepDone<'a> {
    /// The report of the step.
    pub report: &'a StepReport,
    /// Metrics of the step and of the following evaluation.
    pub metrics: &'a Metrics,
    /// The following evaluation, if any.
    pub evaluated: Option<&'a Evaluated>,
    /// Whether that evaluation was the best so far.
    pub is_best: bool,
    /// The guards that triggered.
    pub triggers: &'a [GuardTrigger],
    /// Why the run ends here, if it does.
    pub ending: Option<&'a Ending>,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// Evaluations stopped improving.
    NoGain {
        /// The last step.
        step: u32,
        /// Steps done at the best evaluation, and its mean reward.
        best: (u32, f64),
    },
    /// The run was interrupted between two steps.
    Interrupted,
    /// A guard stopped the run.
    Stopped {
        /// Description of the trigger.
        message: String,
    },
    /// A guard requests a roll-back to a policy before the one that sampled step `since`.
    RollBack {
        /// First bad step, from 1.
        since: u32,
        /// Factor for learning rates.
        learning_rate_factor: f64,
        /// Factor for the coefficient of the KL penalty.
        kl_coef_factor: f64,
        /// Description of the trigger.
        message: String,
    },
}

/// A training run.
pub struct Training<M> {
    pub(crate) grpo: Grpo<M>,
    evaluation: Option<Evaluation<M>>,
    pub(crate) progress: TrainingProgress,
    pub(crate) guards: Guards,
    /// Optimizer steps done in the completed steps.
    pub(crate) version: u64,
}

/// State of a run that changes from step to step, except learner and guards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingProgress {
    /// Steps done.
    pub steps: u32,
    /// Tokens sampled.
    pub num_tokens: u64,
    /// Number of roll-backs.
    pub roll_backs: u32,
    /// Step of the last roll-back.
    #[serde(default)]
    pub rolled_back_to: Option<u32>,
    /// State of early stopping.
    pub evaluations: Evaluations,
    /// Description of the trigger that stopped the run.
    pub stopped: Option<String>,
}

/// The components of a run, except its configuration.
pub struct Parts<M> {
    /// The initial policy.
    pub policy: M,
    /// The reference policy.
    pub reference: Frozen<M>,
    /// The actions of the policy.
    pub actions: Arc<dyn Actions<M>>,
    /// The reward.
    pub reward: Arc<dyn Reward>,
    /// The bonus of [`GrpoConfig::diversity_bonus`].
    pub bonus: Option<DiversityBonus>,
    /// The auxiliary losses of [`GrpoConfig::combined`].
    pub combined: Option<Combined>,
    /// Length of the longest prompt in tokens.
    pub longest_prompt: usize,
    /// Number of prompts in the file; `None` without a file.
    pub epoch: Option<usize>,
    /// Decodes the ids of a completion ([`grpo_data::Completion::text_ids`]) to the text for the
    /// reward and `sampling.stop`.
    pub decode: Decode,
}

impl<M: LanguageModel> Grpo<M> {
    /// Creates a run from `parts`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or does not fit the model.
    pub fn new(parts: Parts<M>, config: GrpoConfig, seed: u64) -> Result<Self, TrainError> {
        config.check()?;
        let Parts {
            policy,
            reference,
            actions,
            reward,
            bonus,
            combined,
            longest_prompt,
            epoch,
            decode,
        } = parts;
        let group_size = config.train.group_size;
        let sampler = config.sampler(&policy, &*actions, group_size, longest_prompt, &decode)?;
        let time_limit = Duration::from_secs_f64(config.train.reward_time_limit);
        let rewards = RewardRunner::new(reward, time_limit);
        let base = policy.base_digest();
        let mut learner = Learner::new(policy, reference, &config)?;
        if let Some(combined) = combined {
            learner.combine(combined, seed);
        }
        let (learning_rate_factor, interrupt) = (1.0, Arc::default());
        let grpo = Self {
            learner,
            sampler,
            rewards,
            bonus,
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

    /// Returns the runner that scores completions.
    pub fn rewards(&self) -> &RewardRunner {
        &self.rewards
    }

    /// Makes the current step end with [`TrainError::Interrupted`] after `flag` becomes true,
    /// unless the policy is already changing; the step is then completed.
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.sampler = self.sampler.interrupted_by(Arc::clone(&flag));
        self.interrupt = flag;
    }

    /// Returns the learner.
    pub fn learner(&self) -> &Learner<M> {
        &self.learner
    }

    /// Returns the learner, to change settings of later steps.
    pub fn learner_mut(&mut self) -> &mut Learner<M> {
        &mut self.learner
    }
}

impl<M: LanguageModel> Training<M> {
    /// Creates a run before its first step, evaluated with `evaluation` according to `[eval]`. An
    /// interrupt of a step also interrupts evaluations.
    pub fn new(grpo: Grpo<M>, evaluation: Option<Evaluation<M>>) -> Self {
        let interrupted_by_flag =
            |evaluation: Evaluation<M>| evaluation.interrupted_by(Arc::clone(&grpo.interrupt));
        let evaluation = evaluation.map(interrupted_by_flag);
        Self {
            guards: Guards::new(&grpo.config.guards()),
            grpo,
            evaluation,
            progress: TrainingProgress::default(),
            version: 0,
        }
    }

    /// Returns the components without the progress of the run.
    pub fn into_grpo(self) -> Grpo<M> {
        self.grpo
    }

    /// Returns the components that perform steps.
    pub fn grpo(&self) -> &Grpo<M> {
        &self.grpo
    }

    /// Returns the number of steps done.
    pub fn steps(&self) -> u32 {
        self.progress.steps
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &M {
        self.grpo.policy()
    }

    /// Runs the remaining steps; `prompts` returns the prompts of a step, counted from 0.
    ///
    /// # Errors
    /// As [`Grpo::step`]; also if the evaluation, the observer or `prompts` fails.
    pub fn run(
        &mut self,
        prompts: impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        self.run_to(self.grpo.config.train.steps, prompts, observer)
    }

    /// As [`Self::run`], until this many steps are done; [`Ending::Finished`] then refers to these.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_to(
        &mut self,
        last: u32,
        mut prompts: impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        loop {
            // A resumed run that had ended does not continue.
            if let Some(message) = self.progress.stopped.clone() {
                return Ok(Ending::Stopped { message });
            }
            if let Some(ending) = self.no_gain() {
                return Ok(ending);
            }
            if self.progress.steps >= last {
                return Ok(Ending::Finished);
            }
            match self.advance(&prompts(self.progress.steps)?, observer) {
                Ok(None) => {}
                Ok(Some(ending)) => return Ok(ending),
                Err(TrainError::Interrupted) => return Ok(Ending::Interrupted),
                Err(error) => return Err(error),
            }
        }
    }

    /// Performs a step with evaluation, guards and observer.
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
        let triggers = self.guards.observe(self.progress.steps.into(), &metrics)?;
        let ending = of_triggers(self.progress.steps, &triggers).or_else(|| self.no_gain());
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

    /// Evaluates the current policy; returns `None` without an evaluation.
    ///
    /// # Errors
    /// As [`Evaluation::of`].
    pub fn evaluate(&self) -> Result<Option<Evaluated>, TrainError> {
        self.evaluation.as_ref().map(|evaluation| evaluation.of(self.policy())).transpose()
    }

    /// Returns the prompts of evaluations.
    pub fn evaluated_prompts(&self) -> &[Prompt] {
        self.evaluation.as_ref().map_or(&[], Evaluation::prompts)
    }

    /// Returns the number of completions of an evaluation.
    pub fn evaluated_count(&self) -> usize {
        self.evaluation.as_ref().map_or(0, Evaluation::count)
    }

    /// Returns whether the last step was completed, rather than failing after some of its updates.
    pub fn is_between_steps(&self) -> bool {
        self.grpo.learner.version() == self.version
    }

    /// Returns the number of roll-backs.
    pub fn roll_backs(&self) -> u32 {
        self.progress.roll_backs
    }

    /// Returns the step of the last roll-back.
    pub fn rolled_back_to(&self) -> Option<u32> {
        self.progress.rolled_back_to
    }

    /// Returns the factor of learning rates.
    pub fn learning_rate_factor(&self) -> f64 {
        self.grpo.learning_rate_factor
    }

    /// Returns the coefficient of the KL penalty in the next step.
    pub fn kl_coef(&self) -> f64 {
        self.grpo.learner.kl_coef()
    }

    /// Handles a failed step.
    fn failed(
        &mut self,
        error: TrainError,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        let step = self.progress.steps + 1;
        let triggers = self.guards.failed(step.into(), &error);
        observer.failed(&triggers)?;
        match of_triggers(step, &triggers) {
            Some(ending @ Ending::RollBack { .. }) => Ok(ending),
            // The error itself is the better reason.
            _ => Err(error),
        }
    }

    /// Returns the ending if evaluations stopped improving.
    fn no_gain(&self) -> Option<Ending> {
        match self.progress.evaluations.best {
            Some(best) if self.progress.evaluations.are_enough(&self.grpo.config.eval) => {
                Some(Ending::NoGain { step: self.progress.steps, best })
            }
            _ => None,
        }
    }
}

/// Returns the ending that the guards triggered in `step`, from 1, request.
fn of_triggers(step: u32, triggers: &[GuardTrigger]) -> Option<Ending> {
    let action = Action::of(triggers)?;
    let decisive: Vec<&GuardTrigger> =
        triggers.iter().filter(|trigger| trigger.action.name() == action.name()).collect();
    let messages: Vec<&str> = decisive.iter().map(|trigger| trigger.message.as_str()).collect();
    let message = messages.join("; ");
    match action {
        Action::Warn => None,
        Action::Stop => Some(Ending::Stopped { message }),
        Action::RollBack { learning_rate_factor, kl_coef_factor } => {
            let since = decisive.iter().map(|trigger| trigger.since).min();
            let since = since.and_then(|since| u32::try_from(since).ok()).unwrap_or(step);
            Some(Ending::RollBack { since, learning_rate_factor, kl_coef_factor, message })
        }
    }
}

/// Returns `count` prompts that contain only the beginning mark.
pub fn unconditional_prompts(count: u32, boundary: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt::of_ids(index, vec![boundary])).collect()
}

//! The loop around the step.

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

/// Who is told how a training goes.
pub trait TrainObserver<M> {
    /// After each step, with the training as it is now: what it writes down then is enough to go on from.
    ///
    /// # Errors
    /// Ends the training.
    fn step(&mut self, done: &StepDone<'_>, training: &Training<M>) -> Result<(), TrainError>;

    /// Before a training ends or goes back because of a step that failed: the guards that saw it.
    ///
    /// # Errors
    /// Ends the training.
    fn failed(&mut self, triggers: &[GuardTrigger]) -> Result<(), TrainError> {
        let _told_elsewhere = triggers;
        Ok(())
    }

    /// Whether the report of step `step` (from 0) should say what was computed for each token.
    fn records(&self, step: u32) -> bool {
        let _of_every_step = step;
        false
    }
}

/// A step that is done.
#[derive(Clone, Copy, Debug)]
pub struct StepDone<'a> {
    /// What came of it.
    pub report: &'a StepReport,
    /// Its numbers, and those of the evaluation after it.
    pub metrics: &'a Metrics,
    /// The evaluation after it, where there was one.
    pub evaluated: Option<&'a Evaluated>,
    /// Whether that was the best one so far.
    pub is_best: bool,
    /// The guards that saw what they watch for.
    pub triggers: &'a [GuardTrigger],
    /// Why the training ends here, where it does.
    pub ending: Option<&'a Ending>,
}

/// Why a training ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// The evaluations do not become better any more.
    NoGain {
        /// The last step.
        step: u32,
        /// Steps that were done at the best evaluation, and its mean reward.
        best: (u32, f64),
    },
    /// It was asked to end, between two steps.
    Interrupted,
    /// A guard ends it.
    Stopped {
        /// What it saw.
        message: String,
    },
    /// A guard wants it to go back to a policy before the one that sampled step `since`, and to continue from there
    /// more carefully.
    RollBack {
        /// The first step that was not as it should be, from 1.
        since: u32,
        /// What learning rates are to be multiplied by.
        learning_rate_factor: f64,
        /// What the coefficient of the KL penalty is to be multiplied by.
        kl_coef_factor: f64,
        /// What the guard saw.
        message: String,
    },
}

/// A training with its steps behind and before it.
pub struct Training<M> {
    pub(crate) grpo: Grpo<M>,
    evaluation: Option<Evaluation<M>>,
    pub(crate) progress: TrainingProgress,
    pub(crate) guards: Guards,
    /// Optimizer steps that were done in the steps that are.
    pub(crate) version: u64,
}

/// What changes in a training run from step to step, besides its learner and its guards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingProgress {
    /// Steps that are done.
    pub steps: u32,
    /// Tokens that were sampled in them.
    pub num_tokens: u64,
    /// How often the run went back.
    pub roll_backs: u32,
    /// The step that it went back to last.
    #[serde(default)]
    pub rolled_back_to: Option<u32>,
    /// What the evaluations so far said.
    pub evaluations: Evaluations,
    /// What a guard saw that ended the run.
    pub stopped: Option<String>,
}

/// What a training is made of, besides its configuration.
pub struct Parts<M> {
    /// Where it begins.
    pub policy: M,
    /// What holds it back.
    pub reference: Frozen<M>,
    /// What the policy chooses.
    pub actions: Arc<dyn Actions<M>>,
    /// What the completions are worth.
    pub reward: Arc<dyn Reward>,
    /// What rewards get on top: the one that [`GrpoConfig::diversity_bonus`] describes.
    pub bonus: Option<DiversityBonus>,
    /// What is learned besides: what [`GrpoConfig::combined`] describes.
    pub combined: Option<Combined>,
    /// Tokens of the longest prompt.
    pub longest_prompt: usize,
    /// Prompts of an epoch: those of the file; `None` where there is none.
    pub epoch: Option<usize>,
    /// From the ids of a completion's text ([`grpo_data::Completion::text_ids`]) to the text that the reward sees and `sampling.stop` is looked for in.
    pub decode: Decode,
}

impl<M: LanguageModel> Grpo<M> {
    /// A training of `parts.policy`.
    ///
    /// # Errors
    /// Settings that are out of range or do not fit the model.
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

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        self.learner.policy()
    }

    /// What scores its completions.
    pub fn rewards(&self) -> &RewardRunner {
        &self.rewards
    }

    /// Where `flag` becomes true, the step that is being done ends with [`TrainError::Interrupted`] before the policy
    /// moves, or is done to its end where it moves already.
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.sampler = self.sampler.interrupted_by(Arc::clone(&flag));
        self.interrupt = flag;
    }

    /// The policy, its reference and what the two are trained with.
    pub fn learner(&self) -> &Learner<M> {
        &self.learner
    }

    /// As [`Self::learner`], to change settings of the next steps.
    pub fn learner_mut(&mut self) -> &mut Learner<M> {
        &mut self.learner
    }
}

impl<M: LanguageModel> Training<M> {
    /// A training before its first step, evaluated by `evaluation` as `[eval]` says.
    /// What interrupts a step interrupts an evaluation too.
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

    /// The training without its steps.
    pub fn into_grpo(self) -> Grpo<M> {
        self.grpo
    }

    /// What takes its steps.
    pub fn grpo(&self) -> &Grpo<M> {
        &self.grpo
    }

    /// Steps that are done.
    pub fn steps(&self) -> u32 {
        self.progress.steps
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        self.grpo.policy()
    }

    /// Runs the steps that are left; `prompts` gives those of each, counted from 0.
    ///
    /// # Errors
    /// What [`Grpo::step`], the evaluation, the observer or `prompts` says.
    pub fn run(
        &mut self,
        prompts: impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
        observer: &mut dyn TrainObserver<M>,
    ) -> Result<Ending, TrainError> {
        self.run_to(self.grpo.config.train.steps, prompts, observer)
    }

    /// As [`Self::run`], until so many steps are done; [`Ending::Finished`] is then of these.
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
            // One that ended and is taken up again has ended.
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

    /// One step and what follows it.
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

    /// Looks at the policy as it is now; `None` where there is no evaluation.
    ///
    /// # Errors
    /// What [`Evaluation::of`] says.
    pub fn evaluate(&self) -> Result<Option<Evaluated>, TrainError> {
        self.evaluation.as_ref().map(|evaluation| evaluation.of(self.policy())).transpose()
    }

    /// What evaluations complete.
    pub fn evaluated_prompts(&self) -> &[Prompt] {
        self.evaluation.as_ref().map_or(&[], Evaluation::prompts)
    }

    /// Completions of an evaluation.
    pub fn evaluated_count(&self) -> usize {
        self.evaluation.as_ref().map_or(0, Evaluation::count)
    }

    /// Whether the last step was done to its end: not where it failed after some of its updates.
    pub fn is_between_steps(&self) -> bool {
        self.grpo.learner.version() == self.version
    }

    /// How often it went back.
    pub fn roll_backs(&self) -> u32 {
        self.progress.roll_backs
    }

    /// The step that it went back to last.
    pub fn rolled_back_to(&self) -> Option<u32> {
        self.progress.rolled_back_to
    }

    /// What learning rates are multiplied by.
    pub fn learning_rate_factor(&self) -> f64 {
        self.grpo.learning_rate_factor
    }

    /// The coefficient of the KL penalty in the next step.
    pub fn kl_coef(&self) -> f64 {
        self.grpo.learner.kl_coef()
    }

    /// What becomes of a training whose step failed.
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

    /// Whether the evaluations have not become better for too long.
    fn no_gain(&self) -> Option<Ending> {
        match self.progress.evaluations.best {
            Some(best) if self.progress.evaluations.are_enough(&self.grpo.config.eval) => {
                Some(Ending::NoGain { step: self.progress.steps, best })
            }
            _ => None,
        }
    }
}

/// What the guards that tripped in `step`, from 1, make of a training.
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

/// `count` prompts that hold only the beginning mark.
pub fn unconditional_prompts(count: u32, boundary: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt::of_ids(index, vec![boundary])).collect()
}

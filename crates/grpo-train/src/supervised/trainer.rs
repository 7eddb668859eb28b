//! The trainer: steps, validations and the end of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::TensorData;
use grpo_model::Dropout;
use serde::Serialize;

use super::state::{StopCause, SupervisedProgress, SupervisedState};
use crate::guard_config::Guarded;
use crate::optimizer::Remembered;
use crate::supervised::{Objective, ScheduleUnit, StepGradients, SupervisedPlan};
use crate::transfer::Trunk;
use crate::{Action, GuardConfig, GuardTrigger, Guards, Metrics, Optimizer, TrainError};

/// One optimizer step, as it is written to `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SupervisedStep {
    /// Optimizer steps done, including this one.
    pub train_step: u64,
    /// The minimised loss.
    pub step_train_loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// Tokens so far.
    pub num_tokens: u64,
    /// Duration in seconds.
    pub step_time: f64,
    /// Additional numbers of the objective.
    #[serde(flatten)]
    pub parts: BTreeMap<&'static str, f64>,
}

/// One validation, as it is written to `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation<E> {
    /// Optimizer steps done.
    pub train_step: u64,
    /// The measures.
    #[serde(flatten)]
    pub measures: E,
    /// Whether it is the best so far.
    pub best: bool,
}

/// A completed step with its validation.
#[derive(Clone, Copy, Debug)]
pub struct CompletedStep<'a, E> {
    /// The step.
    pub step: &'a SupervisedStep,
    /// The validation, if one was due.
    pub validation: Option<&'a Validation<E>>,
    /// Problems that the objective found in the validation.
    pub warnings: &'a [String],
    /// The guards that were triggered.
    pub triggers: &'a [GuardTrigger],
    /// Why the run ends here, if it does.
    pub ending: Option<&'a SupervisedEnding>,
}

/// The receiver of a run's progress.
pub trait SupervisedObserver<O: Objective> {
    /// Called after each step with the trainer.
    ///
    /// # Errors
    /// An error ends the run.
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError>;
}

/// Why a supervised run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SupervisedEnding {
    /// All steps are done.
    Finished,
    /// Validations stopped improving.
    NoGain {
        /// Optimizer steps done.
        step: u64,
        /// Steps done at the best validation, and its selection loss.
        best: (u64, f64),
    },
    /// A limit or a guard ended the run.
    Stopped {
        /// The cause.
        cause: StopCause,
        /// What happened.
        message: String,
    },
    /// The run was interrupted.
    Interrupted,
}

/// A supervised training run.
pub struct SupervisedTrainer<O: Objective> {
    objective: O,
    plan: SupervisedPlan,
    /// `None` only during a step.
    model: Option<O::Model>,
    optimizer: Optimizer,
    trunk: Trunk,
    guards: Guards,
    interrupt: Arc<AtomicBool>,
    progress: SupervisedProgress<O::Progress>,
}

/// Metrics of every objective that guards can watch.
const METRICS: [&str; 4] = ["step_train_loss", "grad_norm", "learning_rate", "num_tokens"];

impl<O: Objective> SupervisedTrainer<O> {
    /// Creates a run before its first step.
    pub fn new(model: O::Model, objective: O, plan: SupervisedPlan) -> Self {
        let (optimizer, trunk) = optimizer(&model, &objective, &plan);
        let guards = Guards::new(&[]);
        let progress = SupervisedProgress {
            steps: 0,
            num_tokens: 0,
            validations: Default::default(),
            guards: guards.state().clone(),
            stopped: None,
            objective: O::Progress::default(),
            optimizer_steps: BTreeMap::new(),
        };
        let (model, interrupt) = (Some(model), Arc::default());
        Self { objective, plan, model, optimizer, trunk, guards, interrupt, progress }
    }

    /// Adds guards.
    ///
    /// # Errors
    /// Returns an error if a guard watches an unknown metric or has an action that supervised runs
    /// do not support.
    pub fn with_guards(mut self, guards: &[GuardConfig]) -> Result<Self, TrainError> {
        let metrics = self.metric_names();
        for (place, guard) in guards.iter().enumerate() {
            guard.check(place, &Guarded::Supervised { metrics: &metrics })?;
        }
        self.guards = Guards::new(guards);
        Ok(self)
    }

    /// Makes the run end between two steps with [`SupervisedEnding::Interrupted`] once `flag` is
    /// true.
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = flag;
    }

    /// Returns the current model.
    ///
    /// # Panics
    /// Panics if a step has panicked.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect("a model between two steps")
    }

    /// Returns the current model and drops the run.
    ///
    /// # Panics
    /// Panics if a step has panicked.
    pub fn into_model(self) -> O::Model {
        self.model.expect("a model between two steps")
    }

    /// Returns the number of steps done.
    pub fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// Returns the settings of the run.
    pub fn plan(&self) -> &SupervisedPlan {
        &self.plan
    }

    /// Returns the steps done at the best validation so far, and its selection loss.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.progress.validations.best
    }

    /// Returns the state to save.
    pub fn state(&self) -> SupervisedState<O::Progress> {
        let Remembered { steps, means } = self.optimizer.remembered(self.model());
        let mut progress = self.progress.clone();
        progress.guards = self.guards.state().clone();
        progress.optimizer_steps = steps;
        SupervisedState { progress, moments: means }
    }

    /// Restores a saved state with the optimizer's moving averages by name, and `model`, which has
    /// the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state belongs to another model or other settings.
    pub fn restore(
        &mut self,
        model: O::Model,
        progress: SupervisedProgress<O::Progress>,
        moments: BTreeMap<String, TensorData>,
    ) -> Result<(), TrainError> {
        self.guards.restore(progress.guards.clone())?;
        let (mut optimizer, trunk) = optimizer(&model, &self.objective, &self.plan);
        let steps = progress.optimizer_steps.clone();
        let restored = optimizer.restore(&model, Remembered { steps, means: moments });
        restored.map_err(TrainError::other_state)?;
        (self.optimizer, self.trunk) = (optimizer, trunk);
        (self.model, self.progress) = (Some(model), progress);
        Ok(())
    }

    /// Runs the remaining steps.
    ///
    /// # Errors
    /// Returns an error if a loss or gradient is not finite, or if the objective or the observer
    /// fails.
    pub fn run(
        &mut self,
        observer: &mut dyn SupervisedObserver<O>,
    ) -> Result<SupervisedEnding, TrainError> {
        loop {
            // A resumed run that had ended does not continue.
            if let Some(ending) = self.ending() {
                return Ok(ending);
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Ok(SupervisedEnding::Interrupted);
            }
            self.advance(observer)?;
        }
    }

    /// Performs a step and its validation.
    fn advance(&mut self, observer: &mut dyn SupervisedObserver<O>) -> Result<(), TrainError> {
        let step = self.take_step()?;
        let is_due = self.progress.steps.is_multiple_of(self.plan.eval_every);
        let (mut validation, mut warnings) = (None, Vec::new());
        if is_due || self.progress.steps == self.plan.steps {
            let (found, said) = self.validate()?;
            (validation, warnings) = (Some(found), said);
        }
        let triggers = self.watch(&step, validation.as_ref())?;
        let ending = self.ending();
        let done = CompletedStep {
            step: &step,
            validation: validation.as_ref(),
            warnings: &warnings,
            triggers: &triggers,
            ending: ending.as_ref(),
        };
        observer.step(&done, self)
    }

    /// Computes gradients and applies them. Nothing has changed on an error.
    fn take_step(&mut self) -> Result<SupervisedStep, TrainError> {
        let started = Instant::now();
        let Self { objective, plan, trunk, progress, .. } = self;
        let model = self.model.as_ref().expect("a model between two steps");
        let step = progress.steps;
        let mut dropout = Dropout::new(plan.seed, step as u32, plan.dropout);
        let mut carried = progress.objective.clone();
        let StepGradients { loss, gradients, tokens, parts } =
            objective.gradients(model, step, &mut dropout, &mut carried)?;
        let admitted = Optimizer::admit(model, trunk.admit(model, gradients, step))?;
        let grad_norm = admitted.norm;
        progress.steps += 1;
        progress.num_tokens += tokens as u64;
        progress.objective = carried;
        let time = match plan.schedule_unit {
            ScheduleUnit::Steps => progress.steps,
            ScheduleUnit::Tokens => progress.num_tokens,
        };
        let learning_rate = plan.optimizer.learning_rate * plan.schedule.multiplier(time as f64);
        // Without another owner, weights are changed in place.
        let model = self.model.take().expect("a model between two steps");
        self.model = Some(self.optimizer.apply(model, admitted, learning_rate));
        Ok(SupervisedStep {
            train_step: self.progress.steps,
            step_train_loss: loss,
            grad_norm,
            learning_rate,
            num_tokens: self.progress.num_tokens,
            step_time: started.elapsed().as_secs_f64(),
            parts,
        })
    }

    /// Validates the model and returns the problems that the objective finds.
    fn validate(&mut self) -> Result<(Validation<O::Measures>, Vec<String>), TrainError> {
        let model = self.model.as_ref().expect("a model between two steps");
        let Self { objective, plan, progress, .. } = self;
        let (steps, carried) = (progress.steps, &mut progress.objective);
        let measures = objective.validate(model, steps, carried)?;
        let review = objective.review(steps, &measures, carried);
        let loss = objective.selection_loss(&measures);
        let best = progress.validations.observe(steps, loss, &plan.early_stopping);
        progress.stopped = review.stop.map(|message| (StopCause::Limit, message));
        Ok((Validation { train_step: steps, measures, best }, review.warnings))
    }

    /// Passes the numbers of a step to the guards.
    fn watch(
        &mut self,
        step: &SupervisedStep,
        validation: Option<&Validation<O::Measures>>,
    ) -> Result<Vec<GuardTrigger>, TrainError> {
        let names = self.metric_names();
        let mut pairs = numbers(step);
        pairs.extend(validation.iter().flat_map(|validation| numbers(&validation.measures)));
        let pairs: Vec<(&str, f64)> =
            pairs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let metrics = Metrics::of_pairs(&pairs).and_possible(&names);
        let triggers = self.guards.observe(self.progress.steps, &metrics)?;
        if Action::of(&triggers) == Some(Action::Stop) && self.progress.stopped.is_none() {
            let stops = triggers.iter().filter(|trigger| trigger.action == Action::Stop);
            let messages: Vec<&str> = stops.map(|trigger| trigger.message.as_str()).collect();
            self.progress.stopped = Some((StopCause::Guard, messages.join("; ")));
        }
        Ok(triggers)
    }

    fn ending(&self) -> Option<SupervisedEnding> {
        let SupervisedProgress { steps, validations, stopped, .. } = &self.progress;
        if let Some((cause, message)) = stopped {
            return Some(SupervisedEnding::Stopped { cause: *cause, message: message.clone() });
        }
        if let Some(best) = validations.exhausted(&self.plan.early_stopping) {
            return Some(SupervisedEnding::NoGain { step: *steps, best });
        }
        (*steps >= self.plan.steps).then_some(SupervisedEnding::Finished)
    }

    fn metric_names(&self) -> Vec<&'static str> {
        METRICS.iter().chain(self.objective.metric_names()).copied().collect()
    }
}

fn optimizer<O: Objective>(
    model: &O::Model,
    objective: &O,
    plan: &SupervisedPlan,
) -> (Optimizer, Trunk) {
    let trunk = Trunk::new(model, &plan.transfer, |path| objective.is_of_trunk(path));
    let optimizer = Optimizer::new(model, &plan.optimizer);
    (optimizer.with_factor(trunk.learning_rate_factor()), trunk)
}

/// Returns the numbers of a record by name.
fn numbers(record: &impl Serialize) -> Vec<(String, f64)> {
    let record = serde_json::to_value(record).expect("a record can be written as JSON");
    let serde_json::Value::Object(record) = record else { return Vec::new() };
    let number = |(name, value): (String, serde_json::Value)| Some((name, value.as_f64()?));
    record.into_iter().filter_map(number).collect()
}

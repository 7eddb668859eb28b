//! Supervised trainer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::TensorData;
use grpo_metrics::{MetricGroup, MetricSpec, MetricTable, Role};
use grpo_model::Dropout;
use serde::Serialize;

use super::state::{StopCause, SupervisedProgress, SupervisedState};
use crate::guard_config::Guarded;
use crate::optimizer::Remembered;
use crate::supervised::{Objective, ScheduleUnit, StepGradients, SupervisedPlan};
use crate::transfer::Trunk;
use crate::{
    Action, Decay, GuardConfig, GuardTrigger, Guards, Metrics, Optimizer, RunMetrics, TrainError,
};

/// Metrics of one optimizer step, written to `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SupervisedStep {
    /// Number of optimizer steps so far, including this one.
    pub train_step: u64,
    /// Minimised loss.
    pub step_train_loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate used in this step.
    pub learning_rate: f64,
    /// Total number of tokens so far.
    pub num_tokens: u64,
    /// Duration in seconds.
    pub step_time: f64,
    /// Additional values from the objective.
    #[serde(flatten)]
    pub parts: BTreeMap<&'static str, f64>,
}

/// Validation result, written to `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation<E> {
    /// Number of optimizer steps so far.
    pub train_step: u64,
    /// Metrics computed by the objective.
    #[serde(flatten)]
    pub measures: E,
    /// Whether this is the best validation so far.
    pub best: bool,
}

/// A completed step, including its validation.
#[derive(Clone, Copy, Debug)]
pub struct CompletedStep<'a, E> {
    /// Metrics of the step.
    pub step: &'a SupervisedStep,
    /// Validation result, if a validation was due.
    pub validation: Option<&'a Validation<E>>,
    /// Warnings about the validation from the objective.
    pub warnings: &'a [String],
    /// Guards triggered in this step.
    pub triggers: &'a [GuardTrigger],
    /// How the run ended, if this was the last step.
    pub ending: Option<&'a SupervisedEnding>,
}

/// Receives progress updates during a run.
pub trait SupervisedObserver<O: Objective> {
    /// Called after each step.
    ///
    /// # Errors
    /// If an error is returned, the run ends.
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError>;
}

/// How a supervised run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SupervisedEnding {
    /// All steps were completed.
    Finished,
    /// The validation loss stopped improving.
    NoGain {
        /// Number of optimizer steps so far.
        step: u64,
        /// Number of steps and selection loss at the best validation.
        best: (u64, f64),
    },
    /// A limit or a guard stopped the run.
    Stopped {
        /// What stopped the run.
        cause: StopCause,
        /// Human-readable explanation.
        message: String,
    },
    /// The run was interrupted.
    Interrupted,
}

/// A supervised training run.
pub struct SupervisedTrainer<O: Objective> {
    objective: O,
    plan: SupervisedPlan,
    /// `None` only while a step is in progress.
    model: Option<O::Model>,
    optimizer: Optimizer,
    trunk: Trunk,
    guards: Guards,
    interrupt: Arc<AtomicBool>,
    progress: SupervisedProgress<O::Progress>,
}

/// Metrics of each step, with any objective.
static METRICS: [MetricSpec; 6] = [
    MetricSpec::new("train_step", "from 1", "optimizer steps completed, including this one")
        .hidden(),
    MetricSpec::new("step_train_loss", "", "minimised loss of the step, with all weights and factors, except for a diversity term. In next-token training, the mean cross-entropy over the tokens of the step in nats")
        .curve("Supervised loss", "training"),
    MetricSpec::new("grad_norm", "≥ 0", "global gradient norm before clipping, including a diversity term")
        .curve("Gradient norm", ""),
    MetricSpec::new("learning_rate", "", "learning rate of the step").curve("Learning rate", ""),
    MetricSpec::new("num_tokens", "count", "tokens trained on so far, including end tokens; for an infiller or a judge, tokens read; 0 for an engagement model, because the vectors are computed before training")
        .hidden(),
    MetricSpec::new("step_time", "seconds", "duration of the step")
        .of_machine()
        .in_chart("Step time", Role::Total),
];

/// Returns the metrics of each step of a supervised run. Its objective has more.
pub const fn supervised_metrics() -> MetricGroup {
    MetricGroup { name: "supervised", section: "", metrics: &METRICS }
}

impl<O: Objective> SupervisedTrainer<O> {
    /// Creates a new run.
    pub fn new(model: O::Model, objective: O, plan: SupervisedPlan) -> Self {
        let model = objective.prepare(model);
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

    /// Changes the objective.
    pub(crate) fn map_objective(self, change: impl FnOnce(O) -> O) -> Self {
        Self { objective: change(self.objective), ..self }
    }

    /// Adds guards to the run.
    ///
    /// # Errors
    /// Returns an error if a guard watches an unknown metric or uses an action that is not
    /// supported in supervised runs.
    pub fn with_guards(mut self, guards: &[GuardConfig]) -> Result<Self, TrainError> {
        let mut metrics = RunMetrics::default();
        metrics.add(self.metrics().specs(), |metric| self.objective.measures(metric));
        for (place, guard) in guards.iter().enumerate() {
            guard.check(place, &Guarded::Supervised, &metrics)?;
        }
        self.guards = Guards::new(guards);
        Ok(self)
    }

    /// Returns the metrics of the run.
    pub fn metrics(&self) -> MetricTable {
        MetricTable::new(self.objective.metrics().into_iter().chain([supervised_metrics()]))
    }

    /// After `flag` is set, the run stops before the next step and returns
    /// [`SupervisedEnding::Interrupted`].
    pub fn interrupted_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = flag;
    }

    /// Returns the current model.
    ///
    /// # Panics
    /// Panics if a previous step panicked.
    pub fn model(&self) -> &O::Model {
        self.model.as_ref().expect("the model is present between steps")
    }

    /// Consumes the trainer and returns the model.
    ///
    /// # Panics
    /// Panics if a previous step panicked.
    pub fn into_model(self) -> O::Model {
        self.model.expect("the model is present between steps")
    }

    /// Returns the number of completed steps.
    pub fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// Returns the plan for this run.
    pub fn plan(&self) -> &SupervisedPlan {
        &self.plan
    }

    /// Returns the step and selection loss of the best validation so far.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.progress.validations.best
    }

    /// Returns the state to be saved.
    pub fn state(&self) -> SupervisedState<O::Progress> {
        let Remembered { steps, means } = self.optimizer.remembered(self.model());
        let mut progress = self.progress.clone();
        progress.guards = self.guards.state().clone();
        progress.optimizer_steps = steps;
        SupervisedState { progress, moments: means }
    }

    /// Restores a saved state. `moments` contains the moving averages of the optimizer by name, and
    /// `model` must already contain the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state was saved with a different model or different settings.
    pub fn restore(
        &mut self,
        model: O::Model,
        progress: SupervisedProgress<O::Progress>,
        moments: BTreeMap<String, TensorData>,
    ) -> Result<(), TrainError> {
        self.guards.restore(progress.guards.clone())?;
        let model = self.objective.prepare(model);
        let (mut optimizer, trunk) = optimizer(&model, &self.objective, &self.plan);
        let steps = progress.optimizer_steps.clone();
        let restored = optimizer.restore(&model, Remembered { steps, means: moments });
        restored.map_err(TrainError::other_state)?;
        (self.optimizer, self.trunk) = (optimizer, trunk);
        (self.model, self.progress) = (Some(model), progress);
        Ok(())
    }

    /// Runs all remaining steps.
    ///
    /// # Errors
    /// Returns an error if a loss or gradient is not finite, or if the objective or the observer
    /// fails.
    pub fn run(
        &mut self,
        observer: &mut dyn SupervisedObserver<O>,
    ) -> Result<SupervisedEnding, TrainError> {
        loop {
            // A run that had already ended does not continue after it is resumed.
            if let Some(ending) = self.ending() {
                return Ok(ending);
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return Ok(SupervisedEnding::Interrupted);
            }
            let precision = self.objective.product_precision();
            self.advance(observer).map_err(|error| error.with_products_in(precision))?;
        }
    }

    /// Performs one step and validates the model if necessary.
    fn advance(&mut self, observer: &mut dyn SupervisedObserver<O>) -> Result<(), TrainError> {
        let step = self.take_step()?;
        let is_due = self.progress.steps.is_multiple_of(self.plan.eval_every);
        let (mut validation, mut warnings) = (None, Vec::new());
        if is_due || self.progress.steps == self.plan.steps {
            let (found, said) = self.validate()?;
            (validation, warnings) = (Some(found), said);
        }
        let triggers = self.watch(&step, validation.as_ref());
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

    /// Computes and applies gradients. If an error is returned, nothing has changed.
    fn take_step(&mut self) -> Result<SupervisedStep, TrainError> {
        let started = Instant::now();
        let Self { objective, plan, trunk, progress, .. } = self;
        let model = self.model.as_ref().expect("the model is present between steps");
        let step = progress.steps;
        let mut dropout = Dropout::new(plan.seed, step as u32, plan.dropout);
        let mut carried = progress.objective.clone();
        let StepGradients { loss, gradients, tokens, parts } =
            objective.gradients(model, step, &mut dropout, &mut carried)?;
        let admitted = Optimizer::admit(model, trunk.admit(model, gradients, step))?;
        let grad_norm = admitted.norm;
        let time = |progress: &SupervisedProgress<_>| match plan.schedule_unit {
            ScheduleUnit::Steps => progress.steps as f64,
            ScheduleUnit::Tokens => progress.num_tokens as f64,
        };
        let before = time(progress);
        progress.steps += 1;
        progress.num_tokens += tokens as u64;
        progress.objective = carried;
        let plateaus = progress.validations.plateaus();
        let multiplier = plan.schedule.of_step(before, time(progress), plateaus);
        let learning_rate = plan.optimizer.learning_rate * multiplier;
        // The model is uniquely owned here, so its weights are updated in place.
        let model = self.model.take().expect("the model is present between steps");
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

    /// Validates the model. Also returns the warnings from the objective.
    fn validate(&mut self) -> Result<(Validation<O::Measures>, Vec<String>), TrainError> {
        let model = self.model.as_ref().expect("the model is present between steps");
        let Self { objective, plan, progress, .. } = self;
        let (steps, carried) = (progress.steps, &mut progress.objective);
        let measures = objective.validate(model, steps, carried)?;
        let review = objective.review(steps, &measures, carried);
        let loss = objective.selection_loss(&measures);
        let best = progress.validations.observe(steps, loss, &plan.early_stopping);
        if let Decay::ReduceOnPlateau { patience, .. } = plan.schedule.decay {
            progress.validations.count_plateau(patience);
        }
        progress.stopped = review.stop.map(|message| (StopCause::Limit, message));
        Ok((Validation { train_step: steps, measures, best }, review.warnings))
    }

    /// Checks the metrics of a step with the guards.
    fn watch(
        &mut self,
        step: &SupervisedStep,
        validation: Option<&Validation<O::Measures>>,
    ) -> Vec<GuardTrigger> {
        let mut pairs = numbers(step);
        pairs.extend(validation.iter().flat_map(|validation| numbers(&validation.measures)));
        let pairs: Vec<(&str, f64)> =
            pairs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let triggers = self.guards.observe(self.progress.steps, &Metrics::of_pairs(&pairs));
        if Action::of(&triggers) == Some(Action::Stop) && self.progress.stopped.is_none() {
            let stops = triggers.iter().filter(|trigger| trigger.action == Action::Stop);
            let messages: Vec<&str> = stops.map(|trigger| trigger.message.as_str()).collect();
            self.progress.stopped = Some((StopCause::Guard, messages.join("; ")));
        }
        triggers
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

/// Returns all numeric fields of a record by name.
fn numbers(record: &impl Serialize) -> Vec<(String, f64)> {
    let record = serde_json::to_value(record).expect("a record serializes to JSON");
    let serde_json::Value::Object(record) = record else { return Vec::new() };
    let number = |(name, value): (String, serde_json::Value)| Some((name, value.as_f64()?));
    record.into_iter().filter_map(number).collect()
}

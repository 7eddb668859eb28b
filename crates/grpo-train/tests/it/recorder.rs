//! Observers for supervised training, and a test for interrupted runs.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_train::{
    CompletedStep, Objective, SupervisedEnding, SupervisedObserver, SupervisedProgress,
    SupervisedState, SupervisedStep, SupervisedTrainer, TrainError, Validation,
};

/// Records everything that a run reports, except times.
#[derive(Debug, PartialEq)]
pub(crate) struct Recorder<E> {
    pub(crate) steps: Vec<SupervisedStep>,
    pub(crate) validations: Vec<Validation<E>>,
    pub(crate) warnings: Vec<String>,
}

impl<E> Default for Recorder<E> {
    fn default() -> Self {
        Self { steps: Vec::new(), validations: Vec::new(), warnings: Vec::new() }
    }
}

impl<E> Recorder<E> {
    pub(crate) fn losses(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.step_train_loss).collect()
    }

    pub(crate) fn last(&self) -> &E {
        &self.validations.last().unwrap().measures
    }
}

impl<O: Objective> SupervisedObserver<O> for Recorder<O::Measures> {
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError> {
        assert!(done.step.train_step <= trainer.plan().steps);
        assert_eq!(done.step.train_step, trainer.steps());
        let mut step = SupervisedStep { step_time: 0.0, ..done.step.clone() };
        step.parts.remove("generation_time");
        self.steps.push(step);
        self.validations.extend(done.validation.cloned());
        self.warnings.extend_from_slice(done.warnings);
        Ok(())
    }
}

/// Runs a trainer to the end.
pub(crate) fn run<O: Objective>(
    trainer: Result<SupervisedTrainer<O>, TrainError>,
) -> (Recorder<O::Measures>, O::Model, SupervisedEnding) {
    let (mut recorder, mut trainer) = (Recorder::default(), trainer.unwrap());
    let ending = trainer.run(&mut recorder).unwrap();
    (recorder, trainer.into_model(), ending)
}

/// Forwards progress to `recorder`, and interrupts the run after a given step.
struct Interrupting<'a, E> {
    recorder: &'a mut Recorder<E>,
    after: u64,
    flag: Arc<AtomicBool>,
}

impl<O: Objective> SupervisedObserver<O> for Interrupting<'_, O::Measures> {
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError> {
        self.flag.store(done.step.train_step == self.after, Ordering::Relaxed);
        SupervisedObserver::<O>::step(self.recorder, done, trainer)
    }
}

/// Interrupts a run after each of the steps in `after`, saves its state and resumes it with a new
/// trainer. The results and weights must be identical to those of an uninterrupted run.
pub(crate) fn check_resumed<O: Objective>(
    trainer: impl Fn() -> SupervisedTrainer<O>,
    after: &[u64],
    copy: impl Fn(&O::Model) -> O::Model,
    weights: impl Fn(&O::Model) -> Vec<f32>,
) where
    O::Measures: PartialEq + Debug,
{
    let (expected, expected_model, expected_ending) = run(Ok(trainer()));
    let (mut recorder, mut current) = (Recorder::default(), trainer());
    for &after in after {
        let flag = Arc::new(AtomicBool::new(false));
        current.interrupted_by(Arc::clone(&flag));
        let mut observer = Interrupting { recorder: &mut recorder, after, flag };
        assert_eq!(current.run(&mut observer).unwrap(), SupervisedEnding::Interrupted);
        assert_eq!(current.steps(), after);
        let SupervisedState { progress, moments } = current.state();
        let text = serde_json::to_string(&progress).unwrap();
        let progress: SupervisedProgress<O::Progress> = serde_json::from_str(&text).unwrap();
        let model = copy(current.model());
        current = trainer();
        current.restore(model, progress, moments.read()).unwrap();
    }
    let ending = current.run(&mut recorder).unwrap();
    assert_eq!((recorder, ending), (expected, expected_ending));
    assert_eq!(weights(current.model()), weights(&expected_model));
}

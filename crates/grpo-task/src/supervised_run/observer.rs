//! Writes the files of a supervised run and displays its progress.

use std::marker::PhantomData;
use std::path::Path;

use grpo_run::EventKind;
use grpo_train::{
    CompletedStep, Objective, SupervisedEnding, SupervisedObserver, SupervisedState,
    SupervisedStep, SupervisedTrainer, TrainError, Validation,
};

use super::model_files::{ModelFiles, save_folder};
use crate::checkpoint;
use crate::interrupt::Interrupted;
use crate::output::{Progress, say, say_aside, sentence};
use crate::run_log::{Line, RunLog, observer_error};

/// Writes metrics, events, checkpoints and the best model, and updates the progress bar.
pub(super) struct Observer<'a, O, F> {
    of: PhantomData<fn(O)>,
    log: RunLog,
    files: &'a mut F,
    progress: Progress,
    /// Arguments for `grpo` that resume the run.
    resume: String,
    /// Last recorded step.
    written: u64,
    /// Losses of the first and the last step.
    losses: Option<[f64; 2]>,
    /// Results of the last validation as text.
    last: String,
}

impl<'a, O: Objective, F: ModelFiles<O>> Observer<'a, O, F> {
    /// Creates an observer for a run with `done` of `steps` steps completed.
    pub(super) fn new(
        (log, lines): (RunLog, Vec<Line>),
        files: &'a mut F,
        done: u64,
        steps: u64,
        resume: String,
    ) -> Self {
        let progress = Progress::new(steps);
        progress.begin_at(done);
        let mut losses = lines.iter().filter_map(|line| line.get("step_train_loss")?.as_f64());
        let losses = losses.next().map(|first| [first, losses.next_back().unwrap_or(first)]);
        let (of, last) = (PhantomData, String::new());
        Self { of, log, files, progress, resume, written: done, losses, last }
    }

    /// Records and prints why the run ended.
    pub(super) fn ended(
        &mut self,
        ending: &SupervisedEnding,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Result<()> {
        self.progress.finish();
        let (done, steps) = (trainer.steps(), trainer.plan().steps);
        let best = trainer.best().map(|(_, loss)| loss);
        if let (Some(losses), false) =
            (self.losses, matches!(ending, SupervisedEnding::Interrupted))
            && let Some(warning) = divergence(losses, best, F::SECTION)
        {
            say_aside(format_args!("warning: {warning}"));
        }
        let what = match ending {
            SupervisedEnding::Finished => EventKind::Finished { ended_by: None },
            SupervisedEnding::Stopped { message, .. } => {
                EventKind::Stopped { reason: message.clone() }
            }
            SupervisedEnding::NoGain { step, best: (best, loss) } => {
                let section = F::SECTION;
                let reason = format!(
                    "the validation loss did not improve enough up to step {step} ({section}.patience, {section}.min_gain); the lowest is {loss:.4}, after step {best}"
                );
                say(format_args!("stopped      {reason}"));
                // No steps are left, so the run is finished as well.
                self.log.event(done, EventKind::Stopped { reason })?;
                EventKind::Finished { ended_by: None }
            }
            SupervisedEnding::Interrupted => {
                self.checkpoint(trainer, false)?;
                self.log.interrupted([done, steps], &self.resume)?;
                return Err(Interrupted.into());
            }
        };
        self.log.event(done, what)
    }

    /// Saves the progress of a failed run. If saving fails too, only the original error is
    /// reported.
    pub(super) fn ended_early(
        &mut self,
        error: anyhow::Error,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Error {
        self.progress.finish();
        let _lost =
            self.log.event(trainer.steps(), EventKind::Stopped { reason: sentence(&error) });
        // Only complete steps that are already recorded can be saved.
        let is_saved = match trainer.steps() == self.written && trainer.steps() > 0 {
            true => self.checkpoint(trainer, false).is_ok(),
            false => true,
        };
        if is_saved {
            say(format_args!("resume       grpo {}", self.resume));
        }
        error.context(format!("training run {} ended early", self.log.folder.path().display()))
    }

    /// Writes a checkpoint of the current state and removes outdated ones.
    fn checkpoint(&mut self, trainer: &SupervisedTrainer<O>, best: bool) -> anyhow::Result<()> {
        let SupervisedState { progress, moments } = trainer.state();
        let (files, steps) = (&*self.files, trainer.steps());
        self.log.checkpoint(best, &[], |run, announce| {
            let model = |folder: &Path| files.write(folder, trainer.model());
            checkpoint::write_state(run, steps, model, &progress, &moments, None, announce)
        })
    }

    /// Records and prints the results of a validation, and saves the best model.
    fn validated(
        &mut self,
        validation: &Validation<O::Measures>,
        warnings: &[String],
        model: &O::Model,
    ) -> anyhow::Result<()> {
        self.log.line(validation)?;
        self.files.validated(&validation.measures)?;
        let mut saved = "";
        if let (true, Some(folder)) = (validation.best, self.files.folder()) {
            let write = |folder: &Path| self.files.write(folder, model);
            save_folder(&self.log.folder, folder, write)?;
            saved = ", saved";
        }
        let words = self.files.words(&validation.measures);
        self.progress.say(&format!("{}: {words}{saved}", self.files.when(validation)));
        for message in warnings {
            self.progress.say(&format!("limit        {message}"));
            let line = serde_json::to_value(&validation.measures)?;
            let what = EventKind::Guard {
                watch: "eval_loss".to_owned(),
                value: line["eval_loss"].as_f64(),
                bound: None,
                steps: 1,
                action: "warn".to_owned(),
                message: message.clone(),
            };
            self.log.event(validation.train_step, what)?;
        }
        self.last = format!("  {words}");
        Ok(())
    }

    fn completed(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Result<()> {
        let SupervisedStep { train_step, step_train_loss, learning_rate, .. } = *done.step;
        self.log.line(done.step)?;
        let [first, _] = self.losses.unwrap_or([step_train_loss; 2]);
        self.losses = Some([first, step_train_loss]);
        let diversity = done.step.parts.get("diversity_score");
        let diversity = diversity.map(|score| format!("  D {score:.3}")).unwrap_or_default();
        let last = &self.last;
        let words = format!("loss {step_train_loss:.4}  lr {learning_rate:.1e}{diversity}{last}");
        self.progress.step(words);
        if let Some(validation) = done.validation {
            self.validated(validation, done.warnings, trainer.model())?;
        }
        for trigger in done.triggers {
            let line = self.log.guard(train_step, trigger)?;
            self.progress.say(&line);
        }
        self.written = train_step;
        if self.log.is_checkpoint_due(train_step) || done.ending.is_some() {
            self.checkpoint(trainer, done.validation.is_some_and(|validation| validation.best))?;
        }
        Ok(())
    }
}

impl<O: Objective, F: ModelFiles<O>> SupervisedObserver<O> for Observer<'_, O, F> {
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError> {
        self.completed(done, trainer).map_err(observer_error)
    }
}

/// Warns if training made the model much worse than it was in the first step: the lowest validation
/// loss, or the loss of the last step.
fn divergence([first, last]: [f64; 2], best: Option<f64>, section: &str) -> Option<String> {
    // Losses of batches and of held-out data differ by less than this without a divergence.
    const FACTOR: f64 = 2.0;
    let is_worse = |loss: &f64| first > 0.0 && *loss > FACTOR * first;
    let (what, loss) = match best.filter(is_worse) {
        Some(best) => ("lowest validation loss", best),
        None => ("loss of the last step", Some(last).filter(is_worse)?),
    };
    Some(format!(
        "training diverged: the {what} is {loss:.4}, but that of the first step was {first:.4}; lower learning_rate in [{section}.optimizer]"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_made_the_model_worse_has_diverged() {
        let check = |losses, best, expected: Option<&str>| {
            let warning = divergence(losses, best, "pretrain");
            match expected {
                None => assert_eq!(warning, None),
                Some(expected) => assert!(warning.unwrap().contains(expected)),
            }
        };
        check([0.7, 0.5], Some(0.6), None);
        check([0.7, 0.9], Some(1.2), None);
        check([0.0, 9.0], Some(9.0), None);
        check([0.7, 0.5], None, None);
        check([0.7, 100.0], Some(0.6), Some("the loss of the last step is 100.0000, but"));
        check(
            [0.7, 100.0],
            Some(3.2),
            Some(
                "the lowest validation loss is 3.2000, but that of the first step was 0.7000; lower learning_rate in [pretrain.optimizer]",
            ),
        );
    }
}

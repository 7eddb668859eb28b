//! What a supervised run writes step by step, and what it shows.

use grpo_run::{Event, EventKind, JsonLinesWriter, TensorBoard};
use grpo_train::{
    CompletedStep, Objective, SupervisedEnding, SupervisedObserver, SupervisedState,
    SupervisedStep, SupervisedTrainer, TrainError, Validation,
};
use serde::Serialize;
use serde_json::Value;

use super::{ModelFiles, SupervisedRun, save_folder};
use crate::checkpoint::{self, CheckpointClock, CheckpointSection};
use crate::config;
use crate::interrupt::Interrupted;
use crate::output::{Progress, say, sentence};
use crate::run_files::{guard_event, observer_error};

/// Writes metrics, events, checkpoints and the best model, and moves the bar.
pub(super) struct Observer<'a, F> {
    run: &'a SupervisedRun,
    files: &'a mut F,
    metrics: JsonLinesWriter,
    tensorboard: TensorBoard,
    events: JsonLinesWriter,
    clock: CheckpointClock,
    progress: Progress,
    /// The last step that is written down.
    written: u64,
    /// What the last validation found, in words.
    last: String,
}

impl<'a, F> Observer<'a, F> {
    /// After `done` steps: what an earlier process wrote of later ones is taken out.
    pub(super) fn new(
        run: &'a SupervisedRun,
        files: &'a mut F,
        save: &CheckpointSection,
        done: u64,
        steps: u64,
    ) -> anyhow::Result<Self> {
        let metrics = run.folder.metrics_from(done + 1)?;
        let progress = Progress::new(steps);
        progress.begin_at(done);
        Ok(Self {
            metrics,
            tensorboard: TensorBoard::rebuild(&run.folder, &run.folder.read_metrics()?)?,
            events: run.folder.events_from(done + 1, 0)?,
            clock: CheckpointClock::new(save.clone()),
            progress,
            written: done,
            last: String::new(),
            run,
            files,
        })
    }

    pub(super) fn event(&mut self, step: u64, what: EventKind) -> anyhow::Result<()> {
        Ok(self.events.append(&Event { step, at: config::now(), what })?)
    }

    /// Writes a line of numbers.
    fn line(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        let Value::Object(line) = serde_json::to_value(record)? else {
            anyhow::bail!("a line of metrics.jsonl has names and numbers");
        };
        self.metrics.append(&line)?;
        Ok(self.tensorboard.append(&line)?)
    }

    /// Says and writes why the run ended.
    pub(super) fn ended<O: Objective>(
        &mut self,
        ending: &SupervisedEnding,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Result<()>
    where
        F: ModelFiles<O>,
    {
        self.progress.finish();
        let (done, steps) = (trainer.steps(), trainer.plan().steps);
        let what = match ending {
            SupervisedEnding::Finished => EventKind::Finished {},
            SupervisedEnding::Stopped { message, .. } => {
                EventKind::Stopped { reason: message.clone() }
            }
            SupervisedEnding::NoGain { step, best: (best, loss) } => {
                let section = F::SECTION;
                let reason = format!(
                    "up to step {step} no validation loss was lower by enough ({section}.patience, {section}.min_gain); the lowest is {loss:.4}, after step {best}"
                );
                say(format_args!("stopped      {reason}"));
                // Nothing is left to do: it is finished as well.
                self.event(done, EventKind::Stopped { reason })?;
                EventKind::Finished {}
            }
            SupervisedEnding::Interrupted => {
                self.checkpoint(trainer, false)?;
                self.event(done, EventKind::Interrupted {})?;
                say(format_args!(
                    "interrupted  after step {done} of {steps}; `grpo {} --resume {}` goes on",
                    self.run.command,
                    self.run.resume.display()
                ));
                return Err(Interrupted.into());
            }
        };
        self.event(done, what)
    }

    /// What was learned before a failure is not lost; if saving fails too, the training's reason is the one to know.
    pub(super) fn ended_early<O: Objective>(
        &mut self,
        error: anyhow::Error,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Error
    where
        F: ModelFiles<O>,
    {
        self.progress.finish();
        let _lost = self.event(trainer.steps(), EventKind::Stopped { reason: sentence(&error) });
        // Of a step that is written down as well, and whole.
        if trainer.steps() == self.written && trainer.steps() > 0 {
            let _lost = self.checkpoint(trainer, false);
        }
        error.context(format!("the training of {} ended early", self.run.path().display()))
    }

    /// Writes the checkpoint of this moment, and removes those that are not kept.
    fn checkpoint<O: Objective>(
        &mut self,
        trainer: &SupervisedTrainer<O>,
        best: bool,
    ) -> anyhow::Result<()>
    where
        F: ModelFiles<O>,
    {
        // Steps that a checkpoint is after are on the disk before it.
        self.metrics.sync()?;
        self.events.sync()?;
        let SupervisedState { progress, moments } = trainer.state();
        let (folder, steps) = (&self.run.folder, trainer.steps());
        let model = |folder: &std::path::Path| self.files.write(folder, trainer.model());
        checkpoint::write_state(folder, steps, model, &progress, &moments, None)?;
        self.clock.written(folder, &[])?;
        self.event(steps, EventKind::Checkpoint { best })
    }

    /// Writes and says what a validation found, and keeps the best model.
    fn validated<O: Objective>(
        &mut self,
        validation: &Validation<O::Measures>,
        warnings: &[String],
        model: &O::Model,
    ) -> anyhow::Result<()>
    where
        F: ModelFiles<O>,
    {
        self.line(validation)?;
        self.files.validated(&validation.measures)?;
        let mut saved = "";
        if let (true, Some(folder)) = (validation.best, self.files.folder()) {
            save_folder(&self.run.target(folder), |folder| self.files.write(folder, model))?;
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
            self.event(validation.train_step, what)?;
        }
        self.last = format!("  {words}");
        Ok(())
    }

    fn completed<O: Objective>(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> anyhow::Result<()>
    where
        F: ModelFiles<O>,
    {
        let SupervisedStep { train_step, step_train_loss, learning_rate, .. } = *done.step;
        self.line(done.step)?;
        let diversity = done.step.parts.get("diversity_score");
        let diversity = diversity.map(|score| format!("  D {score:.3}")).unwrap_or_default();
        let last = &self.last;
        let words = format!("loss {step_train_loss:.4}  lr {learning_rate:.1e}{diversity}{last}");
        self.progress.step(words);
        if let Some(validation) = done.validation {
            self.validated(validation, done.warnings, trainer.model())?;
        }
        for trip in done.trips {
            let (line, event) = guard_event(trip);
            self.progress.say(&line);
            self.event(train_step, event)?;
        }
        self.written = train_step;
        if self.clock.is_due(train_step) || done.ending.is_some() {
            self.checkpoint(trainer, done.validation.is_some_and(|validation| validation.best))?;
        }
        Ok(())
    }
}

impl<O: Objective, F: ModelFiles<O>> SupervisedObserver<O> for Observer<'_, F> {
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        trainer: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError> {
        self.completed(done, trainer).map_err(observer_error)
    }
}

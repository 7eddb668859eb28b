//! Writes down what a training run does, and shows it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use grpo_model::Policy;
use grpo_rewards::PartName;
use grpo_run::{ChainWriter, EventKind, LedgerStep, RecordedHashes, ReferenceChange, RunFolder};
use grpo_train::{
    Ending, GuardAction, GuardTrigger, Metrics, StepDone, TrainError, TrainObserver, Training,
};

use crate::checkpoint;
use crate::dashboard::Monitor;
use crate::models::Writer;
use crate::output::is_quiet;
use crate::recorded::records;
use crate::recorded_steps::RecordedSteps;
use crate::run_log::{Line, RunLog, observer_error};
use crate::session::Session;
use crate::train_settings::TrainSettings;

/// How the training is shown, and what ends it.
pub(crate) struct Show {
    pub(crate) plain: bool,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Writes metrics, completions and checkpoints, and moves the bar.
pub(super) struct Observer {
    pub(super) log: RunLog,
    pub(super) ledger: ChainWriter,
    /// The step of its last line.
    pub(super) ledger_step: u64,
    /// Names of the parts of the reward.
    pub(super) parts: Vec<PartName>,
    pub(super) monitor: Monitor,
    pub(super) completions_every: u32,
    pub(super) steps: u32,
    pub(super) steps_done: u32,
    /// Whether a guard may want to go back.
    pub(super) can_roll_back: bool,
    /// Whether the policy changes between the updates of a step.
    pub(super) has_several_updates: bool,
    pub(super) writer: Writer,
    /// What the steps were, where they were done before.
    pub(super) earlier: RecordedSteps,
    /// Whether a step before had to be corrected for its sampler.
    pub(super) was_corrected: bool,
}

impl Observer {
    /// Of the steps that are left.
    pub(super) fn new(session: &mut Session, show: Show) -> anyhow::Result<Self> {
        let Session { folder, file, training, writer, earlier, .. } = session;
        let done = u64::from(training.steps());
        let guards = file.grpo().guards();
        let TrainSettings { save, train, .. } = &**file;
        let title = format!("grpo train  {}", folder.path().display());
        let monitor =
            Monitor::new(&title, u64::from(train.steps), show.plain || is_quiet(), show.stop);
        let ledger = folder.ledger_from(done + 1)?;
        let (log, lines) = RunLog::open(folder, done, training.roll_backs(), save.checkpoints())?;
        let mut observer = Self {
            log,
            ledger,
            ledger_step: done,
            can_roll_back: guards.iter().any(|guard| guard.action == GuardAction::RollBack),
            has_several_updates: train.updates_per_rollout > 1,
            steps_done: training.steps(),
            parts: training.grpo().reward_names().parts,
            monitor,
            completions_every: save.completions_every,
            steps: train.steps,
            writer: writer.clone(),
            earlier: std::mem::take(earlier),
            was_corrected: false,
        };
        observer.begin_at(done, &lines)?;
        Ok(observer)
    }

    /// Completions of later steps, if there are any, are written again.
    pub(super) fn begin_at(&mut self, done: u64, lines: &[Line]) -> anyhow::Result<()> {
        self.log.folder.remove_completions_from(done + 1)?;
        if lines.len() as u64 != done {
            self.monitor.say(&format!(
                "warning      metrics.jsonl has only {} of the {done} previous steps; the others were lost",
                lines.len()
            ));
        }
        self.monitor.begin_at(done, lines);
        Ok(())
    }

    pub(super) fn event(&mut self, step: u32, what: EventKind) -> anyhow::Result<()> {
        self.anchor()?;
        self.log.event(step.into(), what)
    }

    /// Saves what was trained in the folder `kind` of the run. The event comes first: a folder without one was not
    /// written by the run.
    pub(super) fn save(&mut self, training: &Training<Policy>, kind: &str) -> anyhow::Result<()> {
        self.anchor()?;
        let (target, writer) = (self.log.folder.path().join(kind), self.writer.clone());
        writer.save(&target, training.policy(), |manifest| {
            self.log.saved(training.steps().into(), kind, manifest)
        })
    }

    /// Puts the ledger on the disk, so that the next events have the hash of its last line.
    pub(super) fn anchor(&mut self) -> anyhow::Result<()> {
        self.ledger.sync()?;
        if self.ledger_step > 0 {
            self.log.anchor(self.ledger_step, &self.ledger);
        }
        Ok(())
    }

    /// Saves a run that ends where it was interrupted, and says how it is resumed. An evaluation that was interrupted belongs
    /// to a step that is not recorded: the run then resumes from the checkpoint before it.
    pub(super) fn interrupted(&mut self, training: &Training<Policy>) -> anyhow::Result<()> {
        let steps = self.steps_done;
        if training.steps() == steps {
            self.checkpoint(training, false)?;
        }
        let resume = format!("train --resume {}", self.log.folder.path().display());
        self.log.interrupted([steps.into(), self.steps.into()], &resume)
    }

    /// Goes back to the newest checkpoint of a policy before the one that the metrics of step `since` describe, and
    /// continues from there with these settings; whether there is one. Metrics describe the policy that sampled, which
    /// is that of the step before, and those between the updates of the step. A run that went back to that checkpoint
    /// last goes further back, to its beginning at most.
    pub(super) fn roll_back(
        &mut self,
        training: &mut Training<Policy>,
        since: u32,
        learning_rate_factor: f64,
        kl_coef: f64,
    ) -> anyhow::Result<bool> {
        let from_step = u64::from(training.steps());
        let last = match u64::from(since).checked_sub(2) {
            Some(last) => last,
            None if self.has_several_updates => 0,
            None => return Ok(false),
        };
        let mut newest = self.log.folder.newest_checkpoint(Some(last))?.whole;
        let again = training.rolled_back_to().map(u64::from);
        if let Some(step) = newest.as_ref().map(|(step, _)| *step)
            && Some(step) == again
            && step > 0
        {
            newest = self.log.folder.newest_checkpoint(Some(step - 1))?.whole;
        }
        let Some((step, good)) = newest else { return Ok(false) };
        let number = training.roll_backs() + 1;
        let aside = self.log.folder.set_aside(step, number)?;
        checkpoint::restore(training, &good)?;
        training.soften(number, learning_rate_factor, kl_coef);
        let kl_coef = training.kl_coef();
        self.anchor()?;
        let event = EventKind::RolledBack { number, from_step, learning_rate_factor, kl_coef };
        self.log.rolled_back(step, event, &aside)?;
        // Until this is written, a killed run comes here again by itself. From then on it begins at this one, which has
        // gone back more often than the newer ones.
        let mut hash = String::new();
        checkpoint::write(&self.log.folder, &self.writer, training, &mut |_, manifest| {
            hash = manifest;
            Ok(())
        })?;
        self.log.folder.remove_checkpoints_after(step)?;
        self.ledger = self.log.folder.ledger_from(step + 1)?;
        self.ledger_step = step;
        self.anchor()?;
        let lines = self.log.go_back(step)?;
        self.begin_at(step, &lines)?;
        // The last word of going back: without it, a killed run was in the middle of it.
        let kept = self.log.folder.kept_checkpoints(usize::MAX, &[], None)?;
        self.log.checkpointed(step, hash, false, kept)?;
        self.steps_done = training.steps();
        self.earlier = RecordedSteps::default();
        self.monitor.say(&format!(
            "rolled back  to step {step}; from now on, learning rates are multiplied by {learning_rate_factor} and the KL penalty by {kl_coef}; discarded files are in {}",
            aside.display()
        ));
        Ok(true)
    }

    /// Says what guards saw.
    pub(super) fn triggers(&mut self, step: u32, triggers: &[GuardTrigger]) -> anyhow::Result<()> {
        for trigger in triggers {
            let line = self.log.guard(step.into(), trigger)?;
            self.monitor.say(&line);
        }
        Ok(())
    }

    /// Writes the checkpoint of this moment, and removes those that are not kept.
    pub(super) fn checkpoint(
        &mut self,
        training: &Training<Policy>,
        best: bool,
    ) -> anyhow::Result<()> {
        let of_best = training.state().numbers.progress.evaluations.best;
        let best_step = of_best.iter().map(|(step, _)| u64::from(*step));
        // The beginning is known to be good.
        let besides: Vec<u64> = best_step.chain(self.can_roll_back.then_some(0)).collect();
        self.anchor()?;
        let writer = &self.writer;
        self.log.checkpoint(best, &besides, |run, announce| {
            checkpoint::write(run, writer, training, announce)
        })
    }

    pub(super) fn is_checkpoint_due(&self, done: &StepDone<'_>) -> bool {
        let step = done.report.step + 1;
        if matches!(done.ending, Some(Ending::RollBack { .. })) {
            return false;
        }
        let is_end = step == self.steps || done.ending.is_some();
        self.log.is_checkpoint_due(step.into()) || is_end || done.is_best
    }

    /// Where the step was done before, whether it is what it was.
    pub(super) fn compare(&mut self, done: &StepDone<'_>) {
        match self.earlier.check(done.metrics, &done.report.observed.ledger) {
            Ok(_) => {}
            Err(fault) => self.monitor.say(&format!("warning      {fault}")),
        }
    }

    pub(super) fn completed(
        &mut self,
        done: &StepDone<'_>,
        training: &Training<Policy>,
    ) -> anyhow::Result<()> {
        let StepDone { report, metrics, .. } = *done;
        self.compare(done);
        let step = report.step + 1;
        // In front of the others: what a step left has its proof.
        let completions = is_due(step, self.completions_every).then(|| {
            let records = records(report, &self.writer.spec.codec);
            let parts: Vec<&str> = self.parts.iter().map(AsRef::as_ref).collect();
            RunFolder::completions_file(&records, &parts)
        });
        let metrics_line = serde_json::to_value(metrics)?.to_string();
        let recorded = RecordedHashes {
            metrics: RecordedHashes::of_metrics(&metrics_line, Metrics::is_machine)
                .context("a line of metrics.jsonl is not an object")?,
            completions: completions.as_deref().map(RecordedHashes::of_completions),
        };
        let line = LedgerStep { recorded: Some(recorded), ..report.observed.ledger.clone() };
        self.ledger.append(&line)?;
        self.ledger_step = step.into();
        if let Some(file) = completions {
            self.log.folder.write_completions_file(u64::from(step), &file)?;
        }
        self.log.line(metrics)?;
        if report.learned.corrected == Some(true) && !self.was_corrected {
            self.was_corrected = true;
            self.monitor.say(&format!(
                "step {step}: sampler and trainer differ by more than sampler_check.tolerance, so tokens are importance-weighted; `sampling/corrected` in metrics.jsonl marks such steps"
            ));
        }
        self.triggers(step, done.triggers)?;
        if let Some(ReferenceChange { mix, weights }) =
            report.observed.ledger.reference_changed.clone()
        {
            self.event(step, EventKind::Reference { mix, weights })?;
        }
        self.steps_done = step;
        if self.is_checkpoint_due(done) {
            self.checkpoint(training, done.is_best)?;
        }
        self.monitor.step(report, metrics);
        Ok(())
    }
}

impl TrainObserver<Policy> for Observer {
    fn step(&mut self, done: &StepDone<'_>, training: &Training<Policy>) -> Result<(), TrainError> {
        self.completed(done, training).map_err(observer_error)
    }

    fn failed(&mut self, triggers: &[GuardTrigger]) -> Result<(), TrainError> {
        self.triggers(self.steps_done, triggers).map_err(observer_error)
    }

    fn records(&self, step: u32) -> bool {
        is_due(step + 1, self.completions_every)
    }
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

//! Records and displays the progress of a training run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use grpo_data::Sample;
use grpo_model::Policy;
use grpo_rewards::PartName;
use grpo_run::{
    BestTable, ChainWriter, EventKind, LedgerStep, RecordedHashes, ReferenceChange, RunFolder,
    sha256_of_manifest,
};
use grpo_task::checkpoint;
use grpo_task::generate::ids_without_token;
use grpo_task::models::Writer;
use grpo_task::output::is_quiet;
use grpo_task::run_log::{Line, RunLog, observer_error, resumed};
use grpo_task::task::BestFiles;
use grpo_train::{
    Ending, GuardAction, GuardTrigger, SamplerCheck, StepDone, StepReport, TrainError,
    TrainObserver, Training,
};

use super::step_scores::{StepScores, StepSize, WithoutScore, not_counted, step_scores};
use crate::inspect::recorded::records;
use crate::inspect::recorded_steps::RecordedSteps;
use crate::inspect::run_reward::resume_command;
use crate::train::dashboard::Monitor;
use crate::train::session::Session;

/// Display options and the stop flag of a training run.
pub(crate) struct Show {
    pub(crate) plain: bool,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Writes metrics, completions and checkpoints, and updates the progress display.
pub(super) struct Observer {
    pub(super) log: RunLog,
    pub(super) ledger: ChainWriter,
    /// Step of the last ledger line.
    pub(super) ledger_step: u64,
    /// Names of the reward components.
    pub(super) parts: Vec<PartName>,
    pub(super) monitor: Monitor,
    pub(super) completions_every: u32,
    pub(super) steps: u32,
    pub(super) steps_done: u32,
    /// Whether a guard may roll the run back.
    pub(super) can_roll_back: bool,
    /// Whether each step updates the policy more than once.
    pub(super) has_several_updates: bool,
    pub(super) writer: Writer,
    /// Previously recorded steps that are now repeated.
    pub(super) earlier: RecordedSteps,
    /// Whether an earlier step needed a correction for sampler mismatch.
    pub(super) was_corrected: bool,
    /// How the best completions are written.
    best: Option<BestFiles>,
    /// The command that resumes the run.
    resume: String,
    /// Whether an earlier step had completions without a reward.
    had_gaps: bool,
    /// Whether an earlier step sampled ids without a token.
    had_ids_without_token: bool,
    /// Why the reward gave no score for any completion that it had to score so far.
    pub(super) without_score: WithoutScore,
}

/// Returns whether the run was killed during its last roll-back, after the checkpoint at step
/// `done` was replaced.
fn is_rolling_back(folder: &RunFolder, done: u64, roll_backs: u32) -> anyhow::Result<bool> {
    let last = folder.read_events()?.pop();
    Ok(last.is_some_and(|event| match event.what {
        EventKind::RolledBack { number, .. } => event.step == done && number == roll_backs,
        _ => false,
    }))
}

impl Observer {
    /// Creates an observer for the remaining steps.
    pub(super) fn new(session: &mut Session, show: Show) -> anyhow::Result<Self> {
        let Session { folder, file, training, writer, earlier, .. } = session;
        let done = u64::from(training.steps());
        let guards = file.grpo().guards();
        let (save, train) = (&file.settings.save, &file.trainer.train);
        let title = format!("grpo train  {}", folder.path().display());
        let monitor =
            Monitor::new(&title, u64::from(train.steps), show.plain || is_quiet(), show.stop);
        let (steps_done, roll_backs) = (training.steps(), training.roll_backs());
        let is_rolling_back = session.is_resumed && is_rolling_back(folder, done, roll_backs)?;
        if session.is_resumed {
            folder.restore_aside(roll_backs)?;
        }
        let is_resumed = session.is_resumed && !is_rolling_back;
        let (section, described) = (save.checkpoints(), file.extensions.metrics());
        let (log, lines) = RunLog::open(folder, done, roll_backs, section, is_resumed, described)?;
        let ledger = folder.ledger_from(done + 1)?;
        let size = StepSize {
            completions: train.prompts_per_step as usize * train.group_size,
            scores_invalid: training.grpo().rewards().scores_invalid(),
        };
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
            best: session.tasks.best_files(&session.writer.spec.codec),
            resume: resume_command("train", session.folder.path(), &session.file),
            had_gaps: false,
            had_ids_without_token: false,
            without_score: WithoutScore::of_recorded(&lines, size, training.has_scored()),
        };
        observer.begin_at(done, &lines)?;
        if is_rolling_back {
            observer.finish_roll_back(done)?;
            observer.event(steps_done, resumed())?;
        }
        Ok(observer)
    }

    /// Completes a roll-back to `step`, whose checkpoint has been written: removes later
    /// checkpoints, then records the checkpoint event that ends the roll-back.
    fn finish_roll_back(&mut self, step: u64) -> anyhow::Result<()> {
        let folder = self.log.folder.clone();
        folder.remove_checkpoints_after(step)?;
        let checkpoints = folder.checkpoints()?;
        let restored = checkpoints.iter().find(|checkpoint| checkpoint.step == step);
        let restored = restored.context("the checkpoint of the roll-back is missing")?;
        let manifest = sha256_of_manifest(&restored.path)?;
        let kept = folder.kept_checkpoints(usize::MAX, &[], None)?;
        self.anchor()?;
        self.log.checkpointed(step, manifest, false, kept)
    }

    /// Resets the display to `done` steps. Recorded completions of later steps are deleted, as they
    /// will be written again.
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

    /// Saves the trained weights in the subfolder `kind` of the run. The event is written first, so
    /// a folder without an event was not written by the run.
    pub(super) fn save(&mut self, training: &Training<Policy>, kind: &str) -> anyhow::Result<()> {
        self.write_best(training, true)?;
        self.anchor()?;
        let (run, writer) = (self.log.folder.clone(), self.writer.clone());
        writer.save(&run, kind, training.policy(), |manifest| {
            self.log.saved(training.steps().into(), kind, manifest)
        })
    }

    /// Syncs the ledger to disk so that subsequent events contain the hash of its last line.
    pub(super) fn anchor(&mut self) -> anyhow::Result<()> {
        self.ledger.check()?;
        self.ledger.sync()?;
        if self.ledger_step > 0 {
            self.log.anchor(self.ledger_step, &self.ledger);
        }
        Ok(())
    }

    /// Checks that the files that grow are still those that the run writes.
    pub(super) fn check_files(&self) -> anyhow::Result<()> {
        self.ledger.check()?;
        self.log.check_files()
    }

    /// Saves an interrupted run and prints how to resume it. If an evaluation was interrupted, its
    /// step is not recorded yet, and the run will resume from the previous checkpoint.
    pub(super) fn interrupted(&mut self, training: &Training<Policy>) -> anyhow::Result<()> {
        let steps = self.steps_done;
        if training.steps() == steps {
            self.checkpoint(training, false)?;
        }
        self.log.interrupted([steps.into(), self.steps.into()], &self.resume)
    }

    /// Rolls the run back and continues with the given settings. Returns whether a suitable
    /// checkpoint was found.
    ///
    /// The metrics of a step describe the policy that sampled it, which is the policy after the
    /// previous step, and the policies between the step's updates. The run therefore returns to the
    /// newest checkpoint that predates the policies described by the metrics of step `since`. If
    /// that checkpoint was also the target of the last roll-back, an earlier one is used, or the
    /// initial policy.
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
        // If the run is killed before this checkpoint is written, resuming triggers the same
        // roll-back again. Afterwards, resuming starts from this checkpoint, because it counts more
        // roll-backs than the later ones.
        checkpoint::write(&self.log.folder, &self.writer, training, &mut |_, _| Ok(()))?;
        self.ledger = self.log.folder.ledger_from(step + 1)?;
        self.ledger_step = step;
        let lines = self.log.go_back(step)?;
        self.begin_at(step, &lines)?;
        self.finish_roll_back(step)?;
        self.steps_done = training.steps();
        self.earlier = RecordedSteps::default();
        self.monitor.say(&format!(
            "rolled back  to step {step}; from now on, learning rates are multiplied by {learning_rate_factor} and the KL penalty by {kl_coef}; discarded files are in {}",
            aside.display()
        ));
        Ok(true)
    }

    /// Records and prints triggered guards.
    pub(super) fn triggers(&mut self, step: u32, triggers: &[GuardTrigger]) -> anyhow::Result<()> {
        for trigger in triggers {
            let line = self.log.guard(step.into(), trigger)?;
            self.monitor.say(&line);
        }
        Ok(())
    }

    /// Writes a checkpoint of the current state and removes outdated ones.
    pub(super) fn checkpoint(
        &mut self,
        training: &Training<Policy>,
        best: bool,
    ) -> anyhow::Result<()> {
        let of_best = training.best_evaluation();
        let best_step = of_best.iter().map(|(step, _)| u64::from(*step));
        // The initial checkpoint is a safe target for roll-backs.
        let besides: Vec<u64> = best_step.chain(self.can_roll_back.then_some(0)).collect();
        self.anchor()?;
        let writer = &self.writer;
        self.log.checkpoint(best, &besides, |run, announce| {
            checkpoint::write(run, writer, training, announce)
        })?;
        self.write_best(training, false)
    }

    /// Writes the best completions so far to `best.csv`, and at the end to the file of the task.
    fn write_best(&self, training: &Training<Policy>, is_end: bool) -> anyhow::Result<()> {
        let Some((files, best)) = self.best.as_ref().zip(training.best_samples()) else {
            return Ok(());
        };
        let table = BestTable {
            column: files.column.to_owned(),
            parts: self.parts.iter().map(ToString::to_string).collect(),
            samples: best.samples().to_vec(),
        };
        self.log.folder.write_best(&table)?;
        if is_end {
            let (name, contents) = files.other;
            self.log.folder.write_file(name, contents(&table).as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn is_checkpoint_due(&self, done: &StepDone<'_>) -> bool {
        let step = done.report.step + 1;
        if matches!(done.ending, Some(Ending::RollBack { .. })) {
            return false;
        }
        let is_end = step == self.steps || done.ending.is_some();
        self.log.is_checkpoint_due(step.into()) || is_end || done.is_best
    }

    /// Compares a repeated step with its recorded version.
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
        // The ledger line is written first, so that it covers every file of the step.
        let completions = is_due(step, self.completions_every).then(|| {
            let records = records(report, &self.writer.spec.codec);
            let parts: Vec<&str> = self.parts.iter().map(AsRef::as_ref).collect();
            RunFolder::completions_file(&records, &parts)
        });
        let metrics_line = serde_json::to_value(metrics)?.to_string();
        let recorded = RecordedHashes {
            metrics: RecordedHashes::of_metrics(&metrics_line, |name| metrics.is_of_machine(name))
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
                "step {step}: sampler and trainer differ by more than {} nats, so tokens are importance-weighted; `sampling/corrected` in metrics.jsonl marks such steps",
                SamplerCheck::TOLERANCE
            ));
        }
        let scores_invalid = training.grpo().rewards().scores_invalid();
        self.without_score.observe(report, scores_invalid);
        if let Some(gaps) = gaps(report, scores_invalid).filter(|_| !self.had_gaps) {
            self.had_gaps = true;
            self.monitor.say(&format!("warning      step {step}: {gaps}"));
        }
        if !self.had_ids_without_token
            && let Some(without) = ids_without_token(&report.groups, &self.writer.spec.codec)
        {
            self.had_ids_without_token = true;
            self.monitor.say(&format!("warning      step {step}: {without}"));
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

/// Describes the completions of a step for which the reward failed, or that it scored none of those that
/// it had to score.
fn gaps(report: &StepReport, scores_invalid: bool) -> Option<String> {
    let all = report.samples().count();
    let mut failures = report.samples().filter_map(Sample::failure);
    if let Some(reason) = failures.next() {
        let failed = 1 + failures.count();
        return Some(format!(
            "the reward failed for {failed} of {all} completions, which have no reward; first reason: {reason}"
        ));
    }
    let calls = report.observed.calls.as_ref();
    if let Some((calls, reason)) = calls.and_then(|calls| Some((calls, calls.reason.as_ref()?))) {
        return Some(format!(
            "the reward failed for {} of {all} completions, which are left out (on_failure = \"abstain\"); first reason: {reason}",
            calls.left_out
        ));
    }
    let StepScores::NoneScored(due) = step_scores(report, scores_invalid) else { return None };
    Some(match due {
        _ if due == all => {
            format!("none of the {all} completions has a reward, so nothing was learned from them")
        }
        1 => format!(
            "the only valid completion received no reward{}, so nothing was learned from this step",
            not_counted(all - 1)
        ),
        _ => format!(
            "none of the {due} valid completions received a reward{}, so nothing was learned from this step",
            not_counted(all - due)
        ),
    })
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

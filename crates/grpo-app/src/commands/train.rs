//! `grpo train`: GRPO from a model folder, or from where a run was interrupted, with a look before and after.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use grpo_model::Policy;
use grpo_rewards::PartName;
use grpo_run::{ChainWriter, EventKind, LedgerStep, RecordedHashes, ReferenceChange, RunFolder};
use grpo_train::{
    Ending, GuardAction, Metrics, StepDone, TrainError, TrainObserver, Training, Trip,
};
use serde_json::Value;

use crate::args::TrainArguments;
use crate::dashboard::Monitor;
use crate::earlier::Earlier;
use crate::interrupt::{Deferred, Interrupted};
use crate::look::{comparison, examples};
use crate::models::Writer;
use crate::output::{say, say_checked, sentence};
use crate::recorded::records;
use crate::run_log::{Line, RunLog, observer_error};
use crate::session::Session;
use crate::task::Tasks;
use crate::train_file::TrainFile;
use crate::train_settings::TrainSettings;
use crate::{checkpoint, interrupt};

pub(crate) fn run(arguments: &TrainArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let TrainArguments { run, verify, plain } = arguments;
    // Clap asks for nothing that another argument excludes.
    anyhow::ensure!(
        !verify || run.resume.is_some(),
        "--verify goes with --resume RUN: a new run has nothing that could be verified"
    );
    if let (true, Some(configuration)) = (run.check, &run.config) {
        let loaded = TrainFile::read(configuration, &run.set, tasks)?;
        loaded.value.check(&loaded.origin)?;
        say_checked(configuration);
        return Ok(());
    }
    let flag = interrupt::flag()?;
    let stop = Arc::clone(&flag);
    let mut session = match &run.resume {
        Some(earlier) => Session::resume(earlier, *tasks, *verify, flag)?,
        None => Session::begin(run, *tasks, flag)?,
    };
    complete(&mut session, Show { plain: *plain, stop })
}

/// All that is left of a run, with what is said and written at its end.
pub(crate) fn complete(session: &mut Session, show: Show) -> anyhow::Result<()> {
    let deferred = Deferred::new();
    let mut observer = Observer::new(session, show)?;
    if session.is_resumed {
        observer.event(session.training.steps(), EventKind::Resumed {})?;
    }
    if observer.can_roll_back && session.training.steps() == 0 {
        observer.checkpoint(&session.training, false)?;
    }
    let trained = train(session, &mut observer);
    observer.monitor.finish();
    match trained {
        Ok(ending) => finish(session, &mut observer, &ending, deferred),
        Err(error) => Err(ended_early(session, &mut observer, error)),
    }
}

/// All steps, those among them that are done again after the run went back.
fn train(session: &mut Session, observer: &mut Observer) -> anyhow::Result<Ending> {
    loop {
        let Session { training, prompts, file, .. } = &mut *session;
        let per_step = file.train.prompts_per_step;
        let ending = training
            .run(|step| prompts.of_step(step, per_step).map_err(observer_error), observer)?;
        let Ending::RollBack { since, learning_rate_factor, kl_coef_factor, message } = ending
        else {
            return Ok(ending);
        };
        if training.roll_backs() >= file.train.max_roll_backs {
            let message = format!(
                "{message}; the run went back {} times already (train.max_roll_backs)",
                training.roll_backs()
            );
            return Ok(Ending::Stopped { message });
        }
        let factor = training.learning_rate_factor() * learning_rate_factor;
        let kl_coef = training.kl_coef() * kl_coef_factor;
        if !observer.roll_back(training, since, factor, kl_coef)? {
            let message = format!(
                "{message}; no checkpoint of a policy before that of step {since} is left to go back to: lower the learning rate, or keep more checkpoints (save.keep_last, save.every)"
            );
            return Ok(Ending::Stopped { message });
        }
    }
}

/// What was learned before a failure is not lost; what cannot be saved is named behind the training's reason.
fn ended_early(session: &Session, observer: &mut Observer, error: anyhow::Error) -> anyhow::Error {
    let Session { training, folder, writer, kind, file, .. } = session;
    let reason = sentence(&error);
    let mut saved = vec![observer.event(training.steps(), EventKind::Stopped { reason })];
    // Of a step that is written down as well, and whole.
    if training.is_between_steps() && observer.steps_done == training.steps() {
        saved.push(observer.checkpoint(training, false));
    }
    let written = writer.save(&folder.path().join(kind), training.policy());
    saved.push(written.and_then(|()| observer.saved(training.steps(), kind)));
    let mut error = error;
    if let Some(lost) = saved.into_iter().find_map(Result::err) {
        error = error.context(format!("not all of it could be saved: {}", sentence(&lost)));
    }
    error.context(format!("the training of {} ended early", file.run.display()))
}

/// Says and writes what there is at the end. From the last save on, a signal ends the program.
fn finish(
    session: &Session,
    observer: &mut Observer,
    ending: &Ending,
    deferred: Deferred,
) -> anyhow::Result<()> {
    let Session { training, folder, writer, kind, file, before, .. } = session;
    let steps = training.steps();
    let best = best_evaluation(session)?;
    if let (Some(best), false) = (&best, matches!(ending, Ending::Interrupted)) {
        observer.event(steps, best.clone())?;
    }
    let ended = match ending {
        Ending::Finished => EventKind::Finished {},
        Ending::NoGain { step, best: (best, reward) } => {
            let reason = format!(
                "no evaluation up to step {step} was better than that after step {best}, with a mean reward of {reward:.4}"
            );
            say(format_args!("stopped      {reason}"));
            EventKind::Stopped { reason }
        }
        Ending::Stopped { message } => EventKind::Stopped { reason: message.clone() },
        Ending::RollBack { .. } => unreachable!("`train` goes back by itself"),
        Ending::Interrupted => {
            observer.interrupted(training)?;
            return Err(Interrupted.into());
        }
    };
    let target = folder.path().join(kind);
    writer.save(&target, training.policy())?;
    observer.saved(steps, kind)?;
    // A run that says how it ended has saved what it trained.
    observer.event(steps, ended)?;
    let idle = idle_steps(folder)?;
    if 2 * idle > steps as usize {
        say(format_args!(
            "in {idle} of {steps} steps the rewards of every group were equal, and nothing was learned from them"
        ));
    }
    drop(deferred);
    let after = match training.evaluate() {
        // The signal came in the last step, or now.
        Err(TrainError::Interrupted) => return Err(Interrupted.into()),
        evaluated => evaluated?,
    };
    let (tasks, codec) = (&session.tasks, session.codec());
    say(format_args!("{}", comparison(tasks, codec, before.as_ref(), after.as_ref())));
    if let (Some(before), Some(after), true) = (before, &after, codec.is_text()) {
        let examples = examples(tasks, codec, training.evaluated_prompts(), before, after);
        examples.iter().for_each(|line| say(format_args!("{line}")));
    }
    if let Some(EventKind::Best { best_step, reward, checkpoint }) = best {
        let place = checkpoint.map(|place| format!(": {}", folder.path().join(place).display()));
        let place = place.unwrap_or_default();
        say(format_args!("best         step {best_step}, mean reward {reward:.4}{place}"));
    }
    say(format_args!("{kind:<12} {}", target.display()));
    say(format_args!("metrics      {}", folder.metrics_path().display()));
    match ending {
        Ending::Stopped { message } => anyhow::bail!(
            "a guard ended the training of {} after step {steps} of {}: {message}",
            file.run.display(),
            file.train.steps
        ),
        _ => Ok(()),
    }
}

/// The best evaluation of the run, and the checkpoint that has its policy.
fn best_evaluation(session: &Session) -> anyhow::Result<Option<EventKind>> {
    let Some((step, reward)) = session.training.state().numbers.progress.evaluations.best else {
        return Ok(None);
    };
    let best_step = u64::from(step);
    let kept = session.folder.checkpoints()?;
    let kept = kept.into_iter().find(|checkpoint| checkpoint.step == best_step);
    let place = kept.and_then(|checkpoint| {
        Some(checkpoint.path.strip_prefix(session.folder.path()).ok()?.display().to_string())
    });
    Ok(Some(EventKind::Best { best_step, reward, checkpoint: place }))
}

/// Steps in which no group had a completion that was better than another.
fn idle_steps(folder: &RunFolder) -> anyhow::Result<usize> {
    let is_idle =
        |line: &Line| line.get("frac_reward_zero_std").and_then(Value::as_f64) == Some(1.0);
    Ok(folder.read_metrics()?.iter().filter(|line| is_idle(line)).count())
}

/// How the training is shown, and what ends it.
pub(crate) struct Show {
    pub(crate) plain: bool,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Writes metrics, completions and checkpoints, and moves the bar.
struct Observer {
    log: RunLog,
    ledger: ChainWriter,
    /// The step of its last line.
    ledger_step: u64,
    /// Names of the parts of the reward.
    parts: Vec<PartName>,
    monitor: Monitor,
    completions_every: u32,
    steps: u32,
    steps_done: u32,
    /// Whether a guard may want to go back.
    can_roll_back: bool,
    /// Whether the policy changes between the updates of a step.
    has_several_updates: bool,
    writer: Writer,
    /// What the steps were, where they were done before.
    earlier: Earlier,
    /// Whether a step before had to be corrected for its sampler.
    was_corrected: bool,
}

impl Observer {
    /// Of the steps that are left.
    fn new(session: &mut Session, show: Show) -> anyhow::Result<Self> {
        let Session { folder, file, training, writer, earlier, .. } = session;
        let done = u64::from(training.steps());
        let guards = file.grpo().guards();
        let TrainSettings { save, train, .. } = &**file;
        let title = format!("grpo train  {}", folder.path().display());
        let monitor = Monitor::new(&title, u64::from(train.steps), show.plain, show.stop);
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
    fn begin_at(&mut self, done: u64, lines: &[Line]) -> anyhow::Result<()> {
        self.log.folder.remove_completions_from(done + 1)?;
        if lines.len() as u64 != done {
            self.monitor.say(&format!(
                "warning      metrics.jsonl has {} of the {done} steps before; the others were lost",
                lines.len()
            ));
        }
        self.monitor.begin_at(done, lines);
        Ok(())
    }

    fn event(&mut self, step: u32, what: EventKind) -> anyhow::Result<()> {
        self.anchor()?;
        self.log.event(step.into(), what)
    }

    /// Writes that what was trained was saved in the folder `kind` of the run.
    fn saved(&mut self, step: u32, kind: &str) -> anyhow::Result<()> {
        self.anchor()?;
        self.log.saved(step.into(), kind)
    }

    /// Puts the ledger on the disk, so that the next events have the hash of its last line.
    fn anchor(&mut self) -> anyhow::Result<()> {
        self.ledger.sync()?;
        if self.ledger_step > 0 {
            self.log.anchor(self.ledger_step, &self.ledger);
        }
        Ok(())
    }

    /// Saves a run that ends where it was interrupted, and says how it is resumed. An evaluation that was interrupted belongs
    /// to a step that is not recorded: the run then resumes from the checkpoint before it.
    fn interrupted(&mut self, training: &Training<Policy>) -> anyhow::Result<()> {
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
    fn roll_back(
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
        self.event(
            training.steps(),
            EventKind::RolledBack { number, from_step, learning_rate_factor, kl_coef },
        )?;
        // Until this is written, a killed run comes here again by itself. From then on it begins at this one, which has
        // gone back more often than the newer ones.
        let written = checkpoint::write(&self.log.folder, &self.writer, training)?;
        self.log.folder.remove_checkpoints_after(step)?;
        self.ledger = self.log.folder.ledger_from(step + 1)?;
        self.ledger_step = step;
        self.anchor()?;
        let lines = self.log.go_back(step)?;
        self.begin_at(step, &lines)?;
        // The last word of going back: without it, a killed run was in the middle of it.
        let kept = self.log.folder.kept_checkpoints(usize::MAX, &[])?;
        self.log.checkpointed(&written, false, kept)?;
        self.steps_done = training.steps();
        self.earlier = Earlier::default();
        self.monitor.say(&format!(
            "rolled back  to step {step}; learning rates are multiplied by {learning_rate_factor}, the KL penalty by {kl_coef} from now on; what was undone is in {}",
            aside.display()
        ));
        Ok(true)
    }

    /// Says what guards saw.
    fn trips(&mut self, step: u32, trips: &[Trip]) -> anyhow::Result<()> {
        for trip in trips {
            let line = self.log.guard(step.into(), trip)?;
            self.monitor.say(&line);
        }
        Ok(())
    }

    /// Writes the checkpoint of this moment, and removes those that are not kept.
    fn checkpoint(&mut self, training: &Training<Policy>, best: bool) -> anyhow::Result<()> {
        let of_best = training.state().numbers.progress.evaluations.best;
        let best_step = of_best.iter().map(|(step, _)| u64::from(*step));
        // The beginning is known to be good.
        let besides: Vec<u64> = best_step.chain(self.can_roll_back.then_some(0)).collect();
        self.anchor()?;
        let writer = &self.writer;
        self.log.checkpoint(best, &besides, |run| checkpoint::write(run, writer, training))
    }

    fn is_checkpoint_due(&self, done: &StepDone<'_>) -> bool {
        let step = done.report.step + 1;
        if matches!(done.ending, Some(Ending::RollBack { .. })) {
            return false;
        }
        let is_end = step == self.steps || done.ending.is_some();
        self.log.is_checkpoint_due(step.into()) || is_end || done.is_best
    }

    /// Where the step was done before, whether it is what it was.
    fn compare(&mut self, done: &StepDone<'_>) {
        match self.earlier.check(done.metrics, &done.report.observed.ledger) {
            Ok(_) => {}
            Err(fault) => self.monitor.say(&format!("warning      {fault}")),
        }
    }

    fn completed(
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
                .context("a line of metrics.jsonl has names and numbers")?,
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
                "step {step}: the sampler is further from the trainer than sampler_check.tolerance, and its tokens are weighed; `sampling/corrected` in metrics.jsonl marks such steps"
            ));
        }
        self.trips(step, done.trips)?;
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

    fn failed(&mut self, trips: &[Trip]) -> Result<(), TrainError> {
        self.trips(self.steps_done, trips).map_err(observer_error)
    }

    fn records(&self, step: u32) -> bool {
        is_due(step + 1, self.completions_every)
    }
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

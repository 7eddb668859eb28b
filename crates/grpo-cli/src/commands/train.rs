//! `grpo train`: GRPO from a model folder, or from where a run was interrupted, with a look before and after.

use std::time::{Duration, Instant};

use anyhow::Context;
use grpo_model::Policy;
use grpo_run::{Event, EventKind, JsonLinesWriter, RunFolder, TensorBoard};
use grpo_train::{Ending, Metrics, StepDone, TrainError, TrainObserver, Training};
use serde_json::{Map, Value};

use crate::args::TrainArguments;
use crate::earlier::Earlier;
use crate::interrupt::Interrupted;
use crate::look::{Seen, comparison};
use crate::models::Writer;
use crate::output::{Progress, say};
use crate::recorded::records;
use crate::run_files::observer_error;
use crate::session::Session;
use crate::train_file::{SaveSection, TrainFile};
use crate::{checkpoint, config, interrupt};

pub(crate) fn run(arguments: &TrainArguments) -> anyhow::Result<()> {
    // Clap asks for nothing that another argument excludes.
    anyhow::ensure!(
        !arguments.verify || arguments.resume.is_some(),
        "--verify goes with --resume RUN: a new run has nothing that could be verified"
    );
    let flag = interrupt::flag()?;
    let mut session = match (&arguments.resume, &arguments.config) {
        (Some(run), _) => Session::resume(run, arguments.verify, flag)?,
        (None, configuration) => {
            let configuration = configuration.as_ref().context("which configuration?")?;
            Session::begin(arguments, configuration, flag)?
        }
    };
    let mut observer = Observer::new(&mut session, arguments.verify)?;
    if session.is_resumed {
        observer.event(session.training.steps(), EventKind::Resumed {})?;
    }
    let Session { training, prompts, file, .. } = &mut session;
    let per_step = file.train.prompts_per_step;
    let trained = training.run(|step| prompts.of_step(step, per_step), &mut observer);
    observer.progress.finish();
    let ending = match trained {
        Ok(ending) => ending,
        Err(error) => return Err(ended_early(&session, &mut observer, error)),
    };
    finish(&session, &mut observer, &ending)
}

/// What was learned before a failure is not lost; where saving fails too, the training's reason is the one to know.
fn ended_early(session: &Session, observer: &mut Observer, error: TrainError) -> anyhow::Error {
    let Session { training, folder, writer, kind, file, .. } = session;
    let reason = error.to_string();
    let _lost = observer.event(training.steps(), EventKind::Stopped { reason });
    if training.is_between_steps() {
        let _lost = observer.checkpoint(training, false);
    }
    let _lost = writer.save(&folder.path().join(kind), training.policy());
    anyhow::Error::new(error).context(format!("the training of {} ended early", file.run.display()))
}

/// Says and writes what there is at the end.
fn finish(session: &Session, observer: &mut Observer, ending: &Ending) -> anyhow::Result<()> {
    let Session { training, folder, writer, kind, file, before, .. } = session;
    let steps = training.steps();
    match ending {
        Ending::Finished => observer.event(steps, EventKind::Finished {})?,
        Ending::NoGain { step, best: (best, reward) } => {
            let reason = format!(
                "no evaluation up to step {step} was better than that after step {best}, with a mean reward of {reward:.4}"
            );
            say(format_args!("stopped      {reason}"));
            observer.event(steps, EventKind::Stopped { reason })?;
        }
        Ending::Interrupted => {
            observer.checkpoint(training, false)?;
            observer.event(steps, EventKind::Interrupted {})?;
            say(format_args!(
                "interrupted  after step {steps} of {}; `grpo train --resume {}` goes on",
                file.train.steps,
                folder.path().display()
            ));
            return Err(Interrupted.into());
        }
    }
    let target = folder.path().join(kind);
    writer.save(&target, training.policy())?;
    let idle = idle_steps(folder)?;
    if 2 * idle > steps as usize {
        say(format_args!(
            "in {idle} of {steps} steps the rewards of every group were equal, and nothing was learned from them"
        ));
    }
    let after = training.evaluate()?;
    let seen = |evaluated| Seen::of(session.codec(), evaluated);
    say(format_args!("{}", comparison(&seen(before.as_ref()), &seen(after.as_ref()))));
    if let Some((step, reward)) = training.state().numbers.evaluations.best {
        say(format_args!("best         step {step}, mean reward {reward:.4}"));
    }
    say(format_args!("{kind:<12} {}", target.display()));
    say(format_args!("metrics      {}", folder.metrics_path().display()));
    Ok(())
}

/// Steps in which no group had a completion that was better than another.
fn idle_steps(folder: &RunFolder) -> anyhow::Result<usize> {
    let is_idle = |line: &Map<String, Value>| {
        line.get("frac_reward_zero_std").and_then(Value::as_f64) == Some(1.0)
    };
    Ok(folder.read_metrics()?.iter().filter(|line| is_idle(line)).count())
}

/// Writes metrics, completions and checkpoints, and moves the bar.
struct Observer {
    ledger: JsonLinesWriter,
    metrics: JsonLinesWriter,
    events: JsonLinesWriter,
    tensorboard: TensorBoard,
    /// Names of the parts of the reward.
    parts: Vec<&'static str>,
    progress: Progress,
    folder: RunFolder,
    save: SaveSection,
    steps: u32,
    writer: Writer,
    /// What the steps were, where they were done before; and whether another result ends the run.
    earlier: Earlier,
    must_be_equal: bool,
    /// The last checkpoint.
    saved: Instant,
    /// Whether a step before had to be corrected for its sampler.
    was_corrected: bool,
}

impl Observer {
    /// Of the steps that are left.
    fn new(session: &mut Session, must_be_equal: bool) -> anyhow::Result<Self> {
        let Session { folder, file, training, writer, earlier, .. } = session;
        let done = u64::from(training.steps());
        let TrainFile { save, train, .. } = file;
        let progress = Progress::new(u64::from(train.steps));
        progress.begin_at(done);
        // What was written after that moment is written again.
        let metrics = folder.metrics_from(done + 1)?;
        folder.remove_completions_from(done + 1)?;
        Ok(Self {
            ledger: folder.ledger_from(done + 1)?,
            metrics,
            tensorboard: TensorBoard::rebuild(folder, &folder.read_metrics()?)?,
            parts: file.reward.build()?.parts(),
            events: folder.events()?,
            progress,
            folder: folder.clone(),
            save: save.clone(),
            steps: train.steps,
            writer: writer.clone(),
            earlier: std::mem::take(earlier),
            must_be_equal,
            saved: Instant::now(),
            was_corrected: false,
        })
    }

    fn event(&mut self, step: u32, what: EventKind) -> anyhow::Result<()> {
        let event = Event { step: u64::from(step), at: config::now(), what };
        Ok(self.events.append(&event)?)
    }

    /// Writes the checkpoint of this moment, and removes those that are not kept.
    fn checkpoint(&mut self, training: &Training<Policy>, best: bool) -> anyhow::Result<()> {
        checkpoint::write(&self.folder, &self.writer, training)?;
        self.saved = Instant::now();
        let of_best = training.state().numbers.evaluations.best;
        let besides: Vec<u64> = of_best.iter().map(|(step, _)| u64::from(*step)).collect();
        self.folder.keep_checkpoints(self.save.keep_last, &besides)?;
        self.event(training.steps(), EventKind::Checkpoint { best })
    }

    fn is_checkpoint_due(&self, done: &StepDone<'_>) -> bool {
        let step = done.report.step + 1;
        let minutes = self.save.every_minutes;
        let is_time =
            minutes > 0.0 && self.saved.elapsed() > Duration::from_secs_f64(60.0 * minutes);
        let is_end = step == self.steps || done.ending.is_some();
        is_due(step, self.save.every) || is_time || is_end || done.is_best
    }

    /// Where the step was done before, whether it is what it was.
    fn compare(&self, done: &StepDone<'_>) -> anyhow::Result<()> {
        let step = u64::from(done.report.step) + 1;
        match self.earlier.check(step, done.metrics) {
            Ok(false) => {}
            Ok(true) if self.must_be_equal => {
                self.progress.say(&format!("verified     step {step} is what it was"));
            }
            Ok(true) => {}
            Err(fault) if self.must_be_equal => anyhow::bail!(fault),
            Err(fault) => self.progress.say(&format!("warning      {fault}")),
        }
        Ok(())
    }
}

impl TrainObserver<Policy> for Observer {
    fn step(&mut self, done: &StepDone<'_>, training: &Training<Policy>) -> Result<(), TrainError> {
        let StepDone { report, metrics, .. } = *done;
        self.compare(done).map_err(observer_error)?;
        let step = report.step + 1;
        if is_due(step, self.save.completions_every) {
            let records = records(report, &self.writer.spec.codec);
            self.folder
                .write_completions(u64::from(step), &records, &self.parts)
                .map_err(observer_error)?;
        }
        // In front of the metrics: a step with metrics has its proof.
        self.ledger.append(&report.ledger).map_err(observer_error)?;
        self.metrics.append(metrics).map_err(observer_error)?;
        self.tensorboard.append(&line(metrics)).map_err(observer_error)?;
        if report.corrected == Some(true) && !self.was_corrected {
            self.was_corrected = true;
            self.progress.say(&format!(
                "step {step}: the sampler is further from the trainer than sampler_check.tolerance, and its tokens are weighed; `sampling/corrected` in metrics.jsonl marks such steps"
            ));
        }
        if self.is_checkpoint_due(done) {
            self.checkpoint(training, done.is_best).map_err(observer_error)?;
        }
        let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        let valid = metrics.get("rewards/valid/mean").map(|valid| format!("  valid {valid:.2}"));
        self.progress.step(format!(
            "reward {:.3}{}  KL {:.3}  {:.0} tokens/s",
            value("reward"),
            valid.unwrap_or_default(),
            value("kl"),
            value("tokens_per_second"),
        ));
        Ok(())
    }

    fn records(&self, step: u32) -> bool {
        is_due(step + 1, self.save.completions_every)
    }
}

/// As it stands in `metrics.jsonl`.
fn line(metrics: &Metrics) -> Map<String, Value> {
    match serde_json::to_value(metrics) {
        Ok(Value::Object(line)) => line,
        other => panic!("metrics are names and numbers: {other:?}"),
    }
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

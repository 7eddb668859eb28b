//! `grpo train`: trains with GRPO, starting from a model folder or resuming a run. The policy is
//! evaluated before and after training.

mod finished;
mod follower;
mod next_steps;
mod observer;
mod step_scores;

use std::sync::Arc;

use grpo_data::counted;
use grpo_run::{EndedBy, EventKind, RunFolder};
use grpo_runtime::Ranks;
use grpo_task::interrupt;
use grpo_task::interrupt::{Deferred, Interrupted, leaves_behind};
use grpo_task::models::unfinished_run;
use grpo_task::output::{say, say_checked, sentence};
use grpo_task::phase::Phase;
use grpo_task::run_log::{Line, observer_error};
use grpo_task::task::Tasks;
use grpo_train::{Ending, Evaluated, TrainError};
use serde_json::Value;

use crate::args::TrainArguments;
use crate::inspect::run_reward::{resume_command, say_how_to_resume};
use crate::train::before_after::{best_samples, comparison, examples, has_prompts, recorded};
use crate::train::ranks;
use crate::train::ranks::Restored;
use crate::train::session::{Resume, Session};
use crate::train_file::TrainFile;
use finished::Finished;
use next_steps::next_steps;
use observer::Observer;
pub(crate) use observer::Show;
pub(crate) use step_scores::{StepScores, all_due};

pub(crate) fn run(arguments: &TrainArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let TrainArguments { run, verify, rollout_url, run_reward, rank_time_limit, .. } = arguments;
    // Clap ignores `requires` if the required argument conflicts with a present one.
    anyhow::ensure!(
        !verify || run.resume.is_some(),
        "--verify requires --resume RUN; a new run has no recorded steps to verify"
    );
    anyhow::ensure!(
        rollout_url.is_empty() || run.resume.is_some(),
        "--rollout-url requires --resume RUN; for a new run, use --set rollout.url=URL"
    );
    anyhow::ensure!(
        !run_reward || run.resume.is_some(),
        "--run-reward requires --resume RUN; a new run always runs the reward of its configuration"
    );
    let ranks = ranks::connect(*rank_time_limit)?;
    let trained = train_on(&ranks, arguments, tasks);
    if ranks.is_alone() {
        return trained;
    }
    match &trained {
        Err(error) if !error.is::<Interrupted>() => ranks::give_up(&ranks, error),
        // The others wait until the first rank has saved everything.
        _ => ranks.wait_for_all()?,
    }
    trained
}

fn train_on(ranks: &Ranks, arguments: &TrainArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let &TrainArguments { ref run, verify, ref rollout_url, run_reward, plain, .. } = arguments;
    anyhow::ensure!(
        !verify || ranks.is_alone(),
        "--verify runs in one process; start it without mpirun (results do not depend on the number of processes)"
    );
    if run.check {
        let configuration = run.configuration()?;
        let loaded = TrainFile::read(configuration, &run.set, tasks)?;
        loaded.value.check(&loaded.origin)?;
        loaded.value.trained()?;
        let of_data = loaded.value.data.as_ref();
        let thinking =
            of_data.map(|data| data.check_thinking(&loaded.value.settings.model)).transpose()?;
        let folder = run.run.as_ref().unwrap_or(&loaded.value.settings.run);
        say_checked(configuration, folder, run.force, loaded.value.inputs())?;
        if let Some(note) = thinking.flatten() {
            say(format_args!("note         {note}"));
        }
        for (_, input) in loaded.value.inputs() {
            if let Some(warning) = unfinished_run(input) {
                say(format_args!("note         {warning}"));
            }
        }
        for problem in loaded.value.missing_files(configuration) {
            say(format_args!("note         {problem}"));
        }
        if let Some(incomplete) =
            loaded.value.trainer.schedule.incomplete_warmup(loaded.value.trainer.train.steps)
        {
            say(format_args!("note         {incomplete}"));
        }
        for setting in loaded.value.grpo().unusual_settings()? {
            say(format_args!("note         unusual: {setting}"));
        }
        if let Some(note) = loaded.value.learning_rate_note() {
            say(format_args!("note         {note}"));
        }
        return Ok(());
    }
    let finished = match &run.resume {
        Some(earlier) if ranks.is_first() => Finished::of(earlier, tasks),
        _ => None,
    };
    if let (Some(earlier), false) = (&run.resume, verify) {
        if let Some(finished) = &finished {
            finished.check(earlier, tasks)?;
        }
        if ranks.from_first(ranks.is_first().then_some(finished.is_some()))? {
            return Ok(());
        }
    }
    let flag = interrupt::flag()?;
    // `mpirun` passes this signal on. It ends the ranks itself on Ctrl-C.
    #[cfg(unix)]
    if !ranks.is_alone() {
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&flag))?;
    }
    if !ranks.is_first() {
        return follower::follow(arguments, tasks, flag, ranks);
    }
    let stop = Arc::clone(&flag);
    let mut session = match &run.resume {
        Some(earlier) => {
            let is_finished = finished.is_some();
            let resume = Resume { run: earlier, verify, is_finished, rollout_url, run_reward };
            let session = Session::resume(&resume, *tasks, flag, ranks)?;
            if let Some(finished) = finished {
                finished.say();
                return Ok(());
            }
            session
        }
        None => Session::begin(run, *tasks, flag, ranks)?,
    };
    complete(&mut session, Show { plain, stop })
}

/// Trains to the end, then evaluates the policy and reports the result.
pub(crate) fn complete(session: &mut Session, show: Show) -> anyhow::Result<()> {
    let deferred = Deferred::new();
    let mut observer = match Observer::new(session, show) {
        Ok(observer) => observer,
        Err(error) => {
            say_how_to_resume(&session.folder, &session.file, None);
            let run = session.folder.path().display();
            return Err(error.context(format!("training run {run} ended early")));
        }
    };
    let trained = write_missing_checkpoint(session, &mut observer)
        .and_then(|()| train(session, &mut observer));
    observer.monitor.finish();
    match trained {
        Ok(ending) => finish(session, &mut observer, &ending, deferred),
        Err(error) => Err(ended_early(session, &mut observer, error)),
    }
}

/// Writes the checkpoint of the first step, if a guard may roll back to it, or of the last recorded step,
/// if the run was killed before it was written.
fn write_missing_checkpoint(session: &Session, observer: &mut Observer) -> anyhow::Result<()> {
    let Session { training, folder, is_resumed, .. } = session;
    let steps = u64::from(training.steps());
    let is_missing = match steps {
        0 => observer.can_roll_back,
        _ if *is_resumed => folder.checkpoints()?.iter().all(|checkpoint| checkpoint.step != steps),
        _ => false,
    };
    if is_missing { observer.checkpoint(training, false) } else { Ok(()) }
}

/// Trains until the run ends, including steps repeated after a roll-back.
fn train(session: &mut Session, observer: &mut Observer) -> anyhow::Result<Ending> {
    loop {
        let Session { training, prompts, file, folder, .. } = &mut *session;
        let per_step = file.trainer.train.prompts_per_step;
        let ending = training
            .run(|step| prompts.of_step(step, per_step).map_err(observer_error), observer)
            .map_err(|error| error.with_products_in(file.trainer.train.precision))?;
        let Ending::RollBack { since, learning_rate_factor, kl_coef_factor, message } = ending
        else {
            return Ok(ending);
        };
        let ranks = training.grpo().learner().ranks().clone();
        if training.roll_backs() >= file.trainer.train.max_roll_backs {
            Restored::announce(&ranks, None)?;
            let message = format!(
                "{message}; the run has already rolled back {} times (train.max_roll_backs)",
                training.roll_backs()
            );
            return Ok(Ending::Stopped { message });
        }
        let factor = training.learning_rate_factor() * learning_rate_factor;
        let kl_coef = training.kl_coef() * kl_coef_factor;
        let is_rolled_back = observer.roll_back(training, since, factor, kl_coef)?;
        let restored = is_rolled_back.then(|| Restored::of_step(folder, training.steps()));
        Restored::announce(&ranks, restored.transpose()?)?;
        if !is_rolled_back {
            let message = format!(
                "{message}; no checkpoint from before step {since} is left to roll back to: lower the learning rate, or keep more checkpoints (save.keep_last, save.every)"
            );
            return Ok(Ending::Stopped { message });
        }
    }
}

/// Saves the progress of a failed run. If saving fails as well, the returned error mentions it.
fn ended_early(session: &Session, observer: &mut Observer, error: anyhow::Error) -> anyhow::Error {
    let Session { training, kind, folder, .. } = session;
    let reason = sentence(&error);
    let mut saved = vec![observer.event(training.steps(), EventKind::Stopped { reason })];
    // Only complete steps that are already recorded can be saved.
    if training.is_between_steps() && observer.steps_done == training.steps() {
        saved.push(observer.checkpoint(training, false));
    }
    let model = observer.save(training, kind);
    let place = model.is_ok().then(|| folder.path().join(kind));
    saved.push(model);
    // Before the first step, nothing can be lost.
    if saved.iter().all(Result::is_ok) || training.steps() == 0 {
        say_how_to_resume(folder, &session.file, place.as_deref());
    }
    let mut error = error;
    if let Some(lost) = saved.into_iter().find_map(Result::err) {
        let (incomplete, lost) = ("the state could not be saved completely", sentence(&lost));
        // The same fault may have ended the run.
        error = match lost == sentence(&error) {
            true => error.context(incomplete),
            false => error.context(format!("{incomplete}: {lost}")),
        };
    }
    error.context(format!("training run {} ended early", folder.path().display()))
}

/// Saves, evaluates and reports the result of the run. After the last save, a signal ends the
/// program immediately.
fn finish(
    session: &Session,
    observer: &mut Observer,
    ending: &Ending,
    deferred: Deferred,
) -> anyhow::Result<()> {
    let Session { training, folder, kind, file, .. } = session;
    let steps = training.steps();
    let best = best_evaluation(session)?;
    if let (Some(best), false) = (&best, matches!(ending, Ending::Interrupted)) {
        observer.event(steps, best.clone())?;
    }
    if matches!(ending, Ending::Interrupted) {
        observer.interrupted(training)?;
        return Err(Interrupted.into());
    }
    let ended = end_of(ending);
    observer.save(training, kind)?;
    // Written last: a run with an ending event has saved its model.
    for event in ended {
        observer.event(steps, event)?;
    }
    say_idle(folder, steps)?;
    let count = training.evaluated_count();
    let resume = resume_command("train", folder.path(), file);
    leaves_behind(match count {
        0 => format!("after the last step; the run is saved in {}", folder.path().display()),
        _ => format!(
            "in the evaluation after training; everything else is saved, and `grpo {resume}` does the rest"
        ),
    });
    drop(deferred);
    let phase = (count > 0).then(|| {
        say(format_args!("evaluating   {} after training", counted(count, "completion")));
        Phase::begin(format!("sampling and scoring {}", counted(count, "completion")))
    });
    let after = match training.evaluate() {
        // Interrupted during the last step or the evaluation.
        Err(TrainError::Interrupted) => return Err(Interrupted.into()),
        evaluated => evaluated?,
    };
    drop(phase);
    observer.check_files()?;
    conclude(session, after.as_ref())?;
    leaves_behind(format!("after the end; the run is saved in {}", folder.path().display()));
    if let Some(EventKind::Best { best_step, reward, checkpoint }) = best {
        let place = checkpoint.map(|place| format!(": {}", folder.path().join(place).display()));
        let place = place.unwrap_or_default();
        say(format_args!("best         step {best_step}, mean reward {reward:.4}{place}"));
    }
    say(format_args!("{kind:<12} {}", folder.path().join(kind).display()));
    say(format_args!("metrics      {}", folder.metrics_path().display()));
    next_steps(session);
    match ending {
        Ending::Stopped { message } => anyhow::bail!(
            "a guard stopped training run {} after step {steps} of {}: {message}",
            folder.path().display(),
            file.trainer.train.steps
        ),
        _ => refuse_without_score(session, observer),
    }
}

/// Prints why the run ended, and returns the events that record it.
fn end_of(ending: &Ending) -> Vec<EventKind> {
    match ending {
        Ending::Finished => vec![EventKind::Finished { ended_by: None }],
        Ending::NoGain { step, best: (best, reward) } => {
            let reason = format!(
                "no evaluation up to step {step} improved on step {best}, which had a mean reward of {reward:.4}"
            );
            say(format_args!("stopped      {reason}"));
            // Early stopping is a normal end: resuming the run would not continue it.
            vec![EventKind::Stopped { reason }, EventKind::Finished { ended_by: None }]
        }
        Ending::OfExtension { name, reason } => {
            say(format_args!("finished     {reason}"));
            let ended_by = EndedBy { extension: (*name).to_owned(), reason: reason.clone() };
            vec![EventKind::Finished { ended_by: Some(ended_by) }]
        }
        Ending::Stopped { message } => vec![EventKind::Stopped { reason: message.clone() }],
        Ending::RollBack { .. } => unreachable!("`train` handles roll-backs itself"),
        Ending::Interrupted => unreachable!("`finish` records an interruption itself"),
    }
}

/// Returns an error if the reward has scored nothing of what it had to score, also before the run was
/// resumed, unless its failures are allowed.
fn refuse_without_score(session: &Session, observer: &Observer) -> anyhow::Result<()> {
    let Session { file, folder, .. } = session;
    match observer.without_score.reason(file.trainer.train.max_failed_rewards >= 1.0) {
        Some(reason) => anyhow::bail!(
            "training run {} learned nothing: no completion of any step received a reward (invalid or filtered completions are not counted); first reason: {reason}; check [reward]",
            folder.path().display()
        ),
        None => Ok(()),
    }
}

/// Says so if most steps had nothing to learn from.
fn say_idle(folder: &RunFolder, steps: u32) -> anyhow::Result<()> {
    let idle = idle_steps(folder)?;
    if 2 * idle > steps as usize {
        say(format_args!(
            "in {idle} of {steps} steps, rewards were equal within every group or missing, so nothing was learned"
        ));
    }
    Ok(())
}

/// Prints and records the evaluations before and after training.
fn conclude(session: &Session, after: Option<&Evaluated>) -> anyhow::Result<()> {
    let Session { tasks, before, training, folder, .. } = session;
    let codec = session.codec();
    say(format_args!("{}", comparison(tasks, codec, before.as_ref(), after)));
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    folder.write_comparison(&recorded(tasks, codec, training.steps(), before, after))?;
    if has_prompts(tasks, codec, before) {
        if codec.is_text() {
            let examples = examples(tasks, codec, before, after);
            examples.iter().for_each(|line| say(format_args!("{line}")));
        }
    } else if let Some(table) = best_samples(tasks, codec, after) {
        say(format_args!("{table}"));
    }
    Ok(())
}

/// Returns the event that records the run's best evaluation and its checkpoint.
fn best_evaluation(session: &Session) -> anyhow::Result<Option<EventKind>> {
    let Some((step, reward)) = session.training.best_evaluation() else {
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

/// Returns the number of steps in which the rewards within every group were equal or missing.
fn idle_steps(folder: &RunFolder) -> anyhow::Result<usize> {
    let is_idle =
        |line: &Line| line.get("frac_reward_zero_std").and_then(Value::as_f64) == Some(1.0);
    Ok(folder.read_metrics()?.iter().filter(|line| is_idle(line)).count())
}

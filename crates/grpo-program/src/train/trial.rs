//! `grpo trial`: tests a `grpo train` configuration with a short run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use comfy_table::Table;
use grpo_report::{AUDIT, Judged, Outcome, Stage, judge, stages};
use grpo_run::{EventKind, RunFolder, Verdict};
use grpo_runtime::Ranks;
use grpo_task::interrupt;
use grpo_task::interrupt::Interrupted;
use grpo_task::output::{say, sentence, table};
use grpo_task::task::Tasks;
use grpo_train::{MetricTable, step_metrics};

use crate::args::TrialArguments;
use crate::inspect::evidence::{Depth, findings};
use crate::inspect::report;
use crate::inspect::run_reward::resume_command;
use crate::train::command::{Show, complete};
use crate::train::resume_check::{left_out, resume_check};
use crate::train::session::{Resume, Session};
use crate::train_file::TrainFile;
use crate::train_file::trial::trial_file;

pub(crate) fn run(arguments: &TrialArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let flag = interrupt::flag()?;
    let trial = trained(arguments, tasks, &flag)?;
    let folder = RunFolder::open(&trial.path)?;
    let metrics = folder.read_metrics()?;
    if metrics.is_empty() {
        let failure = trial.failure.unwrap_or_else(|| anyhow::anyhow!("no step was completed"));
        return Err(failure);
    }
    let criteria = &trial.file.settings.success;
    let comparison = folder.read_comparison()?;
    let mut verdict = judge(&metrics, &folder.read_events()?, comparison.as_ref(), criteria);
    let steps = u64::from(trial.file.trainer.train.steps);
    verdict.criteria.push(match arguments.no_resume_check {
        true => left_out("skipped by --no-resume-check"),
        false if !trial.file.rollout.config().repeats() => {
            let sampled_by = trial.file.rollout.description();
            left_out(&format!("{sampled_by} do not repeat completions bit for bit"))
        }
        false if !has_finished(&folder)? => {
            left_out("the run did not reach its last step, so there is no final state to compare")
        }
        false => {
            let table = trial.file.extensions.metrics();
            resume_check(&trial.path, trial.kind, &table, &flag)?
        }
    });
    verdict.criteria.push(audited(&trial.path, tasks));
    let of_sequence = criteria.max_kl_sequence.is_some();
    say(format_args!("{}", table_of(&stages(&metrics, steps), of_sequence)));
    verdict.criteria.iter().for_each(report::criterion);

    let of = |outcome: Outcome| -> Vec<&Judged> {
        verdict.criteria.iter().filter(|judged| judged.outcome == outcome).collect()
    };
    let failed = of(Outcome::Failed);
    if let (Some(failure), false) = (&trial.failure, has_guard_ended(&folder)?) {
        anyhow::bail!("{}; the trial has no verdict", sentence(failure));
    }
    let reasons = |judged: &[&Judged]| -> String {
        let words = judged.iter().map(|judged| format!("{}: {}", judged.name, judged.sentence));
        words.collect::<Vec<_>>().join("; ")
    };
    match verdict.outcome() {
        Outcome::Passed => {
            let open = of(Outcome::NotJudged);
            let but = match open.is_empty() {
                true => String::new(),
                false => format!("; not judged: {}", names(&open)),
            };
            say(format_args!("verdict      go ahead: no problem found{but}"));
            Ok(())
        }
        Outcome::Failed => anyhow::bail!("not yet: {}", reasons(&failed)),
        Outcome::NotJudged | Outcome::Warning => {
            anyhow::bail!("no verdict: {}", reasons(&of(Outcome::NotJudged)))
        }
    }
}

/// A finished trial.
struct Trial {
    file: TrainFile,
    path: PathBuf,
    /// Folder name of the trained weights, `model` or `adapter`.
    kind: &'static str,
    /// The error that ended the run early. `None` if it finished or a guard stopped it.
    failure: Option<anyhow::Error>,
}

/// Rejects a run of `grpo train`, because it does not use trial settings.
fn refuse_other_runs(run: &Path) -> anyhow::Result<()> {
    let command = RunFolder::open(run)?.read_info()?.command;
    let began = command.iter().find(|word| ["train", "trial"].contains(&word.as_str()));
    anyhow::ensure!(
        began.is_none_or(|word| word != "train"),
        "`{}` is a run of `grpo train`; resume it with `grpo train --resume {}`",
        run.display(),
        run.display()
    );
    Ok(())
}

/// Runs the training. The model is freed on return.
fn trained(
    arguments: &TrialArguments,
    tasks: &Tasks,
    flag: &Arc<AtomicBool>,
) -> anyhow::Result<Trial> {
    let stop = Arc::clone(flag);
    let mut session = match (&arguments.resume, &arguments.config) {
        (Some(run), _) => {
            refuse_other_runs(run)?;
            let run_reward = arguments.run_reward;
            let resume =
                Resume { run, verify: false, is_finished: false, rollout_url: &[], run_reward };
            Session::resume(&resume, *tasks, stop, &Ranks::alone())?
        }
        (None, configuration) => {
            let configuration = configuration.as_ref().context("missing argument CONFIG")?;
            let file = trial_file(arguments, configuration, tasks)?;
            Session::begin_with(file, *tasks, arguments.force, stop, &Ranks::alone())?
        }
    };
    let show = Show { plain: arguments.plain, stop: Arc::clone(flag) };
    let failure = complete(&mut session, show).err();
    let path = session.folder.path().to_owned();
    match failure {
        Some(failure) if failure.is::<Interrupted>() => {
            let resume = resume_command("trial", &path, &session.file);
            say(format_args!("use `grpo {resume}` to also get the verdict"));
            Err(failure)
        }
        failure => Ok(Trial { file: session.file, path, kind: session.kind, failure }),
    }
}

fn has_finished(folder: &RunFolder) -> anyhow::Result<bool> {
    let events = folder.read_events()?;
    Ok(events.iter().any(|event| matches!(event.what, EventKind::Finished { .. })))
}

fn has_guard_ended(folder: &RunFolder) -> anyhow::Result<bool> {
    let stops =
        |what: &EventKind| matches!(what, EventKind::Guard { action, .. } if action == "stop");
    Ok(folder.read_events()?.iter().any(|event| stops(&event.what)))
}

/// Audits the files of the run.
fn audited(run: &Path, tasks: &Tasks) -> Judged {
    let judged = |outcome, sentence| Judged::new(AUDIT, outcome, sentence);
    let findings = match findings(run, tasks, Depth::Weights) {
        Ok((_, findings)) => findings,
        Err(error) => return judged(Outcome::Failed, sentence(&error)),
    };
    let violated: Vec<&str> = findings
        .iter()
        .filter(|finding| !finding.violations().is_empty())
        .map(|finding| finding.property)
        .collect();
    let proven = findings.iter().filter(|finding| finding.verdict == Verdict::Proven).count();
    match violated.is_empty() {
        true => judged(
            Outcome::Passed,
            format!("{proven} of {} properties proven, none violated", findings.len()),
        ),
        false => judged(
            Outcome::Failed,
            format!(
                "violated: {}; run `grpo audit {}` for details",
                violated.join(", "),
                run.display()
            ),
        ),
    }
}

fn names(judged: &[&Judged]) -> String {
    judged.iter().map(|judged| &*judged.name).collect::<Vec<_>>().join(", ")
}

/// Returns a table with one row per stage.
fn table_of(stages: &[Stage], of_sequence: bool) -> Table {
    let has_validity = stages.iter().any(|stage| stage.mean(VALIDITY).is_some());
    let columns = [
        ("kl", 5, true),
        ("kl_sequence", 4, of_sequence),
        (VALIDITY, 3, has_validity),
        ("entropy", 3, true),
        ("completions/mean_length", 1, true),
        ("frac_reward_zero_std", 3, true),
        ("grad_norm", 3, true),
    ];
    let names = MetricTable::new(step_metrics());
    let columns = || columns.iter().filter(|(.., is_shown)| *is_shown);
    let labels = columns().map(|(metric, ..)| names.label(metric));
    let header = ["steps", "reward"].map(str::to_owned).into_iter().chain(labels);
    let row = |stage: &Stage| {
        let means = columns().map(|(metric, digits, _)| number(stage.mean(metric), *digits));
        [steps_of(stage), reward_of(stage)].into_iter().chain(means).collect::<Vec<String>>()
    };
    table(header.collect::<Vec<_>>(), stages.iter().map(row), 1..)
}

const VALIDITY: &str = "rewards/valid/mean";

fn steps_of(stage: &Stage) -> String {
    let Stage { first, last, done, .. } = stage;
    match *done as u64 == last - first + 1 {
        true => format!("{first}–{last}"),
        false => format!("{first}–{last}, {done} done"),
    }
}

fn reward_of(stage: &Stage) -> String {
    let mean = number(stage.mean("reward"), 4);
    stage.reward_error.map_or(mean.clone(), |error| format!("{mean} ± {error:.4}"))
}

fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() < 1e6 => format!("{value:.digits$}"),
        Some(value) => format!("{value:.1e}"),
    }
}

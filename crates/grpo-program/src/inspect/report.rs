//! `grpo report`: writes an HTML report on one or more runs, with a verdict.

use std::path::{Path, PathBuf};

use grpo_data::FileKind;
use grpo_report::{AUDIT, Drawing, INPUTS, Judged, Outcome, RunData, TransformCurve, render};
use grpo_rewards::{Desirability, RewardConfig};
use grpo_run::{EventKind, RunFolder, last_state, was_stopped_by_guard};
use grpo_task::output::{FileInPlace, Formats, check_output, command_line, say};
use grpo_task::phase::Phase;
use grpo_task::run_files::config_of_run;
use grpo_task::task::Tasks;
use grpo_task::violations::violations_of_supervised;

use crate::args::ReportArguments;
use crate::inspect::evidence::violations_of_files;
use crate::train_file::TrainFile;

const PAGE: Formats = Formats { written: "a page", endings: &["html"] };

pub(crate) fn run(arguments: &ReportArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let output = match (&arguments.output, arguments.runs.as_slice()) {
        (Some(output), _) => output.clone(),
        (None, [run]) => {
            // A folder from somebody else may contain a link or a named pipe of this name.
            RunFolder::open(run)?.files().is_kind("report.html", FileKind::File)?;
            run.join("report.html")
        }
        (None, _) => {
            anyhow::bail!("a report on several runs requires an output file; set it with -o")
        }
    };
    // Prevents a typo from overwriting run files such as `metrics.jsonl`.
    PAGE.require("-o", &output)?;
    if let Some(output) = &arguments.output {
        let inputs: Vec<&Path> = arguments.runs.iter().map(PathBuf::as_path).collect();
        check_output("-o", output, PAGE, &inputs, arguments.force)?;
    }
    let phase = Phase::begin("reading and auditing the files");
    let mut runs = RunData::read_all(&arguments.runs)?;
    let table = tasks.metrics();
    for run in &mut runs {
        run.audit = audited(&run.path, tasks)?;
        run.transforms = transforms(&run.path, tasks);
        run.drawing = drawing(&run.path, tasks);
        run.describe(&table);
    }
    drop(phase);
    FileInPlace::create(&output)?.write_text(&render(&runs))?;
    for run in &runs {
        let verdict = run.verdict();
        say(format_args!("{}: {}", run.name, verdict.headline()));
        verdict.criteria.iter().for_each(criterion);
    }
    say(format_args!("report       {}", output.display()));
    Ok(())
}

/// Returns how to draw samples of the run's model, if that is possible.
fn drawing(run: &Path, tasks: &Tasks) -> Option<Drawing> {
    let codec =
        ["checkpoints/step-0", "model"].iter().find_map(|folder| tasks.codec(&run.join(folder)));
    tasks.drawing(&codec?)
}

/// Returns the curves of the reward's transforms, which map properties to scores. If the
/// configuration cannot be read, the audit reports it.
fn transforms(run: &Path, tasks: &Tasks) -> Vec<TransformCurve> {
    let folder = RunFolder::open(run);
    let config = folder.ok().and_then(|folder| TrainFile::of_run(&folder, tasks).ok());
    config.map(|config| transform_curves(&config.value.reward)).unwrap_or_default()
}

/// Returns the curves of a reward's transforms, which map properties to scores.
pub(crate) fn transform_curves(reward: &RewardConfig) -> Vec<TransformCurve> {
    let curve = |(name, function): (String, Desirability)| TransformCurve {
        name,
        kind: function.type_name().to_owned(),
        points: function.curve(),
    };
    reward.spec().desirabilities().into_iter().map(curve).collect()
}

/// Audits the files of a run and returns any violations as criteria: a failed one if its files contradict
/// each other, and one on its inputs. A run that has finished no longer reads its inputs, so that changed
/// ones are a warning.
fn audited(run: &Path, tasks: &Tasks) -> anyhow::Result<Vec<Judged>> {
    let folder = RunFolder::open(run)?;
    let violations = match config_of_run(&folder, "train") {
        Ok(_) => violations_of_files(run, tasks),
        Err(_) => violations_of_supervised(&folder),
    };
    let (of_inputs, of_files): (Vec<_>, Vec<_>) =
        violations.into_iter().partition(|violation| violation.property == Some(grpo_run::INPUTS));
    let of_inputs: Vec<String> = of_inputs.into_iter().map(|violation| violation.what).collect();
    let of_files: Vec<String> = of_files.iter().map(ToString::to_string).collect();
    // The audit reports events that cannot be read.
    let has_finished = folder.read_events().is_ok_and(|events| {
        let is_by_guard = was_stopped_by_guard(&events);
        is_by_guard || matches!(last_state(events), Some(EventKind::Finished { .. }))
    });
    let outcome = if has_finished { Outcome::Warning } else { Outcome::Failed };
    let audit = summary(&of_files, run).map(|what| Judged::new(AUDIT, Outcome::Failed, what));
    let inputs = summary(&of_inputs, run).map(|what| Judged::new(INPUTS, outcome, what));
    Ok(audit.into_iter().chain(inputs).collect())
}

/// Returns the first violation and the number of the others. Returns `None` if there are none.
fn summary(violations: &[String], run: &Path) -> Option<String> {
    match violations {
        [] => None,
        [one] => Some(one.clone()),
        [first, more @ ..] => {
            let audit = command_line(["audit", &run.display().to_string()]);
            Some(format!("{first}; and {} more (run `grpo {audit}` to see all)", more.len()))
        }
    }
}

/// Prints one criterion of the verdict.
pub(crate) fn criterion(judged: &Judged) {
    say(format_args!("  {:<11} {}: {}", word(judged.outcome), judged.name, judged.sentence));
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::NotJudged => "not judged",
        Outcome::Warning => "warning",
    }
}

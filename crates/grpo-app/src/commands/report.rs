//! `grpo report`: writes an HTML report on one or more runs, with a verdict.

use std::path::{Path, PathBuf};

use grpo_data::FileKind;
use grpo_report::{AUDIT, Drawing, INPUTS, Judged, Outcome, RunData, TransformCurve, render};
use grpo_rewards::{Desirability, RewardConfig};
use grpo_run::RunFolder;

use crate::args::ReportArguments;
use crate::evidence::{violations_of_files, violations_of_supervised};
use crate::output::{FileInPlace, Formats, check_output, say};
use crate::phase::Phase;
use crate::run_files::config_of_run;
use crate::task::Tasks;
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
    for run in &mut runs {
        run.audit = audited(&run.path, tasks)?;
        run.transforms = transforms(&run.path, tasks);
        run.drawing = drawing(&run.path, tasks);
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

/// Audits the files of a run and returns any violations as a failed criterion.
fn audited(run: &Path, tasks: &Tasks) -> anyhow::Result<Option<Judged>> {
    let folder = RunFolder::open(run)?;
    let violations = match config_of_run(&folder, "train") {
        Ok(_) => violations_of_files(run, tasks),
        Err(_) => violations_of_supervised(&folder),
    };
    // The files of the run itself may be intact.
    let of_inputs = format!("{}: ", grpo_run::INPUTS);
    let name = match violations.iter().all(|violation| violation.starts_with(&of_inputs)) {
        true => INPUTS,
        false => AUDIT,
    };
    let sentence = match violations.as_slice() {
        [] => return Ok(None),
        [one] => one.clone(),
        [first, more @ ..] => {
            format!(
                "{first}; and {} more (run `grpo audit {}` to see all)",
                more.len(),
                run.display()
            )
        }
    };
    Ok(Some(Judged::new(name, Outcome::Failed, sentence)))
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
    }
}

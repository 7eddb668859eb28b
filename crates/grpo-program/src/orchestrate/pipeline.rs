//! `grpo run`: runs the stages of a pipeline file in order. Each stage is a subprocess of this
//! program.
//!
//! A pipeline is independent of what its stages train. Whether a stage is finished is determined
//! from its run folder or output files.

mod arguments;
mod difference;
mod earlier;
mod file;
mod own_reward;
mod parsed;
mod plan;
mod process;
mod progress;
mod record;
mod recorded_stage;
mod section;
mod spelled_out;
mod stage_config;
mod summary;
mod written;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use grpo_data::counted;
use grpo_task::device;
use grpo_task::interrupt::Interrupted;
use grpo_task::output::{command_line, say, say_aside, say_error, table};
use grpo_task::task::Tasks;

#[cfg(feature = "schema")]
pub(crate) use self::file::PipelineFile;
pub(crate) use file::check_command;
use file::{Pipeline, Stage, SummaryCommand, set_options};
use plan::{Plan, Request};
use process::{Program, StageFailed};
use summary::Outcome;
use written::ChangedResult;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo run configs/infill/pipeline.toml                     an infiller, its judges, then GRPO
  grpo run configs/replies/pipeline.toml --set seed=7       another seed for the last stage
  grpo run configs/replies/pipeline.toml --check            only check the configurations

docs/configuration.md describes pipeline files.")]
pub(crate) struct PipelineArguments {
    /// Pipeline file (TOML)
    #[arg(value_name = "FILE")]
    pub(crate) pipeline: PathBuf,
    /// Run every stage from scratch. Existing run folders, and files and folders in the way that no
    /// pipeline wrote, are renamed; other results of this pipeline are replaced
    #[arg(long, help_heading = "Run")]
    force: bool,
    /// Value for a key of the last stage's configuration, e.g. --set train.steps=50; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Configuration")]
    set: Vec<String>,
    /// Plain progress lines instead of the live screen
    #[arg(long, help_heading = "Display")]
    pub(crate) plain: bool,
    /// Check all stages and their configurations and list what would run, then exit without writing
    /// anything
    #[arg(long, help_heading = "Configuration")]
    pub(crate) check: bool,
    #[arg(from_global)]
    threads: Option<usize>,
    #[arg(from_global)]
    quiet: bool,
    /// Command that wrote the pipeline file and resumes it, e.g. `grpo sweep`, if any.
    #[arg(skip)]
    pub(crate) command: Option<&'static str>,
}

impl PipelineArguments {
    /// Returns the arguments to run a file.
    pub(crate) fn of_file(pipeline: PathBuf, threads: Option<usize>, quiet: bool) -> Self {
        let (force, set, plain, check, command) = (false, Vec::new(), false, false, None);
        Self { pipeline, force, set, plain, check, threads, quiet, command }
    }

    /// Describes how to resume.
    fn resume(&self) -> String {
        match self.command {
            Some(command) => format!("resume with the same `{command}` command"),
            None => {
                let mut words = vec!["run".to_owned(), self.pipeline.display().to_string()];
                words.extend(set_options(&self.set));
                if let Some(device) = device::chosen() {
                    words.extend(["--device".to_owned(), device.to_string()]);
                }
                format!("resume with `grpo {}`", command_line(&words))
            }
        }
    }
}

/// Runs a pipeline. `commands` are the available commands.
pub(crate) fn run(
    arguments: &PipelineArguments,
    commands: &clap::Command,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let pipeline = Pipeline::read(&arguments.pipeline, commands, tasks, &arguments.set)?;
    let width = pipeline.name_width();
    let program = Program::new(arguments.threads, arguments.quiet)?;
    // Otherwise, a mistyped key looks like another value of a finished stage.
    let has_set = |stage: &&Stage| !stage.set.is_empty();
    for stage in pipeline.stages.iter().filter(has_set) {
        check_configuration(&program, stage)?;
    }
    let request = Request { force: arguments.force, plain: arguments.plain, program: &program };
    let plans = plan::plans(&pipeline, &request)?;
    let summaries = summary_words(&pipeline, arguments.command.is_some())?;
    if arguments.command.is_some() {
        refuse_outdated(&pipeline, &plans)?;
    }
    for (stage, plan) in pipeline.stages.iter().zip(&plans) {
        let Some(difference) = stage.edited_since(plan)? else { continue };
        anyhow::ensure!(
            arguments.command.is_none(),
            "{difference}; the results in this folder would not be comparable with those of new runs: undo the edit, or choose another folder with -o"
        );
        let consequence = match plan {
            Plan::Resume(_) => {
                "; the run continues with the recorded value (rename its folder to start again)"
            }
            _ => "",
        };
        say_aside(format_args!(
            "{:<width$} warning: {difference}{consequence}",
            stage.section.name
        ));
    }
    for stage in pipeline.stages.iter().filter(|stage| !has_set(stage)) {
        check_configuration(&program, stage)?;
    }
    if arguments.check {
        say_plans(arguments, &pipeline, &plans, &summaries);
        return Ok(());
    }
    let resume = arguments.resume();
    // Only `grpo run` has the option.
    let force = match arguments.command {
        Some(_) => "",
        None => " (--force runs every stage again)",
    };
    let finished =
        run_stages(&program, &pipeline, &plans, &resume, force).inspect_err(|error| {
            if error.is::<Interrupted>() {
                say_aside(format_args!("interrupted  {resume}"));
            }
        })?;
    let Finished { rows, failed } = finished;
    let header = [
        "stage",
        "",
        "time",
        "folder or file",
        "metrics: start → end (evaluations or kept model if possible)",
    ];
    if !failed.is_empty() {
        say(format_args!("{}", table(header, rows, 0..0)));
        anyhow::bail!(
            "{} of {} stages failed or lack their inputs: {}; the others are finished, and the same command repeats these",
            failed.len(),
            pipeline.stages.len(),
            failed.join(", ")
        );
    }
    for (command, words) in pipeline.summary.iter().zip(&summaries) {
        run_summary(&program, command, words, arguments.command.is_none())
            .context("all stages finished, but the summary failed")?;
    }
    say(format_args!("{}", table(header, rows, 0..0)));
    Ok(())
}

/// Refuses a run of another command that was trained with other inputs.
fn refuse_outdated(pipeline: &Pipeline, plans: &[Plan]) -> anyhow::Result<()> {
    for (stage, plan) in pipeline.stages.iter().zip(plans) {
        let (Some(_), Plan::Run { instead: Some(reason), is_outdated: true, .. }) =
            (&stage.config, plan)
        else {
            continue;
        };
        anyhow::bail!(
            "{reason} since `{}` was trained; its results would not be comparable with those of new runs: undo the change, or choose another folder with -o",
            stage.section.name
        );
    }
    Ok(())
}

/// Prints what would run, for `--check`.
fn say_plans(
    arguments: &PipelineArguments,
    pipeline: &Pipeline,
    plans: &[Plan],
    summaries: &[Vec<String>],
) {
    let width = pipeline.name_width();
    for (stage, plan) in pipeline.stages.iter().zip(plans) {
        say(format_args!("{:<width$} {plan}", stage.section.name));
    }
    for words in summaries {
        say(format_args!("{:<width$} grpo {}", "summary", command_line(words)));
    }
    let file = arguments.pipeline.display().to_string();
    say(format_args!(
        "{}: pipeline of {} is valid (models and data were not read)",
        // The file of another command is a temporary one.
        arguments.command.map_or(file, str::to_owned),
        counted(pipeline.stages.len(), "stage")
    ));
}

/// Returns the arguments of the summary commands. They run each time, so they replace their own results,
/// and nothing else. The folder of another command, which checks it itself, has only results.
fn summary_words(pipeline: &Pipeline, is_own_folder: bool) -> anyhow::Result<Vec<Vec<String>>> {
    let words = |summary: &SummaryCommand| {
        let mut words = summary.words.clone();
        let force = "--force".to_owned();
        if !words.contains(&force) && summary.replaces(is_own_folder)? {
            words.push(force);
        }
        Ok(words)
    };
    pipeline.summary.iter().map(words).collect()
}

fn run_summary(
    program: &Program,
    summary: &SummaryCommand,
    words: &[String],
    is_recorded: bool,
) -> anyhow::Result<()> {
    if is_recorded {
        summary.written.begin(&summary.words)?;
    }
    program.run(words)?;
    match is_recorded {
        true => summary.written.finish(&summary.words),
        false => Ok(()),
    }
}

/// Stages that have been run.
#[derive(Default)]
struct Finished {
    /// Rows of the final table.
    rows: Vec<[String; 5]>,
    /// Names of independent stages that failed, and of stages that lack their results.
    failed: Vec<String>,
}

/// Returns the exit code of the stage that failed, or a generic failure code.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    let code = error.downcast_ref::<StageFailed>().and_then(StageFailed::code);
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn run_stages(
    program: &Program,
    pipeline: &Pipeline,
    plans: &[Plan],
    resume: &str,
    force: &str,
) -> anyhow::Result<Finished> {
    let mut finished = Finished::default();
    let width = pipeline.name_width();
    for (stage, plan) in pipeline.stages.iter().zip(plans) {
        let start = Instant::now();
        let outcome = match plan {
            Plan::Reuse => {
                let place = stage.place().display();
                say_aside(format_args!(
                    "{:<width$} {place} is finished and reused{force}",
                    stage.section.name
                ));
                if let Some(ChangedResult { path, place }) = stage.written.changed() {
                    say_aside(format_args!(
                        "{:<width$} warning: {} has changed since this pipeline wrote it, and is used as it is; rename {} to run the stage again",
                        stage.section.name,
                        path.display(),
                        place.display()
                    ));
                }
                Outcome::Reused
            }
            Plan::Resume(_) | Plan::Run { .. }
                if !finished.failed.is_empty()
                    && !stage.section.inputs.iter().all(|path| path.exists()) =>
            {
                finished.failed.push(stage.section.name.clone());
                continue;
            }
            Plan::Resume(words) | Plan::Run { words, .. } => {
                if let Plan::Run { instead: Some(reason), .. } = plan {
                    say_aside(format_args!("{:<width$} runs again: {reason}", stage.section.name));
                }
                let failed = || format!("stage `{}` failed; {resume}", stage.section.name);
                let ended = set_aside(plan, &stage.section.name, width)
                    .and_then(|()| stage.record_beginning())
                    .and_then(|()| program.run(words))
                    .and_then(|()| stage.check_result())
                    .and_then(|()| stage.record());
                match ended.with_context(failed) {
                    Err(error) if stage.section.independent && !error.is::<Interrupted>() => {
                        say_error(&error);
                        finished.failed.push(stage.section.name.clone());
                        continue;
                    }
                    ended => ended?,
                }
                let time = start.elapsed();
                match plan {
                    Plan::Resume(_) => Outcome::Resumed(time),
                    _ => Outcome::Done(time),
                }
            }
        };
        finished.rows.push(summary::row(stage, outcome)?);
    }
    Ok(finished)
}

/// Renames what is in the way of a stage by appending `.old-1` or the next unused number.
fn set_aside(plan: &Plan, name: &str, width: usize) -> anyhow::Result<()> {
    let Plan::Run { aside, .. } = plan else { return Ok(()) };
    for path in aside {
        let renamed = grpo_run::move_aside(path)?;
        say_aside(format_args!(
            "{name:<width$} renamed {} to {}",
            path.display(),
            renamed.display()
        ));
    }
    Ok(())
}

/// Runs the command with `--check` to validate the configuration of a stage. This happens before
/// the first stage starts, so that mistakes in the last stage are found early. It includes finished
/// stages, whose configurations describe the results that are reused.
fn check_configuration(program: &Program, stage: &Stage) -> anyhow::Result<()> {
    let Some(config) = stage.config.as_ref().filter(|_| stage.has("check")) else { return Ok(()) };
    let mut words = vec![stage.section.command.clone(), config.path.display().to_string()];
    words.extend(stage.section.arguments.iter().cloned());
    words.push("--check".to_owned());
    words.extend(set_options(&stage.set));
    program.check(&words).with_context(|| {
        format!("the configuration of stage `{}` is not valid", stage.section.name)
    })
}

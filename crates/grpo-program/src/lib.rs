#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod args;
mod data_section;
mod evaluate;
mod import_trl;
mod inspect;
mod markdown;
mod models;
mod orchestrate;
mod panics;
#[cfg(feature = "schema")]
pub mod schema;
mod train;
mod train_file;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::ArgMatches;
use grpo_task::hub::find_folders;
use grpo_task::task::{Task, Tasks};
use grpo_task::{config, device, interrupt, output, written_by};

use crate::args::{Asked, AskedCommand, Command};
use crate::evaluate::{compare, dynamics, eval, judge, logprob, sample, score};
use crate::inspect::{
    adapter_layers, attention, audit, devices, explain, families, replay, report, selftest,
};
use crate::models::{download, export, init, merge, train_tokenizer};
use crate::orchestrate::{pipeline, sweep};
use crate::train::{pretrain, ranks, trial};

/// Runs the command given by the process arguments and returns the exit code. `revision` is the git
/// revision of the program, which is recorded in runs.
pub fn main(tasks: &'static [&'static dyn Task], revision: Option<&'static str>) -> ExitCode {
    if let Some(revision) = revision {
        config::REVISION.get_or_init(|| revision);
    }
    let checked = grpo_runtime::check_stacks().and_then(|()| grpo_runtime::check_open_files());
    if let Err(fault) = checked {
        output::say_error(&anyhow::anyhow!(fault));
        return ExitCode::FAILURE;
    }
    panics::explain_panics();
    main_with(tasks)
}

/// Returns the tasks of a program that trains several runs as `grpo sweep` does.
pub fn tasks_of(tasks: &'static [&'static dyn Task]) -> Tasks {
    Tasks::new(tasks, sweep::train_all)
}

fn main_with(tasks: &'static [&'static dyn Task]) -> ExitCode {
    let tasks = tasks_of(tasks);
    let Asked { threads, quiet, device, command } = args::parse(&tasks, std::env::args_os());
    output::set_quiet(quiet);
    let execute = || {
        // `grpo run` and `grpo sweep` forward signals to its stages instead.
        interrupt::prepare(match &command {
            AskedCommand::Own(command, _) => {
                matches!(command, Command::Run(_) | Command::Sweep(_))
            }
            AskedCommand::OfTask(command, options) => command.runs_stages(options),
        });
        device.map_or(Ok(()), device::choose)?;
        execute(command, &tasks)
    };
    match grpo_runtime::compute(threads, execute).unwrap_or_else(|error| Err(error.into())) {
        Ok(()) => ExitCode::SUCCESS,
        // `grpo describe … | head` is not an error.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        // The message has already been printed.
        Err(error) if error.is::<interrupt::Interrupted>() => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            // The message comes first, followed by each cause that adds information.
            ranks::report(&error);
            pipeline::exit_code(&error)
        }
    }
}

/// Runs a command line, including the program name, in this process and on the existing thread
/// pool. Invalid arguments, `--help` and `--version` exit the process.
///
/// # Errors
/// Returns an error if the command fails or if `--threads`, `--quiet` or `--device` is given, which
/// requires [`main`].
pub fn run(
    tasks: &'static [&'static dyn Task],
    command_line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> anyhow::Result<()> {
    let tasks = tasks_of(tasks);
    let Asked { threads, quiet, device, command } = args::parse(&tasks, command_line);
    anyhow::ensure!(
        threads.is_none(),
        "--threads is not supported when grpo is embedded in another program; remove it"
    );
    anyhow::ensure!(
        !quiet,
        "--quiet is not supported when grpo is embedded in another program; remove it"
    );
    anyhow::ensure!(
        device.is_none(),
        "--device is not supported when grpo is embedded in another program; remove it"
    );
    execute(command, &tasks)
}

fn execute(command: AskedCommand, tasks: &Tasks) -> anyhow::Result<()> {
    if !matches!(command, AskedCommand::Own(Command::Train(_), _)) {
        ranks::refuse_several()?;
    }
    grpo_data::regular_file::forget_opened();
    let configuration = match &command {
        AskedCommand::Own(_, options) | AskedCommand::OfTask(_, options) => {
            written_by::configuration_of(options)
        }
    };
    let ended = match command {
        AskedCommand::Own(command, options) => run_own(command, &options, tasks),
        AskedCommand::OfTask(command, options) => command.run(tasks, &options),
    };
    let ended = ended.map_err(|error| written_by::with_writer(error, configuration.as_deref()));
    if ended.is_err() {
        // It may follow from the removal of incomplete files.
        output::stop_if_ending();
    }
    let ended = ended.and_then(|()| output::check_written());
    match grpo_data::take_system_fault() {
        // What the command reports instead follows from it.
        Some(fault) if !is_stopped(&ended) => Err(anyhow::anyhow!(fault)),
        _ => ended,
    }
}

/// Returns whether a command was stopped by the user or by the reader of its output.
fn is_stopped(ended: &anyhow::Result<()>) -> bool {
    let is_it = |error: &anyhow::Error| {
        output::is_closed_pipe(error) || error.is::<interrupt::Interrupted>()
    };
    ended.as_ref().err().is_some_and(is_it)
}

fn run_own(mut command: Command, options: &ArgMatches, tasks: &Tasks) -> anyhow::Result<()> {
    find_folders(command.models())?;
    match command {
        Command::Run(arguments) => pipeline::run(&arguments, &args::program(tasks).0, tasks),
        Command::Train(arguments) => train::command::run(&arguments, tasks),
        Command::Trial(arguments) => trial::run(&arguments, tasks),
        Command::Pretrain(arguments) => pretrain::run(&arguments, tasks),
        Command::Explain(arguments) => explain::run(&arguments, tasks),
        Command::Replay(arguments) => replay::run(&arguments, tasks),
        Command::Audit(arguments) => audit::run(&arguments, tasks),
        Command::Report(arguments) => report::run(&arguments, tasks),
        Command::Sample(arguments) => sample::run(&arguments, options, tasks),
        Command::Compare(arguments) => compare::run(&arguments, tasks),
        Command::Judge(arguments) => judge::run(&arguments),
        Command::Dynamics(arguments) => dynamics::run(&arguments, tasks),
        Command::AdapterLayers(arguments) => adapter_layers::run(&arguments),
        Command::Attention(arguments) => attention::run(&arguments, tasks),
        Command::Sweep(arguments) => sweep::run(&arguments, tasks, &args::program(tasks).0),
        Command::Eval(arguments) => eval::run(&arguments, tasks),
        Command::Score(arguments) => score::run(&arguments, tasks),
        Command::Logprob(arguments) => logprob::run(&arguments, tasks),
        Command::Merge(arguments) => merge::run(&arguments, tasks),
        Command::Download(arguments) => download::run(&arguments),
        Command::Export(arguments) => export::run(&arguments, tasks),
        Command::Init(arguments) => init::run(&arguments, tasks),
        Command::TrainTokenizer(arguments) => train_tokenizer::run(&arguments),
        Command::ImportTrl(arguments) => import_trl::command::run(&arguments, tasks),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Families(arguments) => families::run(&arguments, tasks),
        Command::Selftest(arguments) => selftest::run(&arguments, tasks),
        Command::Completions(arguments) => args::completions::run(&arguments, tasks),
        Command::Man(arguments) => args::man::run(&arguments, tasks),
    }
}

//! The program `grpo` without its tasks. It reads arguments and configuration files, chooses a device, and prints;
//! everything else is in the libraries. `grpo-cli` is its `main`.

#![expect(clippy::print_stderr, reason = "this crate is the one that prints")]

mod args;
mod checkpoint;
mod commands;
mod config;
mod dashboard;
mod device;
mod earlier;
mod explanation;
mod generate;
mod infill;
mod interrupt;
mod look;
mod models;
mod output;
mod pipeline;
mod preflight;
mod prompts;
mod recorded;
mod resume_check;
mod run_files;
mod session;
mod supervised_run;
mod train_file;
mod trial_file;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Arguments, Command};

/// Runs the command that the arguments of this process name, and returns its exit code. Runs record `revision`, the one that
/// the program was built from.
pub fn main(revision: Option<&'static str>) -> ExitCode {
    if let Some(revision) = revision {
        config::REVISION.get_or_init(|| revision);
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // `grpo describe … | head` is no failure.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        // What is to be said of it was said.
        Err(error) if error.is::<interrupt::Interrupted>() => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            // The sentence first; each cause behind it, where it says something new.
            eprintln!("error: {}", output::sentence(&error));
            pipeline::exit_code(&error)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    grpo_process::compute(arguments.threads, || command(arguments.command))?
}

fn command(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(arguments) => pipeline::run(&arguments, &Arguments::command()),
        Command::Train(arguments) => commands::train::run(&arguments),
        Command::Trial(arguments) => commands::trial::run(&arguments),
        Command::Pretrain(arguments) => commands::pretrain::run(&arguments),
        Command::TrainEngagement(arguments) => commands::train_engagement::run(&arguments),
        Command::TrainJudge(arguments) => commands::train_judge::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Replay(arguments) => commands::replay::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Sample(arguments) => commands::sample::run(&arguments),
        Command::Fill(arguments) => commands::fill::run(&arguments),
        Command::Logprob(arguments) => commands::logprob::run(&arguments),
        Command::Merge(arguments) => commands::merge::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::TrainTokenizer(arguments) => commands::train_tokenizer::run(&arguments),
        Command::SplitData(arguments) => commands::split_data::run(&arguments),
        Command::CleanData(arguments) => commands::clean_data::run(&arguments),
        Command::Describe(arguments) => commands::describe::run(&arguments),
        Command::Selftest(arguments) => commands::selftest::run(&arguments),
    }
}

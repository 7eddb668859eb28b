//! `grpo completions`: prints a shell completion script.

use std::io::Write;

use anyhow::Context;
use grpo_task::output::note_closed;
use grpo_task::task::Tasks;

use crate::args;
use crate::args::CompletionsArguments;

pub(crate) fn run(arguments: &CompletionsArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let (mut program, _) = args::program(tasks);
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    note_closed();
    std::io::stdout().write_all(&script).context("cannot write to standard output")
}

//! Checks what commands of a pipeline would refuse, before its first stage runs.

use clap::FromArgMatches;
use grpo_task::args::SampleArguments;
use grpo_task::task::Tasks;

use super::parsed::{Input, Parsed};
use crate::evaluate::compare::CompareArguments;
use crate::evaluate::eval::EvalArguments;

/// Commands whose files and folders, except for outputs, all have to exist.
const READERS: [&str; 9] =
    ["compare", "describe", "eval", "fill", "logprob", "merge", "report", "sample", "score"];

/// Checks the values of a command's options as far as possible without reading files.
///
/// # Errors
/// Returns an error if the command would refuse a value.
pub(super) fn check_values(parsed: &Parsed, tasks: &Tasks) -> anyhow::Result<()> {
    let Some((name, matches)) = parsed.command() else { return Ok(()) };
    match name {
        "compare" => CompareArguments::from_arg_matches(matches)?.check(tasks),
        "eval" => EvalArguments::from_arg_matches(matches)?.check(tasks),
        "sample" => SampleArguments::from_arg_matches(matches)?.check(),
        _ => Ok(()),
    }
}

/// Returns the files and folders that a command reads, with the options or arguments that name them.
pub(super) fn inputs(parsed: &Parsed) -> Vec<Input> {
    match parsed.command() {
        Some((name, _)) if READERS.contains(&name) => parsed.inputs(),
        _ => Vec::new(),
    }
}

//! Consent to run what the configuration of a run folder names. A run folder may be somebody else's.

use std::path::Path;

use crate::output::command_line;
use crate::train_file::TrainFile;

/// The option with which the user agrees.
const OPTION: &str = "--run-reward";

/// Checks that the user agreed if the reward of a run starts programs or sends completions to servers.
///
/// # Errors
/// Returns an error that says what would run, and the command that runs it.
pub(crate) fn refuse_unasked(file: &TrainFile, run: &Path, has_agreed: bool) -> anyhow::Result<()> {
    let external = file.reward.spec().external();
    if external.is_empty() || has_agreed {
        return Ok(());
    }
    let mut words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    words.push(OPTION.to_owned());
    anyhow::bail!(
        "the reward of {} {}, as its config.toml says; if you trust this run folder, use `grpo {}`",
        run.display(),
        external.join(" and "),
        command_line(&words)
    )
}

/// Returns the command that resumes a run with this configuration, without the name of the program.
pub(crate) fn resume_command(command: &str, run: &Path, file: &TrainFile) -> String {
    let run = run.display().to_string();
    let mut words = vec![command, "--resume", &run];
    words.extend((!file.reward.spec().external().is_empty()).then_some(OPTION));
    command_line(&words)
}

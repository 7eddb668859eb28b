//! Consent to run what the configuration of a run folder names. A run folder may be somebody else's.

use std::path::Path;

use grpo_report::{RUN_REWARD, resume_line};
use grpo_run::RunFolder;
use grpo_task::output::{command_line, say};

use crate::train_file::TrainFile;

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
    words.push(RUN_REWARD.to_owned());
    anyhow::bail!(
        "the reward of {} {}, as its config.toml says; if you trust this run folder, use `grpo {}`",
        run.display(),
        external.join(" and "),
        command_line(&words)
    )
}

/// Returns the command that resumes a run with this configuration, without the name of the program.
pub(crate) fn resume_command(command: &str, run: &Path, file: &TrainFile) -> String {
    resume_line(command, run, !file.reward.spec().external().is_empty())
}

/// Prints how to continue a run that failed. `trained` is the folder with the policy, if the run has
/// saved one.
pub(crate) fn say_how_to_resume(run: &RunFolder, file: &TrainFile, trained: Option<&Path>) {
    let resume = resume_command("train", run.path(), file);
    let has_files = file.reward.spec().files().is_ok_and(|files| !files.is_empty());
    if !has_files {
        return say(format_args!("resume       grpo {resume}"));
    }
    say(format_args!("resume       grpo {resume}   # with the same reward files"));
    match trained {
        Some(trained) => say(format_args!(
            "             after changing a reward file, start a new run from {} (docs/guides/own-reward.md)",
            trained.display()
        )),
        None => {
            let config = run.config_path().display().to_string();
            let again = command_line(["train", &config, "--force"]);
            say(format_args!("             after changing a reward file: grpo {again}"));
        }
    }
}

//! Handles `grpo train --resume` for runs that are already finished.

use std::path::Path;

use grpo_run::{EventKind, Newest, RunFolder, verify};

use crate::evidence::violations_of_files;
use crate::output::say;
use crate::run_files::reopen;
use crate::task::Tasks;
use crate::train_file::TrainFile;

/// Returns whether the run has completed all steps and its model and last checkpoint are intact. If
/// so, it also prints how to train longer.
///
/// # Errors
/// Returns an error if the run cannot be resumed, e.g. because one of its input files has changed.
pub(super) fn is_finished(run: &Path, tasks: &Tasks) -> anyhow::Result<bool> {
    let file = match RunFolder::open(run).map(|folder| TrainFile::of_run(&folder, tasks)) {
        Ok(Ok(loaded)) => loaded.value,
        // The regular resume path reports the error.
        _ => return Ok(false),
    };
    let kind = if file.adapter.is_some() || file.lora.is_some() { "adapter" } else { "model" };
    let steps = u64::from(file.train.steps);
    if !has_all(run, kind, steps).unwrap_or(false) {
        return Ok(false);
    }
    let _locked = reopen(run, |_| Ok(()))?;
    for violation in violations_of_files(run, tasks) {
        say(format_args!("audit        {violation}"));
    }
    let run = run.display();
    say(format_args!(
        "finished     {run}: all {steps} steps are done (`grpo report {run}` shows them)"
    ));
    // A saved adapter replaces the `[lora]` section.
    let start = match file.lora {
        Some(_) => format!("new configuration with adapter = \"{run}/adapter\" in place of [lora]"),
        None => {
            format!("grpo train {run}/config.toml --set {kind}={run}/{kind} --run {run}-longer")
        }
    };
    say(format_args!("train longer {start}"));
    Ok(true)
}

fn has_all(run: &Path, kind: &str, steps: u64) -> anyhow::Result<bool> {
    let folder = RunFolder::open(run)?;
    let events = folder.read_events()?;
    if !matches!(events.last().map(|event| &event.what), Some(EventKind::Finished { .. })) {
        return Ok(false);
    }
    verify(&run.join(kind))?;
    let Newest { whole, damaged } = Newest::of(folder.checkpoints()?);
    Ok(damaged.is_empty() && whole.is_some_and(|(step, _)| step == steps))
}

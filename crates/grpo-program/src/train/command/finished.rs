//! Runs that are already finished, which `grpo train --resume` does not change.

use std::path::Path;

use grpo_run::{EndedBy, EventKind, Newest, RunFolder, verify};
use grpo_task::output::{command_line, say};
use grpo_task::run_files::reopen;
use grpo_task::task::Tasks;

use crate::inspect::evidence::{kind, violations_of_files};
use crate::train_file::TrainFile;

/// A finished run whose files are all there and intact.
pub(super) struct Finished {
    file: TrainFile,
    folder: RunFolder,
    /// Its last step.
    step: u64,
    /// The extension that ended the run, if one did.
    ended_by: Option<EndedBy>,
}

impl Finished {
    /// Returns `None` if the run is not finished. The regular resume path reports unreadable files.
    pub(super) fn of(run: &Path, tasks: &Tasks) -> Option<Self> {
        let folder = RunFolder::open(run).ok()?;
        let file = TrainFile::of_run(&folder, tasks).ok()?.value;
        let last = folder.read_events().ok()?.pop()?;
        let EventKind::Finished { ended_by } = last.what else { return None };
        verify(&run.join(kind(&file))).ok()?;
        let Newest { whole, damaged } = Newest::of(folder.checkpoints().ok()?);
        // It is written after the last evaluation, which may have been interrupted.
        let is_evaluated = file.trainer.eval.samples == 0 || folder.comparison_path().exists();
        let is_whole = damaged.is_empty() && whole.is_some_and(|(step, _)| step == last.step);
        (is_evaluated && is_whole).then_some(Self { file, folder, step: last.step, ended_by })
    }

    /// Checks the files of the run and prints that it is finished.
    ///
    /// # Errors
    /// Returns an error if the run cannot be resumed, e.g. because one of its input files has changed.
    pub(super) fn check(&self, run: &Path, tasks: &Tasks) -> anyhow::Result<()> {
        let reopened = reopen(run, |_, _| Ok(()))?;
        reopened.folder.check_metrics(&reopened.folder.read_events()?)?;
        for violation in violations_of_files(run, tasks) {
            say(format_args!("audit        {violation}"));
        }
        self.say();
        Ok(())
    }

    /// Prints that the run is finished and how to train longer.
    pub(super) fn say(&self) {
        let Self { file, folder, step, ended_by } = self;
        // Unlike the path that was typed, it never looks like an option.
        let run = folder.path().display().to_string();
        let (kind, steps) = (kind(file), file.trainer.train.steps);
        let done = match (u64::from(steps) == *step, ended_by) {
            (true, _) if steps == 1 => "its only step is done".to_owned(),
            (true, _) => format!("all {steps} steps are done"),
            (false, Some(EndedBy { reason, .. })) => {
                format!("it ended after step {step} of {steps}, because {reason}")
            }
            (false, None) => format!(
                "it ended after step {step} of {steps}, because the evaluations no longer improved (eval.patience)"
            ),
        };
        let report = command_line(["report", &run]);
        say(format_args!("finished     {run}: {done}; `grpo {report}` shows the run"));
        let (config, longer) = (format!("{run}/config.toml"), format!("{run}-longer"));
        let mut title = "train longer";
        let mut start = format!("{kind}={run}/{kind}");
        if file.settings.lora.is_some() {
            // The `[lora]` section adds a new adapter, which requires a merged model.
            let base = file.settings.model.display().to_string();
            let (adapter, merged) = (format!("{run}/adapter"), format!("{run}-merged"));
            let words = ["merge", "--model", &base, "--adapter", &adapter, "-o", &merged];
            say(format_args!("{title:<12} grpo {}", command_line(words)));
            (title, start) = ("", format!("model={merged}"));
        }
        let words = ["train", &config, "--set", &start, "--run", &longer];
        say(format_args!("{title:<12} grpo {}", command_line(words)));
    }
}

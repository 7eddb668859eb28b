//! `grpo init-project`: creates a folder with the example files.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use grpo_run::{Existing, RunError, write_folder_atomically};
use grpo_task::output::{command_line, remove_at_exit, say, stop_if_ending};
use grpo_task::task::{CommandGroup, TaskCommand};

use crate::files::FILES;

/// The page that lists the others.
const INDEX: &str = "docs/README.md";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo init-project demo
  cd demo && grpo train configs/molecules/grpo.toml

Paths in the configurations are relative to DIR: run the other commands there.")]
pub(crate) struct InitProjectArguments {
    /// Folder to create; must be empty if it exists
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = "Create a folder with example configurations, models, data and pages";
    TaskCommand::new("init-project", &[about], CommandGroup::Start, |_, arguments| run(arguments))
}

fn run(arguments: &InitProjectArguments) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    ensure!(
        folder.to_str().is_some(),
        "DIR {} is not UTF-8 text, so commands cannot be printed for it; choose another name",
        folder.display()
    );
    create(folder)?;
    let megabytes = FILES.iter().map(|file| file.size).sum::<usize>() as f64 / 1e6;
    say(format_args!(
        "created      {} ({} files, {megabytes:.1} MB)",
        folder.display(),
        FILES.len()
    ));
    say(format_args!("pages        {} lists all guides", folder.join(INDEX).display()));
    let mut title = "next";
    let here = std::env::current_dir().and_then(|path| path.canonicalize()).ok();
    if folder.canonicalize().ok() != here {
        let is_like_option = folder.as_os_str().as_encoded_bytes().starts_with(b"-");
        let folder = if is_like_option { Path::new(".").join(folder) } else { folder.clone() };
        let command = command_line(["cd", &folder.display().to_string()]);
        say(format_args!("{title:<12} {command}"));
        title = "";
    }
    for (command, what) in [
        ("grpo train configs/molecules/grpo.toml", "molecules with higher drug-likeness"),
        ("grpo run configs/replies/pipeline.toml", "replies to tweets, in two phases"),
        ("grpo run configs/infill/pipeline.toml", "blanks in molecules, with a judge"),
    ] {
        say(format_args!("{title:<12} {command}   # {what}"));
        title = "";
    }
    Ok(())
}

/// Writes the examples into a folder that is new or empty.
///
/// # Errors
/// Returns an error if the folder is not empty or cannot be written.
pub fn create(folder: &Path) -> anyhow::Result<()> {
    grpo_task::recorded_folders::refuse_inside(folder, "DIR")?;
    match folder.exists() {
        true => fill_empty(folder),
        false => Ok(write_folder_atomically(folder, Existing::Refuse, |new| write(new, ""))?),
    }
}

/// Writes the examples into an existing empty folder. The folder itself cannot be replaced, because
/// it may be the working directory of the shell. Instead, each subfolder is created atomically.
fn fill_empty(folder: &Path) -> anyhow::Result<()> {
    ensure!(folder.is_dir(), "{} is a file; choose a new folder", folder.display());
    let mut entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    ensure!(
        entries.next().is_none(),
        "{} is not empty; choose a new folder, then copy the files that you want from it",
        folder.display()
    );
    let mut tops: Vec<&str> = FILES.iter().filter_map(|file| file.path.split('/').next()).collect();
    tops.dedup();
    for (done, top) in tops.iter().enumerate() {
        let prefix = format!("{top}/");
        let written =
            write_folder_atomically(&folder.join(top), Existing::Refuse, |new| write(new, &prefix));
        if let Err(error) = written {
            for top in &tops[..done] {
                let _kept = fs::remove_dir_all(folder.join(top));
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Writes all files whose names begin with `prefix`. The prefix is removed from their names.
fn write(folder: &Path, prefix: &str) -> Result<(), RunError> {
    remove_at_exit(folder.to_owned());
    for file in FILES {
        let Some(name) = file.path.strip_prefix(prefix) else { continue };
        stop_if_ending();
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, file.content()?))
            .map_err(|source| RunError::Write { path: path.clone(), source })?;
    }
    stop_if_ending();
    Ok(())
}

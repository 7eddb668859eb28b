//! Creates and opens the run folders of training commands and checks their input files.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_report::command_of;
use grpo_run::{
    Checkpoint, DataFile, Existing, Newest, RunFolder, RunInfo, RunLock, VerifiedFolder,
};

use crate::config;
use crate::output::say;

/// Creates a run folder. With `force`, an existing folder is renamed first.
pub(crate) fn create_run(
    path: &Path,
    force: bool,
    config: &str,
    info: &RunInfo,
) -> anyhow::Result<RunFolder> {
    refuse_inside(path, "--run")?;
    let existing = if force { Existing::Replace } else { Existing::Refuse };
    let (folder, aside) = RunFolder::create(path, existing, config, info)?;
    if let Some(aside) = aside {
        say(format_args!("the previous run is now {}", aside.display()));
    }
    Ok(folder)
}

/// Rejects a `path` inside a model folder or a run, whose manifest would no longer list all of its
/// files. `option` is the command-line option that specifies `path`.
///
/// # Errors
/// Returns an error if a parent folder is a model, an adapter or a run.
pub fn refuse_inside(path: &Path, option: &str) -> anyhow::Result<()> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.ancestors().skip(1).find_map(|above| above.canonicalize().ok());
    for folder in parent.iter().flat_map(|parent| parent.ancestors()) {
        if let Some(what) = kind_of_folder(folder) {
            anyhow::bail!(
                "{} is inside the {what} folder {}; use another folder for {option}",
                path.display(),
                folder.display()
            );
        }
    }
    Ok(())
}

/// Rejects an output file that would replace or join the recorded files of a model or run.
///
/// # Errors
/// Returns an error if `path` is in a model or adapter folder, or is a file of a run. Other names
/// are allowed in the folder of a run.
pub(crate) fn refuse_recorded(path: &Path) -> anyhow::Result<()> {
    const OF_RUN: [&str; 11] = [
        "adapter",
        "checkpoints",
        "comparison.json",
        "completions",
        "config.toml",
        "events.jsonl",
        "ledger.jsonl",
        "metrics.jsonl",
        "model",
        "rolled-back",
        "run.json",
    ];
    let Some(parent) = path.parent().map(|parent| match parent {
        parent if parent == Path::new("") => Path::new("."),
        parent => parent,
    }) else {
        return Ok(());
    };
    let Ok(parent) = parent.canonicalize() else { return Ok(()) };
    let file = parent.join(path.file_name().unwrap_or_default());
    let recorded = parent.ancestors().find_map(|folder| {
        let below = file.strip_prefix(folder).ok()?.components().next()?;
        let is_recorded = match kind_of_folder(folder)? {
            "run" => OF_RUN.iter().any(|name| below.as_os_str() == *name),
            _ => true,
        };
        is_recorded.then_some(folder)
    });
    match recorded {
        Some(folder) => anyhow::bail!(
            "{} belongs to the recorded files of {}; use another output file",
            path.display(),
            folder.display()
        ),
        None => Ok(()),
    }
}

/// Returns `model` for the folder of a model or adapter, `run` for the folder of a run, and `None`
/// for other folders.
fn kind_of_folder(folder: &Path) -> Option<&'static str> {
    let has = |name: &str| folder.join(name).is_file();
    let is_model =
        has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json"));
    let is_adapter = has("adapter_config.json") && has("adapter_model.safetensors");
    match has("run.json") && has("config.toml") {
        true => Some("run"),
        false => (is_model || is_adapter).then_some("model"),
    }
}

/// Checks that the input files of a run have not changed.
pub(crate) fn unchanged(files: &[DataFile]) -> anyhow::Result<()> {
    for file in files {
        let DataFile { role, path, bytes, sha256 } = file;
        let now = DataFile::measure(role, path).with_context(|| {
            format!(
                "`{}`, an input of the run, does not exist; restore it, or change to the folder from which the run was started",
                path.display()
            )
        })?;
        anyhow::ensure!(
            (now.bytes, &now.sha256) == (*bytes, sha256),
            "`{}` is not the file that the run was started with: it has {} bytes and SHA-256 {}, but run.json has {bytes} and {sha256}; restore the original file",
            path.display(),
            now.bytes,
            now.sha256
        );
    }
    Ok(())
}

/// Rejects input files that the run did not use originally.
pub(crate) fn unlisted(
    read: &[(&'static str, PathBuf)],
    of_run: &[DataFile],
) -> anyhow::Result<()> {
    let is_listed = |path: &Path| of_run.iter().any(|file| file.path == path);
    let other = read.iter().find(|(_, path)| !is_listed(path));
    let Some((_, path)) = other else { return Ok(()) };
    anyhow::bail!(
        "`{}` is not an input of the run (run.json); remove it, or restore config.toml",
        path.display()
    )
}

/// Reads the configuration of a run created by `grpo COMMAND`.
///
/// # Errors
/// Returns an error if the run belongs to a different command or has no configuration.
pub(crate) fn config_of_run(
    folder: &RunFolder,
    command: &str,
) -> anyhow::Result<config::Loaded<toml::Table>> {
    let keys = config::load::<toml::Table>(&folder.config_path(), &[])?;
    let (run, other) = (folder.path().display(), command_of(&keys.value));
    anyhow::ensure!(
        other == command,
        "`{run}` is a run of `grpo {other}`; expected a run of `grpo {command}`"
    );
    Ok(keys)
}

/// A locked run to resume.
pub(crate) struct Reopened<T> {
    pub(crate) folder: RunFolder,
    pub(crate) lock: RunLock,
    pub(crate) info: RunInfo,
    pub(crate) config: T,
}

/// Opens and locks a run to resume it. Checks that its configuration, loaded by `read`, and its
/// input files have not changed.
pub(crate) fn reopen<T>(
    run: &Path,
    read: impl FnOnce(&RunFolder) -> anyhow::Result<T>,
) -> anyhow::Result<Reopened<T>> {
    let folder = RunFolder::open(run)?;
    let lock = folder.lock()?;
    let info = folder.read_info()?;
    let config = read(&folder)?;
    unchanged(&info.data)?;
    folder.recover_checkpoints()?;
    folder.clear_leftovers()?;
    folder.check_config(&info)?;
    Ok(Reopened { folder, lock, info, config })
}

/// Returns the last intact checkpoint and prints warnings about newer damaged ones. Returns `None`
/// if the run has no checkpoints.
///
/// # Errors
/// Returns an error if all checkpoints are damaged.
pub(crate) fn last_whole(
    folder: &RunFolder,
    checkpoints: Vec<Checkpoint>,
    command: &str,
) -> anyhow::Result<Option<(u64, VerifiedFolder)>> {
    let Newest { whole, damaged } = Newest::of(checkpoints);
    for fault in &damaged {
        say(format_args!("checkpoint   {fault}"));
    }
    anyhow::ensure!(
        whole.is_some() || damaged.is_empty(),
        "none of the {} checkpoints of `{}` is intact; start a new run in another folder with `grpo {command} {} --run`",
        damaged.len(),
        folder.path().display(),
        folder.config_path().display()
    );
    if let (Some((step, _)), false) = (&whole, damaged.is_empty()) {
        say(format_args!("checkpoint   using that of step {step} instead"));
    }
    Ok(whole)
}

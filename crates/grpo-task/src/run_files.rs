//! Creates and opens the run folders of training commands and checks their input files.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Context;
use grpo_report::{command_of, known_command_of};
use grpo_run::{
    Checkpoint, DataFile, Existing, Newest, RenamedInput, RunDevices, RunError, RunFolder, RunInfo,
    RunLock, VerifiedFolder,
};

use crate::config;
use crate::device::chosen;
use crate::output::{command_line, say};
use crate::recorded_device::{compute_alike, compute_on};
use crate::recorded_folders::refuse_inside;
use crate::used_inputs::{CurrentInfo, info_with_inputs, update_paths};
use crate::written_by::result_of;

/// Returns what happens to an existing run: with `force`, it is renamed.
pub fn existing(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Refuse }
}

/// Creates a run folder. With `force`, an existing folder is renamed first.
pub fn create_run(
    path: &Path,
    force: bool,
    config: &str,
    info: &RunInfo,
) -> anyhow::Result<RunFolder> {
    refuse_inside(path, "--run")?;
    let (folder, aside) = RunFolder::create(path, existing(force), config, info)?;
    if let Some(aside) = aside {
        say(format_args!("the previous run is now {}", aside.display()));
    }
    Ok(folder)
}

/// Checks that the input files of a run have not changed. `resumed` is the folder of a run that would
/// continue.
pub fn unchanged(resumed: Option<&RunFolder>, files: &[DataFile]) -> anyhow::Result<()> {
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
            "`{}` is not the file that the run was started with: it has {} bytes and SHA-256 {}, but run.json has {bytes} and {sha256}; restore the original file, or {}",
            path.display(),
            now.bytes,
            now.sha256,
            match resumed {
                Some(folder) if is_replaceable(folder, role) => continue_in_new_run(folder),
                _ => "start a new run with --run".to_owned(),
            }
        );
    }
    Ok(())
}

/// Returns whether a new run can continue a run of `grpo train` without the original file: a reward, or
/// the model or adapter that is trained.
fn is_replaceable(folder: &RunFolder, role: &str) -> bool {
    let keys = config::load::<toml::Table>(&folder.config_path(), &[]);
    keys.is_ok_and(|keys| {
        command_of(&keys.value) == "train" && (role == "reward" || role == result_of(&keys.value))
    })
}

/// Describes how to continue training with a changed reward. A run has one reward from its first
/// to its last step, so this takes a new run, which starts from the policy of the old one.
fn continue_in_new_run(folder: &RunFolder) -> String {
    let run = folder.path();
    let newest = || Some(folder.newest_checkpoint(None).ok()?.whole?.1.path().to_owned());
    let trained = ["model", "adapter"].map(|kind| run.join(kind));
    let trained = trained.into_iter().find(|folder| folder.is_dir()).or_else(newest);
    let config = folder.config_path().display().to_string();
    let Some(trained) = trained else {
        return format!("start again in a new run: `grpo train {config} --run NEW`");
    };
    let train = |key: &str, start: &Path| {
        let start = format!("{key}={}", start.display());
        command_line(["grpo", "train", &config, "--set", &start, "--run", "NEW"])
    };
    let sentence = "continue training in a new run, which starts from the policy of this one:";
    if !trained.join("adapter_config.json").is_file() {
        return format!("{sentence} `{}`", train("model", &trained));
    }
    let keys = config::load::<toml::Table>(&folder.config_path(), &[]);
    let keys = keys.map(|keys| keys.value).unwrap_or_default();
    if keys.contains_key("adapter") {
        return format!("{sentence} `{}`", train("adapter", &trained));
    }
    // `[lora]` adds a new adapter, which requires a merged model.
    let base = keys.get("model").and_then(toml::Value::as_str).unwrap_or("MODEL");
    let adapter = trained.display().to_string();
    let merge =
        command_line(["grpo", "merge", "--model", base, "--adapter", &adapter, "-o", "MERGED"]);
    format!("{sentence} `{merge}`, then `{}`", train("model", Path::new("MERGED")))
}

/// Rejects input files that the run did not use originally.
pub fn unlisted<'a>(
    mut read: impl Iterator<Item = &'a Path>,
    of_run: &[DataFile],
) -> anyhow::Result<()> {
    let is_listed = |path: &Path| of_run.iter().any(|file| file.path == path);
    let Some(path) = read.find(|path| !is_listed(path)) else { return Ok(()) };
    anyhow::bail!(
        "`{}` is not an input of the run (run.json); remove it, or restore config.toml",
        path.display()
    )
}

/// Rejects a configuration of another command than `grpo COMMAND`.
///
/// # Errors
/// Returns an error that names the right command.
pub fn refuse_other_command(keys: &toml::Table, path: &Path, command: &str) -> anyhow::Result<()> {
    let path = path.display();
    match known_command_of(keys) {
        Some(other) if other != command => {
            anyhow::bail!("{path} is a configuration of `grpo {other}`; run `grpo {other} {path}`")
        }
        _ => Ok(()),
    }
}

/// Reads the configuration of a run created by `grpo COMMAND`.
///
/// # Errors
/// Returns an error if the run belongs to a different command or has no configuration.
pub fn config_of_run(
    folder: &RunFolder,
    command: &str,
) -> anyhow::Result<config::Loaded<toml::Table>> {
    let keys = config::load::<toml::Table>(&folder.config_path(), &[])
        .map_err(|error| or_changed_config(folder, error))?;
    let (run, other) = (folder.path().display(), command_of(&keys.value));
    if other != command {
        let error = anyhow::anyhow!(
            "`{run}` is a run of `grpo {other}`; expected a run of `grpo {command}`"
        );
        return Err(or_changed_config(folder, error));
    }
    Ok(keys)
}

/// Returns the error of a recorded configuration: that it has changed since the run started, if this is
/// so. What it lacks then need not be added.
pub fn or_changed_config(folder: &RunFolder, error: anyhow::Error) -> anyhow::Error {
    let checked = folder.read_info().and_then(|info| folder.check_config(&info));
    match checked {
        Err(changed @ RunError::ConfigChanged { .. }) => changed.into(),
        _ => error,
    }
}

/// Like [`config_of_run`], with the paths that the inputs have now.
pub fn config_with_inputs(
    folder: &RunFolder,
    command: &str,
    renamed: &[RenamedInput],
) -> anyhow::Result<config::Loaded<toml::Table>> {
    let mut keys = config_of_run(folder, command)?;
    config::drop_removed_of_run(&mut keys.value, &keys.origin)?;
    update_paths(&mut keys.value, renamed);
    Ok(keys)
}

/// A locked run to resume.
pub struct Reopened<T> {
    /// Folder of the run.
    pub folder: RunFolder,
    /// Lock, held while the run continues.
    pub lock: RunLock,
    /// What the run recorded about itself.
    pub info: RunInfo,
    /// Configuration.
    pub config: T,
}

/// Opens and locks a run to resume it. Checks that its configuration, loaded by `read`, and its
/// input files have not changed. `read` receives the inputs that were renamed.
pub fn reopen<T>(
    run: &Path,
    read: impl FnOnce(&RunFolder, &[RenamedInput]) -> anyhow::Result<T>,
) -> anyhow::Result<Reopened<T>> {
    let folder = RunFolder::open(run)?;
    // Nothing is changed in a run that is refused in the middle of it.
    if let Some(foreign) = folder.foreign_files().into_iter().next() {
        return Err(foreign.into());
    }
    let lock = folder.lock()?;
    let CurrentInfo { info, renamed } = info_with_inputs(&folder)?;
    let config = read(&folder, &renamed)?;
    unchanged(Some(&folder), &info.data)?;
    folder.recover_checkpoints()?;
    folder.clear_leftovers()?;
    folder.check_config(&info)?;
    Ok(Reopened { folder, lock, info, config })
}

/// Computes on the last device of the run, unless another one was chosen with `--device`.
pub fn stay_on_device(folder: &RunFolder, info: &RunInfo) -> anyhow::Result<()> {
    let devices = RunDevices::of(info, &folder.read_events()?);
    compute_on(devices.last(), "the run").map(drop)
}

/// Computes on the device of the steps `repeated`, unless another one was chosen with `--device`.
///
/// # Errors
/// Returns an error if they were computed on different devices, or if the run would then continue on
/// another device than its last one, although none was chosen.
pub fn repeat_on_device(
    folder: &RunFolder,
    info: &RunInfo,
    mut repeated: RangeInclusive<u64>,
) -> anyhow::Result<()> {
    let devices = RunDevices::of(info, &folder.read_events()?);
    let first = *repeated.start();
    let device = devices.of_step(first);
    let is_alike = |step| compute_alike(device, devices.of_step(step));
    anyhow::ensure!(
        repeated.all(is_alike),
        "the steps from {first} on cannot be repeated on one device: {devices}; resume without --verify"
    );
    anyhow::ensure!(
        chosen().is_some() || compute_alike(device, devices.last()),
        "step {first} was computed on {device}, but the run was then resumed on {}; choose one of them with --device, or resume without --verify",
        devices.last()
    );
    compute_on(device, &format!("step {first}")).map(drop)
}

/// Returns the last intact checkpoint and prints warnings about newer damaged ones. Returns `None`
/// if the run has no checkpoints.
///
/// # Errors
/// Returns an error if all checkpoints are damaged.
pub fn last_whole(
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
        say(format_args!("checkpoint   using the one from step {step} instead"));
    }
    Ok(whole)
}

//! Models that other runs were started from. They are kept when a command replaces them, and runs find
//! their inputs under the new names.

use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};

use grpo_data::regular_file;
use grpo_run::{RenamedInput, RunFolder, RunInfo, sha256_of_manifest};
use toml::{Table, Value};

use crate::output::{say, say_aside};

/// Levels of folders that are searched for runs.
const LEVELS: usize = 4;
/// Maximum number of files and folders that the search looks at.
const MOST_ENTRIES: usize = 5_000;

/// Returns the information about a run with the paths that its inputs have now, and prints which of them
/// were renamed.
pub(crate) fn info_with_inputs(folder: &RunFolder) -> anyhow::Result<RunInfo> {
    let mut info = folder.read_info()?;
    for RenamedInput { was, is } in info.find_renamed() {
        say(format_args!(
            "note         {} was replaced after the run started from it; the run uses the earlier one, which is now {}",
            was.display(),
            is.display()
        ));
    }
    Ok(info)
}

/// Replaces the paths of renamed inputs in the recorded configuration of a run.
pub(crate) fn update_paths(folder: &RunFolder, keys: &mut Table) {
    // Other code reports a run.json that cannot be read.
    let renamed = folder.read_info().map(|mut info| info.find_renamed()).unwrap_or_default();
    if !renamed.is_empty() {
        let keys = keys.iter_mut().filter(|(key, _)| *key != "run");
        keys.for_each(|(_, value)| rename(value, &renamed));
    }
}

/// Replaces the paths of renamed inputs in a value of a configuration.
fn rename(value: &mut Value, renamed: &[RenamedInput]) {
    match value {
        Value::String(text) => {
            let now = renamed.iter().find_map(|input| input.path_now(Path::new(text.as_str())));
            if let Some(now) = now {
                *text = now.display().to_string();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, renamed)),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| rename(value, renamed)),
        _ => {}
    }
}

/// Returns a run whose inputs include the folder `model` with its present contents. Looks at the runs
/// around it, so that a run elsewhere is not found.
pub(crate) fn user_of(model: &Path) -> Option<PathBuf> {
    let manifest = sha256_of_manifest(model).ok()?;
    let is_run = |folder: &Path| folder.join("run.json").is_file();
    let own = model.ancestors().skip(1).find(|folder| is_run(folder));
    let mut left = MOST_ENTRIES;
    let mut folders = VecDeque::from([(top_of(model, own), 0)]);
    while let Some((folder, level)) = folders.pop_front() {
        if is_run(&folder) {
            let text = regular_file::read_to_string(&folder.join("run.json"));
            if own != Some(&folder) && text.is_ok_and(|text| text.contains(&manifest)) {
                return Some(folder);
            }
            continue;
        }
        let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let Ok(entries) = listed.read_dir() else { continue };
        let entries = entries.take(left).filter_map(Result::ok).collect::<Vec<_>>();
        left -= entries.len();
        let is_searched = |entry: &std::fs::DirEntry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            is_folder && !entry.file_name().to_string_lossy().starts_with('.')
        };
        if level < LEVELS {
            let below = entries.iter().filter(|entry| is_searched(entry));
            let below = below.map(|entry| (folder.join(entry.file_name()), level + 1));
            let mut below: Vec<(PathBuf, usize)> = below.collect();
            below.sort_unstable();
            folders.extend(below);
        }
    }
    None
}

/// Returns the folder in which runs are searched: the one that contains the run or model, or the
/// outermost one of a relative path, such as `runs`.
fn top_of(model: &Path, own: Option<&Path>) -> PathBuf {
    let around = own.unwrap_or(model).parent().unwrap_or(Path::new(""));
    match around.components().next() {
        Some(Component::Normal(first)) => PathBuf::from(first),
        _ => around.to_owned(),
    }
}

/// Renames a model that is about to be replaced by the one in `new`, with `move_aside`, if another run
/// was started from it. That run can then still be resumed.
pub(crate) fn keep_used<E>(
    model: &Path,
    new: &Path,
    move_aside: impl FnOnce() -> Result<Option<PathBuf>, E>,
) -> Result<(), E> {
    let is_same = sha256_of_manifest(model).ok() == sha256_of_manifest(new).ok();
    if !is_same
        && let Some(user) = user_of(model)
        && let Some(aside) = move_aside()?
    {
        say_kept(model, &aside, &user);
    }
    Ok(())
}

/// Prints where the model is that the run `user` was started from.
pub(crate) fn say_kept(model: &Path, aside: &Path, user: &Path) {
    say_aside(format_args!(
        "note: {} was started from {}, which is kept as {}; it resumes with that one",
        user.display(),
        model.display(),
        aside.display()
    ));
}

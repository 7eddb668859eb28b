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
const MOST_ENTRIES: usize = 20_000;

/// The information about a run, with the paths that its inputs have now.
pub struct CurrentInfo {
    /// What the run recorded about itself.
    pub info: RunInfo,
    /// Inputs with other paths than those that the run recorded.
    pub renamed: Vec<RenamedInput>,
}

/// Returns the information about a run with the paths that its inputs have now, and prints which of them
/// were renamed.
pub fn info_with_inputs(folder: &RunFolder) -> anyhow::Result<CurrentInfo> {
    let mut info = folder.read_info()?;
    let renamed = info.find_renamed();
    for RenamedInput { original, current } in &renamed {
        say(format_args!(
            "note         {} was replaced after the run started from it; the run uses the earlier one, which is now {}",
            original.display(),
            current.display()
        ));
    }
    Ok(CurrentInfo { info, renamed })
}

/// Returns the renamed inputs of a run. Other code reports a `run.json` that cannot be read.
pub fn renamed_inputs(folder: &RunFolder) -> Vec<RenamedInput> {
    folder.read_info().map(|mut info| info.find_renamed()).unwrap_or_default()
}

/// Replaces the paths of renamed inputs in the recorded configuration of a run.
pub(crate) fn update_paths(keys: &mut Table, renamed: &[RenamedInput]) {
    if !renamed.is_empty() {
        let keys = keys.iter_mut().filter(|(key, _)| *key != "run");
        keys.for_each(|(_, value)| rename(value, renamed));
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

/// Whether a run was started from a model.
pub enum Dependents {
    /// This run was.
    Used(PathBuf),
    /// None of the runs around the model was.
    Unused,
    /// The search was cut off, a run could not be read, or the model has no manifest to search for.
    Unknown,
}

/// Returns whether the inputs of a run include the folder `model` with its present contents. Looks at the
/// runs around it, so that a run elsewhere is not found.
pub fn dependents(model: &Path) -> Dependents {
    dependents_of_each(&[model]).pop().unwrap_or(Dependents::Unused)
}

/// Like [`dependents`], for several models of one run. All of them are searched for at once.
pub(crate) fn dependents_of_each(models: &[&Path]) -> Vec<Dependents> {
    dependents_within(models, MOST_ENTRIES)
}

fn dependents_within(models: &[&Path], most_entries: usize) -> Vec<Dependents> {
    let manifests: Vec<Option<String>> =
        models.iter().map(|model| sha256_of_manifest(model).ok()).collect();
    let mut users: Vec<Option<PathBuf>> = vec![None; models.len()];
    let mut is_complete = true;
    if let Some(first) = models.first().filter(|_| manifests.iter().any(Option::is_some)) {
        is_complete = visit_runs(first, most_entries, |run, info| {
            for (manifest, user) in manifests.iter().zip(&mut users) {
                let is_listed = manifest.as_ref().is_some_and(|manifest| info.contains(manifest));
                if is_listed && user.is_none() {
                    *user = Some(run.to_owned());
                }
            }
        });
    }
    let each = models.iter().zip(manifests).zip(users);
    let each = each.map(|((model, manifest), user)| match (manifest, user) {
        (_, Some(user)) => Dependents::Used(user),
        (Some(_), None) if is_complete => Dependents::Unused,
        (None, None) if !has_entries(model) => Dependents::Unused,
        (_, None) => Dependents::Unknown,
    });
    each.collect()
}

/// Calls `visit` with the folder and the `run.json` of each run around `model`, other than its own.
/// Returns whether all of them could be read.
fn visit_runs(model: &Path, most_entries: usize, mut visit: impl FnMut(&Path, &str)) -> bool {
    let is_run = |folder: &Path| folder.join("run.json").is_file();
    let own = model.ancestors().skip(1).find(|folder| is_run(folder));
    let mut is_complete = true;
    let mut left = most_entries;
    let mut folders = VecDeque::from([Searched { folder: top_of(model, own), level: 0 }]);
    while let Some(Searched { folder, level }) = folders.pop_front() {
        if is_run(&folder) {
            match regular_file::read_to_string(&folder.join("run.json")) {
                _ if own == Some(&folder) => {}
                Ok(text) => visit(&folder, &text),
                Err(_) => is_complete = false,
            }
            continue;
        }
        let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let Ok(mut entries) = listed.read_dir() else { continue };
        let taken = entries.by_ref().take(left).filter_map(Result::ok).collect::<Vec<_>>();
        left -= taken.len();
        is_complete &= entries.next().is_none();
        let is_searched = |entry: &std::fs::DirEntry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            is_folder && !entry.file_name().to_string_lossy().starts_with('.')
        };
        if level < LEVELS {
            let below = taken.iter().filter(|entry| is_searched(entry));
            let below = below.map(|entry| folder.join(entry.file_name()));
            let mut below: Vec<PathBuf> = below.collect();
            below.sort_unstable();
            folders.extend(below.into_iter().map(|folder| Searched { folder, level: level + 1 }));
        }
    }
    is_complete
}

/// A folder in which runs are searched, and its depth below the first one.
struct Searched {
    folder: PathBuf,
    level: usize,
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
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
/// was started from it or may have been. That run can then still be resumed.
pub(crate) fn keep_used<E>(
    model: &Path,
    new: &Path,
    move_aside: impl FnOnce() -> Result<Option<PathBuf>, E>,
) -> Result<(), E> {
    let manifest = sha256_of_manifest(model).ok();
    if manifest.is_some() && manifest == sha256_of_manifest(new).ok() {
        return Ok(());
    }
    let found = dependents(model);
    if !matches!(found, Dependents::Unused)
        && let Some(aside) = move_aside()?
    {
        say_kept(model, &aside, &found);
    }
    Ok(())
}

/// Prints where a model is that runs were started from, or may have been.
pub fn say_kept(model: &Path, aside: &Path, found: &Dependents) {
    let (model, aside) = (model.display(), aside.display());
    match found {
        Dependents::Used(run) => say_aside(format_args!(
            "note: {} was started from {model}, which is kept as {aside}; it resumes with that one",
            run.display()
        )),
        Dependents::Unknown => say_aside(format_args!(
            "note: {model} is kept as {aside}, because not all runs around it could be searched for one that was started from it; delete {aside} if there is none"
        )),
        Dependents::Unused => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use grpo_run::write_manifest;

    use super::*;

    #[test]
    fn a_search_that_is_cut_off_does_not_say_that_a_model_is_unused() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["runs/a/model", "runs/a/other", "runs/a/plain", "runs/b", "runs/c"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("x"), name).unwrap();
        }
        write_manifest(&at("runs/a/model")).unwrap();
        write_manifest(&at("runs/a/other")).unwrap();
        let manifest = sha256_of_manifest(&at("runs/a/model")).unwrap();
        fs::write(at("runs/a/run.json"), "{}").unwrap();
        fs::write(at("runs/b/run.json"), format!("{{\"sha256\": \"{manifest}\"}}")).unwrap();
        let models = ["model", "other", "plain", "none"].map(|name| at("runs/a").join(name));
        let models: Vec<&Path> = models.iter().map(PathBuf::as_path).collect();
        let found = |most_entries: usize| {
            let each = dependents_within(&models, most_entries).into_iter();
            let word = |found: Dependents| match found {
                Dependents::Used(run) => {
                    run.strip_prefix(place.path()).unwrap().display().to_string()
                }
                Dependents::Unused => "unused".to_owned(),
                Dependents::Unknown => "unknown".to_owned(),
            };
            each.map(word).collect::<Vec<_>>()
        };
        assert_eq!(found(MOST_ENTRIES), ["runs/b", "unused", "unknown", "unused"]);
        assert_eq!(found(0), ["unknown", "unknown", "unknown", "unused"]);
    }
}

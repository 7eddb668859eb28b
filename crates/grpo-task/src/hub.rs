//! Models, adapters and data sets that are named as on the Hugging Face hub.
//!
//! A name becomes the path of a snapshot in the cache of the hub's tools. The path contains the commit, and is what a run
//! records. So `--resume`, `replay` and `audit` use the same files, and where the cache lacks them, they are downloaded
//! again at the same commit.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use grpo_data::DataFiles;
use grpo_hub::{
    DataName, FileRequest, Hub, HubError, HubSettings, Progress, RepoName, Snapshot, is_name,
};
use toml::{Table, Value};

use crate::file_pattern::matching_files;
use crate::output::say_aside;
use crate::phase::{self, Phase};

/// Files of a model or adapter that are needed, by the order in which formats are preferred.
const NEEDED: &[&[&str]] = &[
    &["config.json", "adapter_config.json"],
    &[
        "model*.safetensors",
        "adapter_model.safetensors",
        "*.safetensors",
        "pytorch_model*.bin",
        "adapter_model.bin",
    ],
];

/// Files that are taken too: tokenizers, chat templates, indices of weights, licences and cards.
const OPTIONAL: &[&str] = &[
    "*.json",
    "*.jinja",
    "*.model",
    "merges.txt",
    "vocab.txt",
    "LICENSE*",
    "README.md",
    // Those of sentence-transformers.
    "*_Pooling/config.json",
    "*_Dense/config.json",
    "*_Dense/model.safetensors",
];

/// Bytes in the unit of the progress.
const MEGABYTE: u64 = 1_000_000;

/// Returns the folder of a model or adapter: the path itself, or the snapshot of a name such as
/// `org/name@revision`, which is downloaded if the cache lacks it.
///
/// # Errors
/// Returns an error if a name is not valid, or if its files cannot be downloaded.
pub fn model_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let Some(repo) = RepoName::of_path(path)? else { return Ok(path.to_owned()) };
    match files(&repo, NEEDED, OPTIONAL, false) {
        // Perhaps it is the path of a folder, with a spelling mistake.
        Err(error @ (HubError::Connection { .. } | HubError::Offline { .. })) => bail!(
            "`{}` is not a folder here, and as a name of the hub it cannot be used: {error}",
            path.display()
        ),
        found => Ok(found?.folder),
    }
}

/// Replaces names of models and adapters by their folders. See [`model_folder`].
///
/// # Errors
/// Returns an error if a name is not valid, or if its files cannot be downloaded.
pub fn find_folders<'a>(folders: impl IntoIterator<Item = &'a mut PathBuf>) -> anyhow::Result<()> {
    folders.into_iter().try_for_each(|folder| {
        *folder = model_folder(folder)?;
        Ok(())
    })
}

/// Keys whose text is the folder of a model, wherever they are in a configuration.
const FOLDER_KEYS: [&str; 5] = ["adapter", "infiller", "judge", "second_judge", "start"];

/// Sections in which the key is the folder of a model.
const SECTIONS: [[&str; 2]; 2] = [["judge", "model"], ["embedder", "folder"]];

/// Replaces names of the hub by folders, in all keys of a section of a configuration that name models: those of
/// judges, embedders, infillers and what training starts from. `section` is its path, empty for the whole
/// configuration. Returns whether a value has changed.
///
/// # Errors
/// Returns an error if a name is not valid, or if its files cannot be downloaded.
pub fn find_models(section: &str, table: &mut Table) -> anyhow::Result<bool> {
    let mut has_changed = false;
    for_each_model(section, table, &mut |place, text| {
        let folder = model_folder(Path::new(text.as_str()));
        let folder = folder.with_context(|| format!("{place} = \"{text}\""))?;
        if folder != Path::new(text.as_str()) {
            *text = folder.display().to_string();
            has_changed = true;
        }
        Ok(())
    })?;
    Ok(has_changed)
}

/// Returns the names of the hub that [`find_models`] would replace.
pub fn model_names(table: &Table) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let added = for_each_model("", &mut table.clone(), &mut |_, text| {
        names.extend(Some(PathBuf::from(text.as_str())).filter(|path| is_name(path)));
        Ok(())
    });
    debug_assert!(added.is_ok(), "nothing here fails");
    names
}

/// Calls `visit` with the place and the value of each key that names a model.
fn for_each_model(
    section: &str,
    table: &mut Table,
    visit: &mut dyn FnMut(&str, &mut String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let name = section.rsplit(['.', '[']).next().unwrap_or_default();
    for (key, value) in table.iter_mut() {
        let place = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match value {
            Value::Table(table) => for_each_model(&place, table, visit)?,
            Value::Array(values) => {
                for (index, value) in values.iter_mut().enumerate() {
                    if let Value::Table(table) = value {
                        for_each_model(&format!("{place}[{index}]"), table, visit)?;
                    }
                }
            }
            Value::String(text)
                if FOLDER_KEYS.contains(&key.as_str())
                    || SECTIONS.contains(&[name, key.as_str()]) =>
            {
                visit(&place, text)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Downloads a model or adapter, or returns what the cache has if that is the newest commit.
///
/// # Errors
/// Returns an error if the text is not a name, or if its files cannot be downloaded.
pub fn download_model(repo: &RepoName) -> Result<Snapshot, HubError> {
    files(repo, NEEDED, OPTIONAL, true)
}

/// Like [`download_model`], for files of a data set.
///
/// # Errors
/// Returns an error if the files cannot be downloaded.
pub fn download_data(name: &DataName) -> Result<Snapshot, HubError> {
    files(&name.repo, &[&[name.pattern.as_str()]], &[], true)
}

/// Returns the data files that a setting stands for. `hf://datasets/org/name@revision/path` becomes a file in
/// the cache, which is downloaded if the cache lacks it, and a pattern becomes all files that match it, sorted
/// by name.
///
/// # Errors
/// Returns an error if a name is not valid, if no file matches a pattern, or if a file cannot be downloaded.
/// `key` is the name of the setting.
pub fn data_files(key: &str, files: &DataFiles) -> anyhow::Result<DataFiles> {
    files.replaced(|path| {
        found_files(path).with_context(|| format!("{key} = \"{}\"", path.display()))
    })
}

fn found_files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Some(name) = DataName::of_path(path)? else {
        let Some(found) = matching_files(path) else { return Ok(vec![path.to_owned()]) };
        anyhow::ensure!(!found.is_empty(), "no file matches the pattern; check the path");
        return Ok(found);
    };
    let snapshot = files(&name.repo, &[&[name.pattern.as_str()]], &[], false)?;
    Ok(snapshot.files.iter().map(|file| snapshot.folder.join(file)).collect())
}

fn files(
    repo: &RepoName,
    needed: &[&[&str]],
    optional: &[&str],
    newest: bool,
) -> Result<Snapshot, HubError> {
    let hub = Hub::new(HubSettings::from_environment()?)?;
    let request = FileRequest { repo, needed, optional, newest };
    let mut shown = Shown::default();
    let snapshot = hub.files(&request, &mut |progress| shown.update(repo, progress))?;
    drop(shown);
    if snapshot.downloaded > 0 {
        say_aside(format_args!(
            "downloaded   {repo} at commit {} ({:.1} MB)",
            snapshot.commit,
            snapshot.downloaded as f64 / MEGABYTE as f64
        ));
    }
    Ok(snapshot)
}

/// The progress on the terminal.
#[derive(Default)]
struct Shown {
    phase: Option<Phase>,
    file: String,
}

impl Shown {
    fn update(&mut self, repo: &RepoName, progress: &Progress<'_>) -> ControlFlow<()> {
        match *progress {
            Progress::Downloading { file, done, size } => {
                if self.file != file {
                    // The earlier one ends first, because one phase is shown at a time.
                    self.phase = None;
                    self.phase = Some(Phase::begin(format!("downloading {file} of {repo} (MB)")));
                    file.clone_into(&mut self.file);
                }
                let megabytes =
                    |bytes: u64| usize::try_from(bytes / MEGABYTE).unwrap_or(usize::MAX);
                phase::progress(megabytes(done), megabytes(size.unwrap_or(0)));
            }
            Progress::Retrying { error, left, .. } if self.file != error.to_string() => {
                self.phase = None;
                self.file = error.to_string();
                say_aside(format_args!(
                    "note         {error}; trying again in {:.0} s",
                    left.as_secs_f64()
                ));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the hub are tested through the program. Here, invalid ones show which keys are read.
    #[test]
    fn keys_with_models() {
        let check = |text: &str, expect: Option<&str>| {
            let mut table: Table = toml::from_str(text).unwrap();
            let before = table.clone();
            match (find_models("", &mut table), expect) {
                (Ok(has_changed), None) => assert!(!has_changed && table == before, "{text}"),
                (Err(error), Some(place)) => {
                    let said = format!("{error:#}");
                    assert!(
                        said.starts_with(&format!("{place} = \"hf://x\": `hf://x` ")),
                        "{said}"
                    );
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        };
        for place in [
            "start",
            "adapter",
            "infiller",
            "reward.judge",
            "reward.second_judge",
            "reward.embedder.folder",
            "pretrain.diversity.embedder.folder",
            "modifiers.judge.model",
        ] {
            check(&format!("{place} = 'hf://x'"), Some(place));
        }
        let nested = "[[reward.parts]]\nweight = 1\n[[reward.parts]]\nembedder.folder = 'hf://x'";
        check(nested, Some("reward.parts[1].embedder.folder"));
        // Models of servers, and everything that is not the name of a model.
        for text in [
            "reward.model = 'hf://x'",
            "judge = 3",
            "reward.embedder.type = 'hf://x'",
            "run = 'hf://x'",
            "start = 'runs/x/model'",
            "reward.judge = './a/b'",
        ] {
            check(text, None);
        }
    }
}

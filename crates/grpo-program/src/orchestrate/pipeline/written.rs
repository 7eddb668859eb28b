//! What a command of a pipeline writes outside of run folders, and what of it may be replaced.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use grpo_run::DataFile;
use grpo_task::output::{is_device, is_same_place};

use super::parsed::{Output, Parsed};
use super::record::{StageRecord, WrittenPath};
use super::spelled_out::spelled_out;

/// The files and folders that a command writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Outputs that are listed in the pipeline file, followed by those of the command's options.
    paths: Vec<PathBuf>,
    /// Those of the options that are folders.
    folders: Vec<PathBuf>,
    /// Listed outputs that no argument names, neither themselves nor a folder around them.
    unnamed: Vec<PathBuf>,
    /// Whether the command replaces existing files with `--force`.
    accepts_force: bool,
}

/// A result that has changed since a pipeline wrote it.
pub(super) struct ChangedResult {
    pub(super) path: PathBuf,
    /// The file or folder that contains all results of the command.
    pub(super) place: PathBuf,
}

impl Written {
    /// Returns what a command with these words writes. `listed` are the outputs of its stage.
    pub(super) fn of_command(parsed: &Parsed, words: &[String], listed: &[PathBuf]) -> Self {
        let outputs = parsed.written().into_iter().map(|output| output.path);
        let named: Vec<PathBuf> =
            outputs.chain(parsed.read()).map(|path| spelled_out(&path)).collect();
        let is_named = |path: &Path| named.iter().any(|of| spelled_out(path).starts_with(of));
        let mut written = Self {
            paths: listed.to_vec(),
            folders: Vec::new(),
            unnamed: listed.iter().filter(|path| !is_named(path)).cloned().collect(),
            accepts_force: parsed.accepts_force(words),
        };
        for Output { path, is_folder } in parsed.written() {
            if is_folder {
                written.folders.push(path.clone());
            }
            if !written.paths.contains(&path) {
                written.paths.push(path);
            }
        }
        written.paths.retain(|path| path.is_dir() || !is_device(path));
        written
    }

    /// Returns whether the command replaces existing files with `--force`.
    pub(super) fn accepts_force(&self) -> bool {
        self.accepts_force
    }

    /// Returns the files and folders that the command is known to write.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns all paths that are not folders.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.paths.iter().filter(|path| !self.folders.contains(path))
    }

    /// Returns whether the path is a file or folder that the command is known to write.
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.paths.iter().any(|own| is_same_place(own, path))
    }

    /// Returns whether the command has to replace results of this pipeline. `writer` is the stage or
    /// summary, and `renames` says whether `--force` would rename what is in its way.
    ///
    /// # Errors
    /// Returns an error if it would replace anything else.
    pub(super) fn replaces(&self, writer: &str, renames: bool) -> anyhow::Result<bool> {
        if !self.accepts_force {
            return Ok(false);
        }
        let known = self.known();
        let hint = if renames { " (--force does so)" } else { "" };
        let mut others = None;
        let mut replaces = false;
        for path in self.paths.iter().filter(|path| path.exists()) {
            let own = known.iter().find(|own| is_same_place(&own.path, path));
            if path.is_dir() {
                match own {
                    Some(_) => replaces = true,
                    None if has_entries(path) => others = Some(path),
                    None => {}
                }
                continue;
            }
            // A command that creates a folder would refuse the other files in it.
            let place = self.place_of(path);
            let (folder, is_in_folder) = (place.display(), place != *path);
            let (rename, other) = match (is_in_folder, renames) {
                (false, _) => (format!("rename it{hint}, or "), "write another file"),
                (true, true) => {
                    (format!("rename the folder {folder}{hint}, or "), "write to another folder")
                }
                // It contains an input.
                (true, false) => (String::new(), "write to another folder"),
            };
            ensure!(
                own.is_some(),
                "{} exists, but this pipeline did not write it; {rename}let {writer} {other}",
                path.display()
            );
            let recorded = own.and_then(|own| own.sha256.as_ref());
            ensure!(
                recorded.is_none_or(|recorded| Some(recorded) == sha256_of(path).as_ref()),
                "{} has changed since this pipeline wrote it, and {writer} would replace it; {rename}let {writer} {other}",
                path.display()
            );
            replaces = true;
        }
        if let (true, Some(folder)) = (replaces, others) {
            anyhow::bail!(
                "{} contains files that this pipeline did not write, and {writer} could replace them; move them{}, or let it write to another folder",
                folder.display(),
                if renames { " (--force renames the folder)" } else { "" }
            );
        }
        Ok(replaces)
    }

    /// Refuses a listed output that exists, although neither this pipeline wrote it nor an argument of
    /// `writer` names it: it belongs to something else, and renaming it would not help the command.
    ///
    /// # Errors
    /// Returns an error if there is one.
    pub(super) fn refuse_unnamed(&self, writer: &str) -> anyhow::Result<()> {
        let known = self.known();
        let is_own = |path: &Path| known.iter().any(|own| is_same_place(&own.path, path));
        let foreign = self.unnamed.iter().find(|path| path.exists() && !is_own(path));
        match foreign {
            None => Ok(()),
            Some(path) => anyhow::bail!(
                "{} exists, but this pipeline did not write it, and the arguments of {writer} do not name it; correct its outputs in the pipeline file, or move the file",
                path.display()
            ),
        }
    }

    /// Returns the existing files and folders that the command would replace although they are not
    /// results of this pipeline, or have changed since.
    pub(super) fn foreign(&self) -> Vec<PathBuf> {
        let known = self.known();
        let is_foreign = |path: &PathBuf| {
            let own = known.iter().find(|own| is_same_place(&own.path, path));
            match (path.is_dir(), own) {
                (true, own) => own.is_none() && has_entries(path),
                (false, None) => true,
                (false, Some(own)) => own.sha256.is_some() && own.sha256 != sha256_of(path),
            }
        };
        let mut places: Vec<PathBuf> = Vec::new();
        let existing = self.paths.iter().filter(|path| self.accepts_force && path.exists());
        for path in existing.filter(|path| is_foreign(path)) {
            let place = self.place_of(path);
            if !places.iter().any(|other| is_same_place(other, &place)) {
                places.push(place);
            }
        }
        places
    }

    /// Returns a result that has changed since this pipeline wrote it.
    pub(super) fn changed(&self) -> Option<ChangedResult> {
        let mut known = self.known().into_iter();
        let is_changed =
            |own: &WrittenPath| own.sha256.is_some() && own.sha256 != sha256_of(&own.path);
        let WrittenPath { path, .. } = known.find(is_changed)?;
        let place = self.place_of(&path);
        Some(ChangedResult { path, place })
    }

    /// Records that a command begins. What does not exist yet will be its own.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub(super) fn begin(&self, words: &[String]) -> anyhow::Result<()> {
        let Some(place) = self.place().filter(|_| self.accepts_force) else { return Ok(()) };
        if let Some(above) = place.parent().filter(|_| self.folders.contains(&place)) {
            std::fs::create_dir_all(above)
                .with_context(|| format!("cannot create {}", above.display()))?;
        }
        let known = self.known();
        let is_own = |path: &&PathBuf| {
            known.iter().any(|own| is_same_place(&own.path, path))
                || !path.exists()
                || (path.is_dir() && !has_entries(path))
        };
        let own = self.paths.iter().filter(is_own);
        let own = own.map(|path| WrittenPath { path: path.clone(), sha256: None });
        StageRecord::new(words, own.collect(), false).write(&place)
    }

    /// Records that a command has finished.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written.
    pub(super) fn finish(&self, words: &[String]) -> anyhow::Result<()> {
        let Some(place) = self.place() else { return Ok(()) };
        let own = self.paths.iter().filter(|path| path.exists());
        let own = own.map(|path| WrittenPath { path: path.clone(), sha256: sha256_of(path) });
        StageRecord::new(words, own.collect(), true).write(&place)
    }

    /// Returns the record of the command that wrote the first path.
    pub(super) fn record(&self) -> Option<StageRecord> {
        StageRecord::read(&self.place()?).or_else(|| StageRecord::read(self.paths.first()?))
    }

    /// Returns the place of the record: the first path, or the folder of an option that contains it.
    /// Some commands refuse a folder that exists.
    fn place(&self) -> Option<PathBuf> {
        let first = self.paths.first()?;
        Some(self.place_of(first))
    }

    fn place_of(&self, path: &Path) -> PathBuf {
        let inside = |folder: &&PathBuf| path.starts_with(folder) && folder.file_name().is_some();
        self.folders.iter().find(inside).map_or(path, |folder| folder).to_owned()
    }

    /// Returns what commands of pipelines wrote of these paths.
    fn known(&self) -> Vec<WrittenPath> {
        let mut known = Vec::new();
        for path in &self.paths {
            let records = [self.place_of(path), path.clone()];
            for record in records.iter().filter_map(|place| StageRecord::read(place)) {
                known.extend(record.written(&self.paths));
            }
        }
        known
    }
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns the hash of a file, or `None` for folders.
fn sha256_of(path: &Path) -> Option<String> {
    path.is_file().then(|| DataFile::measure("output", path).ok()).flatten().map(|file| file.sha256)
}

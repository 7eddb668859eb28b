//! Inputs of a run that this program has renamed since: what is replaced is kept as `NAME.old-1`.

use crate::new_run::old_name;
use crate::{DataFile, RunInfo};
use std::path::{Path, PathBuf};

/// An input file or folder that has another name now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedInput {
    /// Path when the run was started.
    pub original: PathBuf,
    /// Path of the same contents now.
    pub current: PathBuf,
}

impl RenamedInput {
    /// Returns where a path below the input is now, or `None` for other paths.
    pub fn path_now(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.original).ok()?;
        Some(if rest == Path::new("") { self.current.clone() } else { self.current.join(rest) })
    }
}

impl RunInfo {
    /// Finds the inputs that have changed or are missing, but still exist in a file or folder that was
    /// renamed to `NAME.old-1` or a higher number. Their paths in [`Self::data`] become the present ones.
    ///
    /// Files are compared by size and hash, and only if something has such a name.
    pub fn find_renamed(&mut self) -> Vec<RenamedInput> {
        let mut renamed: Vec<RenamedInput> = Vec::new();
        let mut places: Vec<&Path> = self
            .data
            .iter()
            .flat_map(|file| file.path.ancestors())
            .filter(|place| place.file_name().is_some())
            .collect();
        places.sort_unstable();
        places.dedup();
        for original in places {
            let is_covered = renamed.iter().any(|found| original.starts_with(&found.original));
            if !is_covered && let Some(current) = renamed_to(original, &self.data) {
                renamed.push(RenamedInput { original: original.to_owned(), current });
            }
        }
        for file in &mut self.data {
            let now = renamed.iter().find_map(|found| found.path_now(&file.path));
            file.path = now.unwrap_or_else(|| std::mem::take(&mut file.path));
        }
        renamed
    }
}

/// Returns the name under which all files at or below `place` still exist, if they are no longer there.
fn renamed_to(place: &Path, data: &[DataFile]) -> Option<PathBuf> {
    if !old_name(place, 1).exists() {
        return None;
    }
    let below: Vec<&DataFile> = data.iter().filter(|file| file.path.starts_with(place)).collect();
    let are_at = |folder: &Path| {
        let now = RenamedInput { original: place.to_owned(), current: folder.to_owned() };
        below.iter().all(|file| now.path_now(&file.path).is_some_and(|path| file.is_at(&path)))
    };
    if are_at(place) {
        return None;
    }
    (1u32..)
        .map(|number| old_name(place, number))
        .take_while(|old| old.exists())
        .find(|old| are_at(old))
}

impl DataFile {
    /// Returns whether the file at `path` has the recorded contents.
    fn is_at(&self, path: &Path) -> bool {
        let has_size = path.metadata().is_ok_and(|data| data.len() == self.bytes);
        has_size && Self::measure(&self.role, path).is_ok_and(|now| now.sha256 == self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn renamed_inputs_are_found_by_their_contents() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        let files = ["runs/a/model/config.json", "runs/a/model/weights", "data/x.jsonl", "other"];
        files.iter().for_each(|name| write(name, name));
        let measured = files.iter().map(|name| DataFile::measure("model", &at(name)).unwrap());
        let data: Vec<DataFile> = measured.collect();
        let found = || {
            let mut info = RunInfo { data: data.clone(), ..RunInfo::default() };
            let renamed = info.find_renamed().into_iter();
            let here = |path: &Path| path.strip_prefix(place.path()).unwrap().display().to_string();
            let renamed: Vec<[String; 2]> =
                renamed.map(|input| [here(&input.original), here(&input.current)]).collect();
            (renamed, info.data.iter().map(|file| here(&file.path)).collect::<Vec<_>>())
        };
        let unchanged = || (Vec::new(), files.map(str::to_owned).to_vec());
        assert_eq!(found(), unchanged());
        // Another file of that name, or a folder that is not whole, is not the input.
        write("runs/a/model.old-1/config.json", files[0]);
        write("data.old-1/x.jsonl", "other");
        assert_eq!(found(), unchanged());
        write("runs/a/model/weights", "of another step");
        write("data/x.jsonl", "other pairs");
        assert_eq!(found(), unchanged());
        write("runs/a/model.old-2/config.json", files[0]);
        write("runs/a/model.old-2/weights", files[1]);
        write("data/x.jsonl.old-1", files[2]);
        fs::remove_file(at("other")).unwrap();
        let (renamed, paths) = found();
        let expected =
            [["data/x.jsonl", "data/x.jsonl.old-1"], ["runs/a/model", "runs/a/model.old-2"]];
        assert_eq!(renamed, expected.map(|pair| pair.map(str::to_owned)));
        let expected =
            ["runs/a/model.old-2/config.json", "runs/a/model.old-2/weights", "data/x.jsonl.old-1"];
        assert_eq!(paths[..3], expected);
        // The whole run was renamed afterwards.
        fs::rename(at("runs/a"), at("runs/a.old-1")).unwrap();
        fs::rename(at("runs/a.old-1/model.old-2"), at("runs/a.old-1/model")).unwrap_err();
        fs::remove_dir_all(at("runs/a.old-1/model")).unwrap();
        fs::rename(at("runs/a.old-1/model.old-2"), at("runs/a.old-1/model")).unwrap();
        assert_eq!(found().1[1], "runs/a.old-1/model/weights");
    }
}

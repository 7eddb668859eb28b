//! Writes the files of a split, and checks that the files in a folder belong to the same split.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use grpo_data::{DataError, FileKind, OwnFolder, regular_file};
use grpo_run::sha256_of_file;
use grpo_task::output::FileInPlace;
use serde_json::Value;

pub(crate) const PHASE1: &str = "train_phase1_sft.jsonl";
pub(crate) const PHASE2: &str = "train_phase2_grpo.jsonl";
pub(crate) const TEST: &str = "test_held_out.jsonl";
pub(crate) const STATISTICS: &str = "phase_split_statistics.json";
pub(crate) const DRAWING: &str = "phase_split_distributions.svg";
/// The names of all files in a split.
pub(crate) const FILES: [&str; 5] = [PHASE1, PHASE2, TEST, STATISTICS, DRAWING];
/// The key in the statistics file that contains the SHA-256 hashes of all parts.
pub(crate) const OUTPUTS: &str = "outputs";

/// Name of a marker file that exists while the files of a split are being renamed.
const UNFINISHED: &str = ".split-unfinished";

/// Rejects a part's file if it may belong to a different split than the other parts, because a
/// tweet could then be in two parts. Files with other names are not checked.
pub(crate) fn check_phase(file: &Path) -> Result<(), DataError> {
    // A link to the file must not hide its folder.
    let Ok(place) = file.canonicalize() else { return Ok(()) };
    let name = place.file_name().unwrap_or_default();
    if ![PHASE1, PHASE2, TEST].iter().any(|part| name == *part) {
        return Ok(());
    }
    let folder = place.parent().unwrap_or(Path::new(""));
    let unreadable = |error: std::io::Error| {
        DataError::Invalid(format!("cannot check the split of `{}`: {error}", file.display()))
    };
    let own = OwnFolder::open(folder).map_err(unreadable)?;
    if own.kind(UNFINISHED).map_err(unreadable)?.is_some() {
        return Err(DataError::Invalid(format!(
            "`{}` may not belong to the same split as the other parts: `grpo split-data` did not finish in its folder; wait for it, or run it again with --force",
            file.display()
        )));
    }
    let text = match own.is_kind(STATISTICS, FileKind::File).map_err(unreadable)? {
        true => own.open_file(STATISTICS).and_then(regular_file::read_data_from),
        // The files of a phase can be used without their statistics.
        false => Ok(Vec::new()),
    };
    let text = text.map_err(unreadable)?;
    let recorded: Value = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&text).map_err(|error| {
            DataError::Invalid(format!(
                "cannot check the split of `{}`: {STATISTICS} next to it is damaged: {}; run `grpo split-data` again",
                file.display(),
                grpo_data::json_reason(&error)
            ))
        })?,
    };
    let recorded = recorded[OUTPUTS].get(name.to_string_lossy().as_ref()).and_then(Value::as_str);
    match recorded.zip(sha256_of_file(file).ok()) {
        Some((recorded, now)) if recorded != now => Err(DataError::Invalid(format!(
            "`{}` changed after the split ({STATISTICS} has its SHA-256), so tweets may be in two parts; run `grpo split-data` again, or rename the changed file",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns whether the folder holds a whole split with exactly these parts, given by their SHA-256
/// hashes.
///
/// # Errors
/// Returns an error if something else than a regular file has the name of a part.
pub(crate) fn has_parts(
    folder: &OwnFolder,
    parts: &BTreeMap<&str, String>,
) -> anyhow::Result<bool> {
    refuse_foreign(folder)?;
    let recorded = statistics(folder).map(|statistics| statistics[OUTPUTS].clone());
    if recorded != Some(serde_json::to_value(parts)?)
        || folder.kind(UNFINISHED)?.is_some()
        || !folder.is_kind(DRAWING, FileKind::File)?
    {
        return Ok(false);
    }
    for name in [PHASE1, PHASE2, TEST] {
        let hash = match folder.is_kind(name, FileKind::File)? {
            true => Some(sha256_of_file(&folder.path_of(name))?),
            false => None,
        };
        if hash.as_ref() != parts.get(name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Describes the settings of the split in the folder, if its statistics can be read.
pub(crate) fn settings_of(folder: &OwnFolder) -> Option<String> {
    let statistics = statistics(folder)?;
    let settings = [
        ("--input", "input"),
        ("--split-ratio", "split_ratio"),
        ("--test-fraction", "test_fraction"),
        ("--seed", "seed"),
    ];
    let said = settings.map(|(option, key)| match &statistics[key] {
        Value::String(text) => Some(format!("{option} {text}")),
        Value::Number(number) => Some(format!("{option} {number}")),
        _ => None,
    });
    Some(said.into_iter().collect::<Option<Vec<_>>>()?.join(", "))
}

fn statistics(folder: &OwnFolder) -> Option<Value> {
    let text = folder.open_file(STATISTICS).and_then(regular_file::read_data_from).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Removes temporary files left behind by an interrupted split. The caller must hold the lock on
/// the folder.
pub(crate) fn clear_leftovers(folder: &OwnFolder) -> anyhow::Result<()> {
    let failed = || format!("cannot clean up {}", folder.path().display());
    for (name, _) in folder.entries("").with_context(failed)? {
        if is_leftover(&name) {
            folder.remove_file(name).with_context(failed)?;
        }
    }
    Ok(())
}

/// Returns an error if something else than a regular file has the name of a file of a split.
pub(crate) fn refuse_foreign(folder: &OwnFolder) -> anyhow::Result<()> {
    for name in FILES.into_iter().chain([UNFINISHED]) {
        folder.is_kind(name, FileKind::File)?;
    }
    Ok(())
}

/// Returns whether this is the name of a temporary file of a split, `.NAME.PROCESS-NUMBER`.
fn is_leftover(name: &str) -> bool {
    let end = FILES
        .into_iter()
        .find_map(|of| name.strip_prefix('.')?.strip_prefix(of)?.strip_prefix('.'));
    let numbers = end.and_then(|end| end.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Writes all files of a split under temporary names.
pub(crate) fn complete(
    folder: &Path,
    contents: &[(&str, String)],
) -> anyhow::Result<Vec<FileInPlace>> {
    let mut files = Vec::new();
    for (name, content) in contents {
        let path = folder.join(name);
        let mut file = FileInPlace::create(&path)?;
        let written = file.write_all(content.as_bytes()).and_then(|()| file.flush());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        files.push(file);
    }
    Ok(files)
}

/// Renames all files to their final names.
///
/// The statistics of a previous split are removed first. If the process is interrupted, a marker
/// file remains. [`check_phase`] then rejects the files, which could belong to two different
/// splits.
pub(crate) fn name_all(folder: &OwnFolder, files: Vec<FileInPlace>) -> anyhow::Result<()> {
    let path = |name| folder.path_of(name);
    let written = folder.open_to_append(UNFINISHED).and_then(|file| file.sync_all());
    written.with_context(|| format!("cannot write {}", path(UNFINISHED).display()))?;
    let remove = |name| match folder.remove_file(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path(name).display()))
        }
        _ => Ok(()),
    };
    remove(STATISTICS)?;
    let names: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    FileInPlace::finish_all(files)?;
    // The test pairs of a previous split would be in a phase of this one.
    if !names.iter().any(|name| name.file_name() == Some(TEST.as_ref())) {
        remove(TEST)?;
    }
    remove(UNFINISHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// With --force, the statistics of the previous split would otherwise remain next to a mixture
    /// of both splits.
    #[test]
    fn a_split_that_is_not_named_whole_has_no_statistics() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [PHASE1, PHASE2, STATISTICS] {
            fs::write(at(name), "old").unwrap();
        }
        let contents = [PHASE1, PHASE2, STATISTICS].map(|name| (name, "{}".to_owned()));
        let files = complete(folder.path(), &contents).unwrap();
        fs::remove_file(at(PHASE2)).unwrap();
        fs::create_dir(at(PHASE2)).unwrap();
        let own = OwnFolder::open(folder.path()).unwrap();
        let error = name_all(&own, files).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
        assert!(!at(STATISTICS).exists());
        // Phase 1 of the new split is rejected while phase 2 is still the old one.
        fs::remove_dir(at(PHASE2)).unwrap();
        fs::write(at(PHASE2), "old").unwrap();
        let error = check_phase(&at(PHASE1)).unwrap_err().to_string();
        assert!(error.contains("`grpo split-data` did not finish in its folder"), "{error}");
        #[cfg(unix)]
        {
            let elsewhere = tempfile::tempdir().unwrap();
            let link = elsewhere.path().join("mine.jsonl");
            std::os::unix::fs::symlink(at(PHASE1), &link).unwrap();
            let error = check_phase(&link).unwrap_err().to_string();
            assert!(error.contains("`grpo split-data` did not finish"), "{error}");
        }
        name_all(&own, complete(folder.path(), &contents).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(at(STATISTICS)).unwrap(), "{}");
        check_phase(&at(PHASE1)).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn statistics_that_cannot_be_read_do_not_pass_the_check() {
        type Put = fn(&Path, &Path);
        let kinds: [(&str, Put); 6] = [
            ("pipe", |path, _| {
                assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
            }),
            ("folder", |path, _| fs::create_dir(path).unwrap()),
            ("link", |path, target| std::os::unix::fs::symlink(target, path).unwrap()),
            ("dangling link", |path, _| std::os::unix::fs::symlink("none", path).unwrap()),
            ("device", |path, _| std::os::unix::fs::symlink("/dev/null", path).unwrap()),
            ("damaged", |path, _| fs::write(path, "{").unwrap()),
        ];
        for (kind, put) in kinds {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at(PHASE1), "{}\n").unwrap();
            check_phase(&at(PHASE1)).unwrap();
            put(&at(STATISTICS), &at(PHASE1));
            let error = check_phase(&at(PHASE1)).unwrap_err().to_string();
            assert!(error.contains("cannot check the split of"), "{kind}: {error}");
            assert!(error.contains(STATISTICS), "{kind}: {error}");
        }
    }

    #[test]
    fn only_unnamed_files_of_a_split_are_leftovers() {
        assert!(is_leftover(".train_phase1_sft.jsonl.123-0"));
        for name in
            ["train_phase1_sft.jsonl", ".lock", ".mine.jsonl.1-0", ".train_phase1_sft.jsonl"]
        {
            assert!(!is_leftover(name), "{name}");
        }
    }
}

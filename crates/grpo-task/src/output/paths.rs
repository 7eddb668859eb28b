//! Checks on output file paths.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{dangling_link, regular_file};

use super::device::is_device;
use super::formats::Formats;
use crate::recorded_folders::refuse_recorded;

/// Checks an output file before a command computes anything. Returns an error if it would replace one
/// of `inputs`, a file that was read, a recorded file of a model or run or, without `force`, any
/// existing file, if it cannot be created there, and if its name is that of a format that the command
/// does not write. `option` is the option that sets it.
pub fn check_output(
    option: &str,
    path: &Path,
    formats: Formats,
    inputs: &[&Path],
    force: bool,
) -> anyhow::Result<()> {
    refuse_input(&format!("another file for {option}"), path, inputs)?;
    check_path(path)?;
    formats.check(option, path)?;
    refuse_existing(path, force)
}

/// Returns an error if no output file can have this path, or if it is a file that this process has read
/// or that belongs to a model or run.
pub(super) fn check_path(path: &Path) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is not a file", path.display()))?;
    anyhow::ensure!(!path.is_dir(), "{} is a folder, not a file", path.display());
    // The name of `a/` and `a/.` is `a`, but no file can be renamed to them.
    anyhow::ensure!(
        path.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes()),
        "{} is the path of a folder; expected that of a file, such as {}",
        path.display(),
        path.with_file_name(name).display()
    );
    refuse_recorded(path)?;
    refuse_opened(path)?;
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        anyhow::ensure!(
            folder.exists(),
            "cannot write {}: the folder {} does not exist; create it first",
            path.display(),
            folder.display()
        );
    }
    Ok(())
}

/// Returns an error if `path` is one of `inputs`. `other` suggests an alternative.
pub fn refuse_input(other: &str, path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    anyhow::ensure!(
        !inputs.iter().any(|input| is_same_place(input, path)),
        "{} is the input; use {other}",
        path.display()
    );
    Ok(())
}

/// Returns an error if `path` is a file that this process has read, whether or not an argument names
/// it, such as a file that the configuration extends.
pub(super) fn refuse_opened(path: &Path) -> anyhow::Result<()> {
    let is_input = || regular_file::opened().iter().any(|input| is_same_place(input, path));
    anyhow::ensure!(
        is_device(path) || !path.exists() || !is_input(),
        "{} is an input of this command; choose a different output file",
        path.display()
    );
    Ok(())
}

/// Returns an error if two options set the same output file.
pub fn refuse_same(outputs: &[(&str, Option<&PathBuf>)]) -> anyhow::Result<()> {
    let set = outputs.iter().filter_map(|(option, path)| Some((option, (*path)?)));
    let set: Vec<(&&str, &PathBuf)> = set.collect();
    for (index, (option, path)) in set.iter().enumerate() {
        if let Some((other, same)) = set[..index].iter().find(|(_, same)| is_same_place(path, same))
        {
            anyhow::ensure!(
                other != option,
                "{option} names {} twice; use different files",
                same.display()
            );
            anyhow::bail!("{other} and {option} are both {}; use different files", same.display());
        }
    }
    Ok(())
}

/// Creates an output folder and its missing parents, unless it exists.
///
/// # Errors
/// Returns an error if the path, or a part of it, is something else than a folder, such as a link that
/// leads nowhere, or if the folder cannot be created.
pub fn create_folder(folder: &Path) -> anyhow::Result<()> {
    let Err(error) = std::fs::create_dir_all(folder) else { return Ok(()) };
    let what = format!("cannot create the folder {}", folder.display());
    if let Some(link) = dangling_link(folder) {
        anyhow::bail!("{what}: {link}; remove the link, or choose another folder");
    }
    let file = folder.ancestors().find(|path| path.exists() && !path.is_dir());
    match file {
        Some(file) => anyhow::bail!("{what}: {} is a file; choose another folder", file.display()),
        None => Err(anyhow::Error::from(error).context(what)),
    }
}

/// Returns an error if the file, or a link of this name, exists and `force` is false.
pub(super) fn refuse_existing(path: &Path, force: bool) -> anyhow::Result<()> {
    if let (false, true, Some(link)) = (force, path.is_symlink(), dangling_link(path)) {
        anyhow::bail!("{link}; choose another file, or replace the link with --force");
    }
    anyhow::ensure!(
        force || is_device(path) || !path.is_file(),
        "{} already exists; choose another file, or replace it with --force",
        path.display()
    );
    Ok(())
}

/// Returns whether two paths refer to the same file, directly or through links. Also works for
/// files that do not exist yet.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    // Comparing files opens them, which would wait for the reader of a named pipe.
    let is_plain = |path: &Path| path.metadata().is_ok_and(|data| data.is_file() || data.is_dir());
    let is_compared = is_plain(one) && is_plain(other);
    if is_compared && same_file::is_same_file(one, other).unwrap_or(false) {
        return true;
    }
    let place = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let path = std::path::absolute(path).ok()?;
            let folder = path.parent()?.canonicalize().ok()?;
            Some(folder.join(path.file_name()?))
        })
    };
    match (place(one), place(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let here = folder.path().display().to_string();
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let said = |error: anyhow::Error| error.to_string().replace(&here, "HERE");
        assert_eq!(
            said(refuse_existing(&at("link"), false).unwrap_err()),
            "`HERE/link` is a symbolic link to `nowhere`, which does not exist; choose another file, or replace the link with --force"
        );
        refuse_existing(&at("link"), true).unwrap();
        refuse_existing(&at("new"), false).unwrap();
        for (name, reason) in [
            (
                "link",
                "`HERE/link` is a symbolic link to `nowhere`, which does not exist; remove the link, or choose another folder",
            ),
            (
                "link/a",
                "`HERE/link` is a symbolic link to `nowhere`, which does not exist; remove the link, or choose another folder",
            ),
            ("file", "HERE/file is a file; choose another folder"),
            ("file/a", "HERE/file is a file; choose another folder"),
        ] {
            let expected = format!("cannot create the folder HERE/{name}: {reason}");
            assert_eq!(said(create_folder(&at(name)).unwrap_err()), expected);
        }
        create_folder(&at("a/b")).unwrap();
        create_folder(&at("a/b")).unwrap();
        assert!(at("a/b").is_dir());
    }

    #[test]
    fn paths_lead_to_one_place_however_they_are_spelled() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("a")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("b")).unwrap();
        assert!(is_same_place(&at("a/x"), &at("./a/../b/x")));
        assert!(!is_same_place(&at("a/x"), &at("x")) && !is_same_place(&at("a/x"), &at("a/y")));
        std::fs::write(at("x"), "").unwrap();
        std::os::unix::fs::symlink(at("x"), at("y")).unwrap();
        assert!(is_same_place(&at("x"), &at("y")));
        std::fs::hard_link(at("x"), at("z")).unwrap();
        assert!(is_same_place(&at("x"), &at("z")));
        // In a folder that does not exist.
        assert!(is_same_place(&at("none/x"), &at("none/x")));
    }
}

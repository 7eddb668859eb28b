//! Atomic writes for files and folders.

use crate::RunError;
use grpo_data::{FileKind, FileLock, Locked, OwnFolder};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a file atomically. After a crash, `path` contains either the old or the new bytes.
///
/// # Errors
/// Returns an error if the file cannot be written, or if `path` is a link or no regular file. In
/// that case, `path` is unchanged and no temporary file is left behind.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let (folder, name) = around(path)?;
    write_file(&folder, &name, bytes)
}

/// Like [`atomic_write`], for a name in a folder.
pub(crate) fn write_file(folder: &OwnFolder, name: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let path = folder.path_of(name);
    expect(folder, name, FileKind::File)?;
    let create = |name: &Path| folder.create_file(name);
    let (mut file, temporary) = Temporary::create(folder, name, FileKind::File, create)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(RunError::write(&path))?;
    temporary.rename_to(name)
}

/// How to handle an existing folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Return an error.
    Refuse,
    /// Replace the existing folder.
    Replace,
}

/// Creates a folder atomically. `fill` writes the files into a temporary folder next to `target`.
/// If it succeeds, the temporary folder is synced and renamed to `target`. Missing parent folders
/// are created. Temporary folders of `target` that killed processes left behind are deleted.
///
/// With [`Existing::Replace`], the old folder is only moved aside once the new one is complete on
/// disk, and deleted after the rename. A crash in between leaves both folders under hidden names.
///
/// # Errors
/// Returns an error if `fill` or a write fails, or if `target` exists and must not be replaced. The
/// temporary folder is deleted, even if `fill` panics, and an existing `target` is unchanged.
pub fn write_folder_atomically<E: From<RunError>>(
    target: &Path,
    existing: Existing,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    // A better message than that of the parents, if one of them is a file.
    match std::fs::symlink_metadata(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(RunError::write(target)(error).into());
        }
        _ => {}
    }
    std::fs::create_dir_all(parent(target)).map_err(RunError::write(target))?;
    let (folder, name) = around(target)?;
    write_folder(&folder, &name, existing, fill)
}

/// Like [`write_folder_atomically`], for a name in a folder.
pub(crate) fn write_folder<E: From<RunError>>(
    folder: &OwnFolder,
    name: &Path,
    existing: Existing,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let path = folder.path_of(name);
    let is_taken = || match existing {
        Existing::Refuse => match folder.kind(name).map_err(RunError::write(&path))? {
            Some(_) => Err(RunError::Exists { path: path.clone() }),
            None => Ok(false),
        },
        Existing::Replace => expect(folder, name, FileKind::Folder),
    };
    is_taken()?;
    let create = |name: &Path| folder.create_folder(name);
    let ((), temporary) = Temporary::create(folder, name, FileKind::Folder, create)?;
    fill(&folder.path_of(&temporary.name))?;
    folder.sync_all(&temporary.name).map_err(RunError::write(&path))?;
    // Check again, because `fill` may have run for a long time.
    if is_taken()? {
        replace(temporary, name)?;
    } else {
        temporary.rename_to(name)?;
    }
    Ok(())
}

/// Checks that a file can be created in the folder `name`.
pub(crate) fn check_writable(folder: &OwnFolder, name: &Path) -> Result<(), RunError> {
    let create = |name: &Path| folder.create_file(name);
    let created = Temporary::create(folder, &name.join("check"), FileKind::File, create);
    created.map(drop).map_err(|error| match error {
        RunError::Write { source, .. } => RunError::Write { path: folder.path_of(name), source },
        error => error,
    })
}

/// Replaces the folder `target` with the folder `temporary`.
fn replace(temporary: Temporary, target: &Path) -> Result<(), RunError> {
    let folder = temporary.folder.clone();
    let path = folder.path_of(target);
    // Reserve the name with an empty folder, which `rename` is allowed to replace.
    let create = |name: &Path| folder.create_folder(name);
    let ((), old) = Temporary::create(&folder, target, FileKind::Folder, create)?;
    folder.rename(target, &old.name).map_err(RunError::write(&path))?;
    if let Err(error) = temporary.rename_to(target) {
        // Undo the first rename. If this fails as well, at least keep the old folder.
        if folder.rename(&old.name, target).is_err() {
            old.keep();
        }
        return Err(error);
    }
    Ok(()) // dropping `old` removes its contents
}

/// Returns whether a name stands for something of this kind, and an error if it is something else.
fn expect(folder: &OwnFolder, name: &Path, kind: FileKind) -> Result<bool, RunError> {
    folder.is_kind(name, kind).map_err(RunError::write(&folder.path_of(name)))
}

/// A temporary file or folder that is deleted on drop.
struct Temporary {
    folder: OwnFolder,
    name: PathBuf,
    kept: bool,
    /// Tells other processes that the file or folder is in use. `None` if the file system has no
    /// locks.
    _lock: Option<FileLock>,
}

impl Temporary {
    /// Creates a file or folder next to `target`. `create` must fail if its argument exists.
    fn create<T>(
        folder: &OwnFolder,
        target: &Path,
        kind: FileKind,
        create: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(T, Self), RunError> {
        let path = folder.path_of(target);
        let Some(end) = target.file_name() else { return Err(RunError::NoName { path }) };
        if kind == FileKind::Folder {
            remove_leftovers(folder, target);
        }
        let mut number = 0u32;
        loop {
            let mut hidden = OsString::from(".");
            hidden.push(end);
            hidden.push(format!(".tmp-{number}"));
            let name = target.with_file_name(hidden);
            match create(&name) {
                Ok(made) => {
                    let lock = match folder.lock(&name, kind) {
                        Ok(Locked::Held(lock)) => Some(lock),
                        Ok(Locked::Unsupported) => None,
                        // Another process took it for a leftover.
                        Ok(Locked::Busy) => continue,
                        Err(error) if error.kind() == ErrorKind::NotFound => continue,
                        Err(error) => return Err(RunError::write(&path)(error)),
                    };
                    return Ok((
                        made,
                        Self { folder: folder.clone(), name, kept: false, _lock: lock },
                    ));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if !remove_leftover(folder, &name, kind) {
                        number += 1;
                    }
                }
                Err(error) => return Err(RunError::write(&path)(error)),
            }
        }
    }

    /// Renames the file or folder to `target` and syncs the parent folder.
    fn rename_to(self, target: &Path) -> Result<(), RunError> {
        let folder = self.folder.clone();
        let path = folder.path_of(target);
        folder.rename(&self.name, target).map_err(RunError::write(&path))?;
        self.keep();
        folder.sync(target.parent().unwrap_or(Path::new(""))).map_err(RunError::write(&path))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The caller reports the original error. A leftover file is harmless.
            let _ = self.folder.remove_all(&self.name);
        }
    }
}

/// Removes a temporary file or folder whose process has exited. Returns false if it is in use, or
/// cannot be removed.
fn remove_leftover(folder: &OwnFolder, name: &Path, kind: FileKind) -> bool {
    match folder.lock(name, kind) {
        Ok(Locked::Held(_lock)) => folder.remove_all(name).is_ok(),
        _ => false,
    }
}

/// Removes the temporary folders of `target` whose processes have exited.
fn remove_leftovers(folder: &OwnFolder, target: &Path) {
    let of_target = format!(".{}.tmp-", target.file_name().unwrap_or_default().display());
    // A folder that cannot be listed or removed is left alone.
    let entries = folder.entries(target.parent().unwrap_or(Path::new("")));
    for (name, kind) in entries.unwrap_or_default() {
        if kind == FileKind::Folder && name.starts_with(&of_target) && is_temporary(&name) {
            remove_leftover(folder, &target.with_file_name(name), kind);
        }
    }
}

/// Deletes temporary files and folders left behind in the subfolder `name` by processes that have
/// exited.
pub(crate) fn clear_leftovers(folder: &OwnFolder, name: &Path) -> Result<(), RunError> {
    for (entry, _) in folder.entries(name).map_err(RunError::read(&folder.path_of(name)))? {
        if is_temporary(&entry) {
            let entry = name.join(entry);
            folder.remove_all(&entry).map_err(|_| {
                let fault = io::Error::other("cannot remove leftovers of a killed process");
                RunError::write(&folder.path_of(&entry))(fault)
            })?;
        }
    }
    Ok(())
}

/// Returns whether a file name was generated by [`Temporary`].
fn is_temporary(name: &str) -> bool {
    let number = name.strip_prefix('.').and_then(|name| name.rsplit_once(".tmp-"));
    number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Opens the folder that contains `path`. Also returns the name of `path` in it.
pub(crate) fn around(path: &Path) -> Result<(OwnFolder, PathBuf), RunError> {
    match path.file_name() {
        Some(_) => OwnFolder::around(path).map_err(RunError::write(path)),
        None => Err(RunError::NoName { path: path.to_owned() }),
    }
}

/// Returns the folder that contains `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

//! Atomic writes for files and folders.

use crate::RunError;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a file atomically. After a crash, `path` contains either the old or the new bytes.
///
/// # Errors
/// Returns an error if the file cannot be written. In that case, `path` is unchanged and no
/// temporary file is left behind.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    let (mut file, temporary) = Temporary::create(path, create)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(RunError::write(path))?;
    temporary.rename_to(path)
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
/// are created.
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
    let taken = || match fs::symlink_metadata(target) {
        Ok(_) if existing == Existing::Refuse => Err(RunError::Exists { path: target.to_owned() }),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(RunError::write(target)(error)),
    };
    taken()?;
    fs::create_dir_all(parent(target)).map_err(RunError::write(target))?;
    let create = |path: &Path| fs::create_dir(path);
    let ((), temporary) = Temporary::create(target, create)?;
    fill(&temporary.path)?;
    sync_tree(&temporary.path).map_err(RunError::write(target))?;
    // Check again, because `fill` may have run for a long time.
    if taken()? {
        replace(temporary, target)?;
    } else {
        temporary.rename_to(target)?;
    }
    Ok(())
}

/// Replaces the folder `target` with the folder `temporary`.
fn replace(temporary: Temporary, target: &Path) -> Result<(), RunError> {
    // Reserve the name with an empty folder, which `rename` is allowed to replace.
    let ((), old) = Temporary::create(target, |path| fs::create_dir(path))?;
    fs::rename(target, &old.path).map_err(RunError::write(target))?;
    if let Err(error) = temporary.rename_to(target) {
        // Undo the first rename. If this fails as well, at least keep the old folder.
        if fs::rename(&old.path, target).is_err() {
            old.keep();
        }
        return Err(error);
    }
    Ok(()) // dropping `old` removes its contents
}

/// A temporary file or folder that is deleted on drop.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    /// Creates a file or folder next to `target`. `create` must fail if its argument exists.
    fn create<T>(
        target: &Path,
        create: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(T, Self), RunError> {
        let Some(name) = target.file_name() else {
            return Err(RunError::NoName { path: target.to_owned() });
        };
        let mut number = 0u32;
        loop {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".tmp-{number}"));
            let path = parent(target).join(hidden);
            match create(&path) {
                Ok(made) => return Ok((made, Self { path, kept: false })),
                // In use by another thread or left over from a crash, so it must not be touched.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(RunError::write(target)(error)),
            }
        }
    }

    /// Renames the file or folder to `target` and syncs the parent folder.
    fn rename_to(self, target: &Path) -> Result<(), RunError> {
        fs::rename(&self.path, target).map_err(RunError::write(target))?;
        self.keep();
        sync_folder(parent(target)).map_err(RunError::write(target))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The caller reports the original error. A leftover file is harmless.
            let _ = match fs::symlink_metadata(&self.path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&self.path),
                Ok(_) => fs::remove_file(&self.path),
                Err(error) => Err(error),
            };
        }
    }
}

/// Deletes temporary files and folders left behind in `folder` by processes that have exited.
pub(crate) fn clear_leftovers(folder: &Path) -> Result<(), RunError> {
    for (name, path) in entries(folder)? {
        if is_temporary(&name) {
            drop(Temporary { path: path.clone(), kept: false });
            if fs::symlink_metadata(&path).is_ok() {
                let fault = io::Error::other("cannot remove leftovers of a killed process");
                return Err(RunError::write(&path)(fault));
            }
        }
    }
    Ok(())
}

/// Lists the names and paths in a folder, sorted by name. Names that are not UTF-8 are skipped. If
/// the folder does not exist, the result is empty.
pub(crate) fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, RunError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(RunError::read(folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(RunError::read(folder))?;
        found.extend(entry.file_name().into_string().ok().map(|name| (name, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns whether a file name was generated by [`Temporary`].
fn is_temporary(name: &str) -> bool {
    let number = name.strip_prefix('.').and_then(|name| name.rsplit_once(".tmp-"));
    number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Recursively syncs all files and folders inside a folder.
fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Syncs a folder so that new entries survive a power failure. Does nothing on platforms other than
/// Unix, where folders cannot be opened.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Returns the folder that contains `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

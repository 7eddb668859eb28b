//! Files and folders that appear as a whole or not at all.

use crate::RunError;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a file so that `path` holds the old bytes or the new ones whenever the machine stops.
///
/// # Errors
/// Writing failed; `path` is then as it was, and nothing is left beside it.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    let (mut file, temporary) = Temporary::create(path, create)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(RunError::write(path))?;
    temporary.rename_to(path)
}

/// What to do where the place of a new folder is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, with an error.
    Refuse,
    /// Put the new one in its place.
    Replace,
}

/// Makes a folder: `fill` writes files into a temporary folder beside `target`, which is synced
/// and takes its name once `fill` has succeeded. Missing parents are made.
///
/// With [`Existing::Replace`] an old folder stays until the new one is complete on disk; then it
/// steps aside, the new one takes its name, and the old one is removed. A machine that stops
/// between these steps leaves both beside each other under hidden names.
///
/// # Errors
/// `fill` failed, or writing did, or `target` exists and is not to be replaced. The temporary
/// folder is removed (if `fill` panics, too) and an old `target` is as it was.
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
    // Asked again, as `fill` may have taken an hour.
    if taken()? {
        replace(temporary, target)?;
    } else {
        temporary.rename_to(target)?;
    }
    Ok(())
}

/// Puts the folder `temporary` in the place of the folder `target`.
fn replace(temporary: Temporary, target: &Path) -> Result<(), RunError> {
    // The name is reserved by an empty folder, onto which a folder can be renamed.
    let ((), old) = Temporary::create(target, |path| fs::create_dir(path))?;
    fs::rename(target, &old.path).map_err(RunError::write(target))?;
    if let Err(error) = temporary.rename_to(target) {
        // Back to where we were. If even this fails, the old folder must at least not be removed.
        if fs::rename(&old.path, target).is_err() {
            old.keep();
        }
        return Err(error);
    }
    Ok(()) // `old` goes, and removes what it holds
}

/// A new file or folder beside its later place; removed when dropped.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    /// Makes one beside `target` with `create`, which must fail where there is something already.
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
                // Another thread's, or left by a machine that stopped: never ours to touch.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(RunError::write(target)(error)),
            }
        }
    }

    /// Gives it its name, for good: the parent is synced too.
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
            // The error that led here is the one to tell; a leftover does no harm.
            let _ = match fs::symlink_metadata(&self.path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&self.path),
                Ok(_) => fs::remove_file(&self.path),
                Err(error) => Err(error),
            };
        }
    }
}

/// Removes the temporary files and folders in `folder`, whose makers are gone.
pub(crate) fn clear_leftovers(folder: &Path) -> Result<(), RunError> {
    for (name, path) in entries(folder)? {
        if is_temporary(&name) {
            drop(Temporary { path: path.clone(), kept: false });
            if fs::symlink_metadata(&path).is_ok() {
                let fault = io::Error::other("what a killed process left cannot be removed");
                return Err(RunError::write(&path)(fault));
            }
        }
    }
    Ok(())
}

/// Names and paths of what is in a folder, in the order of names; nothing if there is no such folder. Names that are not UTF-8
/// are none of ours.
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

/// Whether a name is one that [`Temporary`] gives.
fn is_temporary(name: &str) -> bool {
    let number = name.strip_prefix('.').and_then(|name| name.rsplit_once(".tmp-"));
    number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Syncs all files below a folder, and the folders.
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

/// Makes new names in a folder outlast a power cut. Only Unix opens folders as files.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The folder that `path` stands in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

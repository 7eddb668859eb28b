//! Creates run folders.
#![expect(clippy::disallowed_methods, reason = "the folder of a new run")]

use crate::atomic::{around, parent, write_folder};
use crate::folder::{CHECKPOINTS, COMPLETIONS, CONFIG, INFO};
use crate::manifest::sha256;
use crate::run_name::check_run_name;
use crate::{Existing, RunError, RunFolder, RunInfo};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

impl RunFolder {
    /// Checks that a new run can use this path: that it does not exist, is an empty folder, or is a run
    /// that may be replaced.
    ///
    /// # Errors
    /// Returns an error if the path is in use or cannot be read.
    pub fn check_unused(path: &Path, existing: Existing) -> Result<(), RunError> {
        match (is_taken(path)?, existing) {
            (false, _) => Ok(()),
            (true, _) if Self::open(path).is_err() => {
                Err(RunError::Occupied { path: path.to_owned() })
            }
            (true, Existing::Refuse) => Err(RunError::RunExists { path: path.to_owned() }),
            (true, Existing::Replace) => Ok(()),
        }
    }

    /// Creates the folder of a new run, including missing parent folders. The folder may already
    /// exist if it is empty.
    ///
    /// With [`Existing::Replace`], an existing run is renamed by appending `.old-1` or the next
    /// unused number, and its new path is returned. Nothing is deleted.
    ///
    /// # Errors
    /// Returns an error if the path exists and either must not be replaced or is not a run. Also
    /// returns an error if writing fails, in which case no folder is created.
    pub fn create(
        path: &Path,
        existing: Existing,
        config: &str,
        info: &RunInfo,
    ) -> Result<(Self, Option<PathBuf>), RunError> {
        let taken = match existing {
            Existing::Refuse => {
                Self::check_unused(path, Existing::Refuse)?;
                false
            }
            Existing::Replace => is_taken(path)?,
        };
        // Lock the existing run so that no process writes to it during the rename.
        let _lock = if taken { Some(Self::open(path)?.lock()?) } else { None };
        let aside = if taken { Some(move_aside(path)?) } else { None };
        // A link to an empty folder stays, and the run is created there.
        let place = match aside.is_none() && path.is_symlink() {
            true => path.canonicalize().map_err(RunError::write(path))?,
            false => path.to_owned(),
        };
        // Remove an empty folder. If it has been filled in the meantime, it belongs to another run
        // and must be kept.
        match fs::remove_dir(&place) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                return Err(RunError::RunExists { path: path.to_owned() });
            }
            Err(error) => return Err(RunError::write(path)(error)),
        }
        let made = create_at(&place, config, info);
        if let Err(error) = made {
            if let Some(aside) = &aside {
                fs::rename(aside, path).map_err(RunError::write(path))?;
            }
            return Err(error);
        }
        Ok((Self::open(path)?, aside))
    }
}

/// Creates the folder of a new run.
fn create_at(path: &Path, config: &str, info: &RunInfo) -> Result<(), RunError> {
    let config_sha256 = sha256(config.as_bytes());
    let info = RunInfo { config_sha256, chained: true, ..info.clone() };
    let json =
        serde_json::to_string_pretty(&info).expect("strings and numbers serialize to JSON") + "\n";
    fs::create_dir_all(parent(path)).map_err(RunError::write(path))?;
    let (folder, name) = around(path)?;
    write_folder(&folder, &name, Existing::Refuse, |folder| {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(RunError::write(&path))
        };
        write(CONFIG, config)?;
        write(INFO, &json)?;
        for name in [CHECKPOINTS, COMPLETIONS] {
            let path = folder.join(name);
            fs::create_dir(&path).map_err(RunError::write(&path))?;
        }
        Ok(())
    })
}

/// Returns whether `path` exists and is not an empty folder.
fn is_taken(path: &Path) -> Result<bool, RunError> {
    check_run_name(path)?;
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            RunError::dangling(path, &error).map_or(Ok(false), Err)
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => match path.exists() {
            true => Ok(true),
            // A parent of the path is a file.
            false => Err(RunError::write(path)(error)),
        },
        Err(error) => Err(RunError::read(path)(error)),
    }
}

/// Renames a file or folder by appending `.old-1` or the next unused number, and returns its new path.
///
/// # Errors
/// Returns an error if the path has no name or cannot be renamed.
pub fn move_aside(path: &Path) -> Result<PathBuf, RunError> {
    if path.file_name().is_none() {
        return Err(RunError::NoName { path: path.to_owned() });
    }
    let is_free = |aside: &Path| fs::symlink_metadata(aside).is_err();
    let (aside, ()) = first_free(path, |aside| is_free(aside).then(|| fs::rename(path, aside)))
        .map_err(RunError::write(path))?;
    Ok(aside)
}

/// Calls `take` with `path.old-1`, `path.old-2` and so on until it returns a result.
pub(crate) fn first_free<T>(
    path: &Path,
    mut take: impl FnMut(&Path) -> Option<io::Result<T>>,
) -> io::Result<(PathBuf, T)> {
    let taken = (1u32..).find_map(|number| {
        let aside = old_name(path, number);
        take(&aside).map(|taken| taken.map(|taken| (aside, taken)))
    });
    taken.expect("some number below 2^32 is free")
}

/// Returns the name that [`move_aside`] gives a file or folder if the smaller numbers are in use.
pub(crate) fn old_name(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(format!(".old-{number}"));
    path.with_file_name(name)
}

//! Access by paths, on systems where nothing can be opened relative to an open folder.
#![expect(clippy::disallowed_methods, reason = "the one place where files are opened")]

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::foreign::FileKind;

/// The path of a folder.
#[derive(Debug)]
pub(super) struct Handle(PathBuf);

impl Handle {
    /// Finds a folder and follows links.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        match fs::metadata(path)?.is_dir() {
            true => Ok(Self(path.canonicalize()?)),
            false => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.clone()))
    }

    /// Returns whether a path leads to this folder.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(path.canonicalize().is_ok_and(|found| found == self.0))
    }

    pub(super) fn into_file(self) -> Option<File> {
        None
    }

    pub(super) fn kind(&self, name: &Path) -> io::Result<Option<FileKind>> {
        match fs::symlink_metadata(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(Some(kind_of(&found?))),
        }
    }

    pub(super) fn folder(&self, name: &Path) -> io::Result<Self> {
        match self.kind(name)? {
            Some(FileKind::Folder) => Ok(Self(self.0.join(name))),
            Some(_) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn open(&self, name: &Path) -> io::Result<File> {
        File::options().read(true).open(self.0.join(name))
    }

    pub(super) fn append(&self, name: &Path, is_read: bool) -> io::Result<File> {
        File::options().read(is_read).append(true).create(true).open(self.0.join(name))
    }

    pub(super) fn create(&self, name: &Path) -> io::Result<File> {
        File::create_new(self.0.join(name))
    }

    pub(super) fn create_folder(&self, name: &Path) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    pub(super) fn rename(&self, from: &Path, target: &Self, to: &Path) -> io::Result<()> {
        fs::rename(self.0.join(from), target.0.join(to))
    }

    pub(super) fn remove(&self, name: &Path) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    pub(super) fn remove_all(&self, name: &Path) -> io::Result<()> {
        match self.kind(name)? {
            Some(FileKind::Folder) => fs::remove_dir_all(self.0.join(name)),
            _ => self.remove(name),
        }
    }

    /// Returns the names in the folder.
    pub(super) fn names(&self) -> io::Result<Vec<(OsString, FileKind)>> {
        let name = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name(), kind_of(&fs::symlink_metadata(entry.path())?)))
        };
        fs::read_dir(&self.0)?.map(name).collect()
    }

    /// Folders cannot be opened here, so there is nothing to sync.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether a name stands for an open file, as far as its size tells.
    pub(super) fn is_file_at(&self, name: &Path, file: &File) -> io::Result<bool> {
        let found = fs::symlink_metadata(self.0.join(name));
        let open = file.metadata()?;
        Ok(found.is_ok_and(|found| found.is_file() && found.len() == open.len()))
    }
}

fn kind_of(found: &Metadata) -> FileKind {
    match found {
        found if found.is_symlink() => FileKind::Link,
        found if found.is_dir() => FileKind::Folder,
        found if found.is_file() => FileKind::File,
        _ => FileKind::Special,
    }
}

/// Whether an open file has several names is unknown here.
pub(super) fn has_other_names(_: &File) -> io::Result<bool> {
    Ok(false)
}

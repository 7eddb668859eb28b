//! Access relative to an open folder.
#![expect(clippy::disallowed_methods, reason = "the one place where files are opened")]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::foreign::FileKind;

/// Flags of everything that is opened. `O_NONBLOCK` has no effect on regular files, and keeps
/// opening a named pipe from waiting for another process.
const CLOSED_TO_OTHERS: OFlag =
    OFlag::O_CLOEXEC.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

const NEW_FILE: Mode = Mode::from_bits_truncate(0o666);

/// An open folder.
#[derive(Debug)]
pub(super) struct Handle(File);

impl Handle {
    /// Opens a folder and follows links.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlag::O_DIRECTORY | OFlag::O_NONBLOCK).bits());
        Ok(Self(options.open(path)?))
    }

    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Returns whether a path leads to this folder.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.0.metadata()?;
        let found = path.metadata();
        Ok(found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())))
    }

    pub(super) fn into_file(self) -> Option<File> {
        Some(self.0)
    }

    pub(super) fn kind(&self, name: &Path) -> io::Result<Option<FileKind>> {
        Ok(self.stat(name)?.map(|found| kind_of(&found)))
    }

    pub(super) fn folder(&self, name: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | CLOSED_TO_OTHERS;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?.into()))
    }

    pub(super) fn open(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | CLOSED_TO_OTHERS;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    pub(super) fn append(&self, name: &Path, is_read: bool) -> io::Result<File> {
        let mode = if is_read { OFlag::O_RDWR } else { OFlag::O_WRONLY };
        let flags = mode | OFlag::O_APPEND | OFlag::O_CREAT | CLOSED_TO_OTHERS;
        Ok(openat(&self.0, name, flags, NEW_FILE)?.into())
    }

    pub(super) fn create(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | CLOSED_TO_OTHERS;
        Ok(openat(&self.0, name, flags, NEW_FILE)?.into())
    }

    pub(super) fn create_folder(&self, name: &Path) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::from_bits_truncate(0o777))?)
    }

    pub(super) fn rename(&self, from: &Path, target: &Self, to: &Path) -> io::Result<()> {
        Ok(renameat(&self.0, from, &target.0, to)?)
    }

    pub(super) fn remove(&self, name: &Path) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    pub(super) fn remove_all(&self, name: &Path) -> io::Result<()> {
        match self.kind(name)? {
            Some(FileKind::Folder) => {
                let folder = self.folder(name)?;
                for (name, _) in folder.names()? {
                    folder.remove_all(Path::new(&name))?;
                }
                Ok(unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?)
            }
            _ => self.remove(name),
        }
    }

    /// Returns the names in the folder.
    pub(super) fn names(&self) -> io::Result<Vec<(OsString, FileKind)>> {
        // A copy of the handle would share its position.
        let again = self.folder(Path::new("."))?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(again.0.into())? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                Some(Type::File) => Some(FileKind::File),
                Some(Type::Directory) => Some(FileKind::Folder),
                Some(Type::Symlink) => Some(FileKind::Link),
                Some(_) => Some(FileKind::Special),
                // Removed in the meantime if it has no kind.
                None => self.kind(Path::new(name))?,
            };
            names.extend(kind.map(|kind| (name.to_owned(), kind)));
        }
        Ok(names)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Returns whether a name stands for an open file.
    pub(super) fn is_file_at(&self, name: &Path, file: &File) -> io::Result<bool> {
        let open = fstat(file)?;
        let is_it = |found: FileStat| (found.st_dev, found.st_ino) == (open.st_dev, open.st_ino);
        Ok(self.stat(name)?.is_some_and(is_it))
    }

    fn stat(&self, name: &Path) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }
}

fn kind_of(found: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Folder,
        SFlag::S_IFLNK => FileKind::Link,
        _ => FileKind::Special,
    }
}

/// Returns whether an open file has several names.
pub(super) fn has_other_names(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() > 1)
}

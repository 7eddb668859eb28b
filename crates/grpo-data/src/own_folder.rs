//! Folders whose contents the program reads and writes without following links.
//!
//! A run or output folder may come from somebody else, or change while the program uses it. The
//! folder itself is the path that the user chose, so links on the way to it are followed. Inside of
//! it, only regular files and real folders are opened: a link could lead to a file of somebody else,
//! and opening a named pipe can block.
//!
//! Clippy refuses calls of other code that create, rename or delete files (`clippy.toml`).

mod foreign;
#[cfg(not(unix))]
#[path = "own_folder/other.rs"]
mod system;
#[cfg(unix)]
#[path = "own_folder/unix.rs"]
mod system;

pub use foreign::{FileKind, ForeignFile};

use crate::system_fault::noted;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// An open folder.
///
/// Names are relative to it and consist of file names only. Methods that change something return an
/// error if the path of the folder no longer leads to it.
#[derive(Clone, Debug)]
pub struct OwnFolder {
    path: PathBuf,
    handle: Arc<system::Handle>,
}

/// The result of locking a file or folder.
#[derive(Debug)]
pub enum Locked {
    /// This process holds the lock until the value is dropped.
    Held(FileLock),
    /// Another process holds it.
    Busy,
    /// The file system has no locks.
    Unsupported,
}

/// A lock on a file or folder. Released when dropped, and by the operating system when the process
/// exits.
#[derive(Debug)]
pub struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would not unlock it while a child process that is being started has a copy.
        let _ = self.0.unlock();
    }
}

impl OwnFolder {
    /// Opens a folder that the user chose. Links on the way to it are followed.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or cannot be opened, or is not a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = Arc::new(noted(path, system::Handle::at(path))?);
        Ok(Self { path: path.to_owned(), handle })
    }

    /// Opens the folder that contains `path`. Also returns the name of `path` in it.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened, or if the path does not end in a name.
    pub fn around(path: &Path) -> io::Result<(Self, PathBuf)> {
        let no_name = || io::Error::new(ErrorKind::InvalidInput, "the path does not end in a name");
        let name = path.file_name().ok_or_else(no_name)?;
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        Ok((Self::open(parent.unwrap_or(Path::new(".")))?, name.into()))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a name in the folder.
    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        match self.path == Path::new(".") {
            true => name.as_ref().to_owned(),
            false => self.path.join(name),
        }
    }

    /// Checks that the path of the folder still leads to it.
    ///
    /// # Errors
    /// Returns an error if the folder was moved, removed or replaced.
    pub fn check_place(&self) -> io::Result<()> {
        match self.handle.is_at(&self.path)? {
            true => Ok(()),
            false => {
                let fault = ForeignFile::Moved { path: self.path.clone() };
                Err(io::Error::new(ErrorKind::NotFound, fault))
            }
        }
    }

    /// Returns what a name stands for, or `None` if nothing has this name.
    ///
    /// # Errors
    /// Returns an error if a folder on the way is a link or cannot be read.
    pub fn kind(&self, name: impl AsRef<Path>) -> io::Result<Option<FileKind>> {
        match self.parent(name.as_ref()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            parent => self.kind_in(&parent?, name.as_ref()),
        }
    }

    /// Returns whether a name stands for something of this kind.
    ///
    /// # Errors
    /// Returns an error if it stands for something else, or if a folder on the way is a link or
    /// cannot be read.
    pub fn is_kind(&self, name: impl AsRef<Path>, kind: FileKind) -> io::Result<bool> {
        match self.kind(name.as_ref())? {
            Some(found) if found != kind => {
                Err(ForeignFile::error(self.path_of(name.as_ref()), found, kind))
            }
            found => Ok(found.is_some()),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Returns an error if the name is not that of a regular file, or if the file cannot be opened.
    pub fn open_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let name = name.as_ref();
        let parent = self.parent(name)?;
        self.expect(&parent, name, FileKind::File, false)?;
        self.regular(noted(&self.path_of(name), parent.open(last(name))), name)
    }

    /// Opens a regular file to append to it, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the name is that of something else, or if the file cannot be opened.
    pub fn open_to_append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let name = name.as_ref();
        let parent = self.parent_to_change(name)?;
        self.expect(&parent, name, FileKind::File, true)?;
        self.regular(parent.append(last(name), false), name)
    }

    /// Like [`Self::open_to_append`], for reading too.
    ///
    /// # Errors
    /// Returns an error if the name is that of something else, or if the file cannot be opened.
    pub fn open_to_read_and_append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let name = name.as_ref();
        let parent = self.parent_to_change(name)?;
        self.expect(&parent, name, FileKind::File, true)?;
        self.regular(parent.append(last(name), true), name)
    }

    /// Opens a file for locking, and creates it if it does not exist. Its content is not changed.
    ///
    /// # Errors
    /// Returns an error if the name is that of something else, or if the file cannot be opened.
    pub fn lock_file(&self, name: impl AsRef<Path>) -> io::Result<Locked> {
        // Opening to append neither truncates the file nor changes its times.
        try_lock(self.open_to_append(name)?)
    }

    /// Locks an existing file or folder.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, or was replaced in the meantime.
    pub fn lock(&self, name: impl AsRef<Path>, kind: FileKind) -> io::Result<Locked> {
        let name = name.as_ref();
        let parent = self.parent_to_change(name)?;
        self.expect(&parent, name, kind, false)?;
        let opened = match kind {
            FileKind::Folder => match parent.folder(last(name))?.into_file() {
                Some(file) => file,
                None => return Ok(Locked::Unsupported),
            },
            _ => self.regular(parent.open(last(name)), name)?,
        };
        let locked = try_lock(opened)?;
        match &locked {
            Locked::Held(FileLock(file)) if !parent.is_file_at(last(name), file)? => {
                Err(io::Error::new(ErrorKind::NotFound, "it was replaced in the meantime"))
            }
            _ => Ok(locked),
        }
    }

    /// Creates a file for writing.
    ///
    /// # Errors
    /// Returns an error if the name is in use, or if the file cannot be created.
    pub fn create_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.parent_to_change(name.as_ref())?.create(last(name.as_ref()))
    }

    /// Creates a folder.
    ///
    /// # Errors
    /// Returns an error if the name is in use, or if the folder cannot be created.
    pub fn create_folder(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.parent_to_change(name.as_ref())?.create_folder(last(name.as_ref()))
    }

    /// Creates a folder and its missing parents, unless they exist.
    ///
    /// # Errors
    /// Returns an error if a name is that of something else, or if a folder cannot be created.
    pub fn create_folders(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let names: Vec<&Path> = name.as_ref().ancestors().collect();
        for name in names.into_iter().rev().filter(|name| *name != Path::new("")) {
            match self.create_folder(name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.expect(&self.parent(name)?, name, FileKind::Folder, false)?;
                }
                created => created?,
            }
        }
        Ok(())
    }

    /// Renames a file or folder. An existing file of the new name is replaced. Links are renamed and
    /// replaced themselves.
    ///
    /// # Errors
    /// Returns an error if the file or folder cannot be renamed.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (source, target) = (self.parent_to_change(from)?, self.parent_to_change(to)?);
        source.rename(last(from), &target, last(to))
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// Returns an error if it does not exist or cannot be removed.
    pub fn remove_file(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.parent_to_change(name.as_ref())?.remove(last(name.as_ref()))
    }

    /// Removes a folder with its contents, or a file. Links are removed themselves.
    ///
    /// # Errors
    /// Returns an error if something does not exist or cannot be removed.
    pub fn remove_all(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.parent_to_change(name.as_ref())?.remove_all(last(name.as_ref()))
    }

    /// Lists the names in a folder, sorted. Names that are not UTF-8 are left out. `""` is the folder
    /// itself. Returns an empty list if the folder does not exist.
    ///
    /// # Errors
    /// Returns an error if the name is not that of a folder, or if it cannot be read.
    pub fn entries(&self, name: impl AsRef<Path>) -> io::Result<Vec<(String, FileKind)>> {
        let names = match self.folder(name.as_ref()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            folder => noted(&self.path_of(name.as_ref()), folder?.names())?,
        };
        let text =
            |(name, kind): (std::ffi::OsString, FileKind)| Some((name.into_string().ok()?, kind));
        let mut found: Vec<(String, FileKind)> = names.into_iter().filter_map(text).collect();
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// Syncs the names in a folder to the disk. `""` is the folder itself.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be synced.
    pub fn sync(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.folder(name.as_ref())?.sync()
    }

    /// Syncs all files and folders in a folder to the disk.
    ///
    /// # Errors
    /// Returns an error if something cannot be synced.
    pub fn sync_all(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let name = name.as_ref();
        for (entry, kind) in self.entries(name)? {
            match kind {
                FileKind::Folder => self.sync_all(name.join(entry))?,
                FileKind::File => self.open_file(name.join(entry))?.sync_all()?,
                FileKind::Link | FileKind::Special => {}
            }
        }
        self.sync(name)
    }

    /// Returns whether an open file also has other names, as hard links do.
    ///
    /// # Errors
    /// Returns an error if the file cannot be examined.
    pub fn has_other_names(file: &File) -> io::Result<bool> {
        system::has_other_names(file)
    }

    /// Returns whether a name still stands for an open file.
    ///
    /// # Errors
    /// Returns an error if a folder on the way is a link or cannot be read.
    pub fn is_file_at(&self, name: impl AsRef<Path>, file: &File) -> io::Result<bool> {
        let name = name.as_ref();
        match self.parent_to_change(name) {
            Err(error) if ForeignFile::of(&error).is_none() => Ok(false),
            parent => parent?.is_file_at(last(name), file),
        }
    }

    fn folder(&self, name: &Path) -> io::Result<system::Handle> {
        let mut handle = noted(&self.path, self.handle.again())?;
        let mut path = PathBuf::new();
        for component in name.components() {
            let Component::Normal(part) = component else {
                let fault = format!("`{}` is not a name in a folder", name.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, fault));
            };
            path.push(part);
            // Checked first for a better error message.
            match handle.kind(Path::new(part))? {
                None | Some(FileKind::Folder) => {
                    let folder = handle.folder(Path::new(part));
                    handle = noted(&self.path_of(&path), folder)?;
                }
                Some(found) => {
                    return Err(ForeignFile::error(self.path_of(path), found, FileKind::Folder));
                }
            }
        }
        Ok(handle)
    }

    fn parent(&self, name: &Path) -> io::Result<system::Handle> {
        let is_name = matches!(name.components().next_back(), Some(Component::Normal(_)));
        match name.parent().filter(|_| is_name) {
            Some(parent) => self.folder(parent),
            None => Err(io::Error::new(ErrorKind::InvalidInput, "the path does not end in a name")),
        }
    }

    fn parent_to_change(&self, name: &Path) -> io::Result<system::Handle> {
        self.check_place()?;
        self.parent(name)
    }

    fn kind_in(&self, parent: &system::Handle, name: &Path) -> io::Result<Option<FileKind>> {
        parent.kind(last(name))
    }

    /// Checks that a name stands for `expected`, or with `may_lack` for nothing.
    fn expect(
        &self,
        parent: &system::Handle,
        name: &Path,
        expected: FileKind,
        may_lack: bool,
    ) -> io::Result<()> {
        match self.kind_in(parent, name)? {
            Some(found) if found != expected => {
                Err(ForeignFile::error(self.path_of(name), found, expected))
            }
            // The system's own words: no such file.
            None if !may_lack => Err(io::Error::from_raw_os_error(2)),
            _ => Ok(()),
        }
    }

    /// Checks that an opened file is a regular one, because it may have been replaced after the
    /// check of its name.
    fn regular(&self, opened: io::Result<File>, name: &Path) -> io::Result<File> {
        let file = opened?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(ForeignFile::error(self.path_of(name), FileKind::Special, FileKind::File)),
        }
    }
}

impl PartialEq for OwnFolder {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for OwnFolder {}

/// Describes the first link in `path` that leads nowhere.
pub fn dangling_link(path: &Path) -> Option<String> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let link = ancestors.into_iter().find(|path| path.is_symlink() && path.metadata().is_err())?;
    let target = std::fs::read_link(link).ok()?;
    Some(format!(
        "`{}` is a symbolic link to `{}`, which does not exist",
        link.display(),
        target.display()
    ))
}

fn last(name: &Path) -> &Path {
    name.file_name().map_or(name, Path::new)
}

fn try_lock(file: File) -> io::Result<Locked> {
    match file.try_lock() {
        Ok(()) => Ok(Locked::Held(FileLock(file))),
        Err(TryLockError::WouldBlock) => Ok(Locked::Busy),
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
            Ok(Locked::Unsupported)
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(all(test, unix))]
mod tests;

//! What is found in the place of the files and folders of the program.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe, device or socket.
    Special,
}

impl FileKind {
    fn described(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Folder => "a folder",
            Self::Link => "a symbolic link",
            Self::Special => "a named pipe, device or socket",
        }
    }
}

/// Something in a run or output folder that the program does not use.
///
/// It is the inner error of an [`io::Error`]. Its message is a whole sentence with the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignFile {
    /// The name stands for something else than expected.
    #[error("`{path}` is {}, not {}; remove it, or rename it", .found.described(), .expected.described())]
    Other {
        /// Path of the file or folder.
        path: PathBuf,
        /// What it is.
        found: FileKind,
        /// What it must be.
        expected: FileKind,
    },
    /// The name is a link.
    #[error(
        "`{path}` is a symbolic link, and links inside of run and output folders are not followed; remove it, or replace it with what it leads to"
    )]
    Link {
        /// Path of the link.
        path: PathBuf,
    },
    /// The folder was moved, removed or replaced while it was in use.
    #[error(
        "`{path}` is no longer the folder that this process opened: it was moved, removed or replaced; move it back"
    )]
    Moved {
        /// Path of the folder.
        path: PathBuf,
    },
}

impl ForeignFile {
    /// Returns the inner error if `error` contains one.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(super) fn error(path: PathBuf, found: FileKind, expected: FileKind) -> io::Error {
        let fault = match found {
            FileKind::Link => Self::Link { path },
            found => Self::Other { path, found, expected },
        };
        io::Error::new(ErrorKind::InvalidInput, fault)
    }
}

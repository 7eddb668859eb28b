//! Where bytes come from, and what an error says of it.

use crate::{DataError, PromptFault};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A source of bytes.
pub type Bytes = Box<dyn Read + Send>;

/// Where bytes come from, for errors.
pub struct FileOrigin {
    /// The path as it was given.
    pub path: PathBuf,
    /// Whether they are decompressed.
    pub compressed: bool,
}

impl FileOrigin {
    /// Returns the text of a line.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text<'a>(&self, bytes: &'a [u8], line: u64) -> Result<&'a str, DataError> {
        str::from_utf8(bytes).map_err(|_| DataError::NotUtf8 { path: self.path.clone(), line })
    }

    /// Returns the error of a read after `line`, the last line that was read whole.
    pub fn io_error(&self, source: io::Error, line: u64) -> DataError {
        let path = self.path.clone();
        // What the decompressor finds wrong has these kinds; the disk's faults have others.
        let damaged = matches!(
            source.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        );
        if self.compressed && damaged {
            DataError::BadGzip { path, line, source }
        } else {
            DataError::Unreadable { path, source }
        }
    }

    pub(crate) fn fault(&self, line: u64, fault: PromptFault) -> DataError {
        DataError::BadPrompt { path: self.path.clone(), line, fault }
    }
}

/// Opens a file.
///
/// # Errors
/// It does not exist or cannot be opened.
pub fn open_file(path: &Path) -> Result<File, DataError> {
    File::open(path).map_err(|source| reading_error(path, source))
}

/// Reads the whole of a small text file.
///
/// # Errors
/// It does not exist or cannot be read.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    std::fs::read_to_string(path).map_err(|source| reading_error(path, source))
}

/// As [`read_text`]; `None` where there is no such file.
pub(crate) fn read_text_if_there(path: &Path) -> Result<Option<String>, DataError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(DataError::MissingFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn reading_error(path: &Path, source: io::Error) -> DataError {
    match source.kind() {
        io::ErrorKind::NotFound => DataError::MissingFile { path: path.into() },
        _ => DataError::Unreadable { path: path.into(), source },
    }
}

//! A line reader with a limit on the line length.

use crate::DataError;
use crate::origin::{Bytes, FileOrigin};
use std::io::{BufRead, BufReader, Read};

/// Number of consecutive empty lines after which a file is rejected.
const MOST_EMPTY: u64 = 100_000;

/// Reads a file line by line.
pub struct LineReader {
    source: BufReader<Bytes>,
    longest: usize,
    /// Number of lines read.
    line: u64,
    /// Number of empty lines since the last non-empty one.
    empty: u64,
    bytes: Vec<u8>,
}

impl LineReader {
    /// Creates a reader for lines of at most `longest` bytes, including the newline.
    pub fn new(source: Bytes, longest: usize) -> Self {
        let source = BufReader::with_capacity(1 << 16, source);
        Self { source, longest, line: 0, empty: 0, bytes: Vec::new() }
    }

    /// Returns the next line and its number, starting at 1. The line includes its newline. A byte
    /// order mark is removed.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, if the line is too long, or after 100,000
    /// consecutive empty lines.
    pub fn next_line(&mut self, origin: &FileOrigin) -> Result<Option<(u64, &[u8])>, DataError> {
        self.bytes.clear();
        let mut source = (&mut self.source).take(self.longest as u64 + 1);
        let read = source.read_until(b'\n', &mut self.bytes);
        if read.map_err(|error| origin.io_error(error, self.line))? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.bytes.len() > self.longest {
            return Err(too_long(self.longest).at_line(&origin.path, self.line));
        }
        let bytes = self.bytes.as_slice();
        self.empty = if bytes.trim_ascii().is_empty() { self.empty + 1 } else { 0 };
        if self.empty == MOST_EMPTY {
            let fault = format!("the previous {MOST_EMPTY} lines are empty; remove empty lines");
            return Err(DataError::Invalid(fault).at_line(&origin.path, self.line));
        }
        let marked = bytes.strip_prefix("\u{feff}".as_bytes()).filter(|_| self.line == 1);
        Ok(Some((self.line, marked.unwrap_or(bytes))))
    }
}

/// Returns an error for a line or record longer than `longest` bytes.
pub fn too_long(longest: usize) -> DataError {
    DataError::Invalid(format!(
        "the record is longer than {} MiB; write one record per line, and close every quote",
        longest >> 20
    ))
}

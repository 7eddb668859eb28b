//! The character that separates the cells of a CSV file.

use std::io::{BufRead, BufReader, Cursor, Read};

use crate::{Bytes, DataError, FileOrigin};

/// Detects the character that separates cells from the first line that is not empty: a comma, or a
/// semicolon or tab if the line contains no comma. Also returns a source that starts at the beginning.
/// At most about `longest` bytes are read.
///
/// # Errors
/// Returns an error if the source cannot be read.
pub fn cell_separator(
    source: Bytes,
    longest: usize,
    origin: &FileOrigin,
) -> Result<(u8, Bytes), DataError> {
    let mut source = BufReader::new(source);
    let mut head = Vec::new();
    let mut line_start = 0;
    while head[line_start..].trim_ascii().is_empty() && head.len() <= longest {
        line_start = head.len();
        let mut limited = source.by_ref().take(longest as u64 + 1);
        let read =
            limited.read_until(b'\n', &mut head).map_err(|error| origin.io_error(error, 0))?;
        if read == 0 {
            break;
        }
    }
    let separator = [b',', b';', b'\t'].into_iter().find(|separator| head.contains(separator));
    Ok((separator.unwrap_or(b','), Box::new(Cursor::new(head).chain(source))))
}

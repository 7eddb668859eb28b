//! Records of a JSON array, as `json.dump` writes a list.

use super::json_rows::{LONGEST, LineFault, NumberedKeys, object};
use crate::DataError;
use crate::line_reader::too_long;
use crate::origin::{Bytes, FileOrigin};
use std::io::{self, BufRead, BufReader, Read};

/// Reads the elements of an array one by one. They are numbered from 1.
pub(super) struct ArrayRows {
    source: BufReader<Bytes>,
    /// Number of elements read.
    row: u64,
    is_ended: bool,
    bytes: Vec<u8>,
}

/// Returns the source, and whether it begins with an array.
pub(super) fn starts_array(source: Bytes) -> io::Result<(bool, BufReader<Bytes>)> {
    let mut source = BufReader::with_capacity(1 << 16, source);
    let start = source.fill_buf()?;
    let start = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    let is_array = start.trim_ascii_start().starts_with(b"[");
    Ok((is_array, source))
}

impl ArrayRows {
    /// Creates a reader of a source that begins with an array.
    pub(super) fn new(mut source: BufReader<Bytes>) -> io::Result<Self> {
        source.skip_until(b'[')?;
        Ok(Self { source, row: 0, is_ended: false, bytes: Vec::new() })
    }

    /// Returns the next element as an object.
    pub(super) fn next(&mut self, origin: &FileOrigin) -> Result<Option<NumberedKeys>, DataError> {
        let Some((row, text)) = self.next_text(origin)? else { return Ok(None) };
        let keys = object(text).map_err(|fault| {
            let reason = match fault {
                LineFault::NotAnObject { reason } => {
                    format!("an element of the array is not an object: {reason}; records are such as {{\"prompt\": \"2 + 2 =\"}}")
                }
                fault => format!("{fault}; keep one of them"),
            };
            DataError::Invalid(reason).at_line(&origin.path, row)
        })?;
        Ok(Some((row, keys)))
    }

    /// Returns the number and the text of the next element.
    pub(super) fn next_text(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<(u64, &str)>, DataError> {
        if self.is_ended {
            return Ok(None);
        }
        let end = self.read_element(origin)?;
        let fault = |reason: &str, row| {
            Err(DataError::Invalid(reason.to_owned()).at_line(&origin.path, row))
        };
        let is_empty = self.bytes.trim_ascii().is_empty();
        if end == Some(b']') {
            self.is_ended = true;
            self.refuse_more(origin)?;
            if is_empty && self.row == 0 {
                return Ok(None);
            }
        }
        self.row += 1;
        match (end, is_empty) {
            (None, _) => fault("the file ends inside of the JSON array; write it again", self.row),
            (_, true) => fault(
                "an element of the JSON array is missing before `,` or `]`; write the file again",
                self.row,
            ),
            _ => Ok(Some((self.row, origin.text(self.bytes.trim_ascii(), self.row)?))),
        }
    }

    /// Reads the bytes of an element. Returns the `,` or `]` after it, or `None` at the end of the file.
    fn read_element(&mut self, origin: &FileOrigin) -> Result<Option<u8>, DataError> {
        self.bytes.clear();
        let (mut depth, mut is_text, mut is_escaped) = (0_u64, false, false);
        loop {
            let part = self.source.fill_buf().map_err(|error| origin.io_error(error, self.row))?;
            if part.is_empty() {
                return Ok(None);
            }
            let end = part.iter().position(|&byte| {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' if is_text => is_escaped = true,
                    b'"' => is_text = !is_text,
                    _ if is_text => {}
                    b'{' | b'[' => depth += 1,
                    b',' | b']' if depth == 0 => return true,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                false
            });
            let taken = end.unwrap_or(part.len());
            self.bytes.extend_from_slice(&part[..taken]);
            let mark = end.map(|end| part[end]);
            self.source.consume(taken + usize::from(end.is_some()));
            if self.bytes.len() > LONGEST {
                return Err(too_long(LONGEST).at_line(&origin.path, self.row + 1));
            }
            if mark.is_some() {
                return Ok(mark);
            }
        }
    }

    /// Returns an error if anything but white space follows the array.
    fn refuse_more(&mut self, origin: &FileOrigin) -> Result<(), DataError> {
        let mut rest = [0; 1 << 12];
        loop {
            let read = self.source.read(&mut rest);
            let read = read.map_err(|error| origin.io_error(error, self.row))?;
            if !rest[..read].trim_ascii().is_empty() {
                let fault = "there is more text after the end of the JSON array; write one array, or one object per line";
                return Err(
                    DataError::Invalid(fault.to_owned()).at_line(&origin.path, self.row + 1)
                );
            }
            if read == 0 {
                return Ok(());
            }
        }
    }
}

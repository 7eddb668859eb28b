//! Checks the footer of a Parquet file before the `parquet` crate parses it.
//!
//! The crate builds the tree of the schema recursively and without a limit, so a footer of a few
//! kilobytes can overflow the stack, which would abort the program.

use crate::parquet_columns::DEEPEST;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Maximum depth of the schema. Each nested list or map takes two levels.
const LEVELS: usize = 2 * DEEPEST + 2;
/// Maximum depth of values that are skipped, as in the `parquet` crate.
const SKIPPED: u32 = 64;
/// Largest footer in bytes.
const LARGEST: u64 = 256 << 20;

const DAMAGED: &str = "its metadata or a page is damaged";

/// Checks that the schema is not nested too deeply. Other faults are left to the `parquet` crate.
///
/// # Errors
/// Returns an error if it is, or if the footer cannot be parsed.
pub(crate) fn check_depth(mut file: &File) -> Result<(), String> {
    let Some(length) = footer_length(file) else { return Ok(()) };
    if length > LARGEST {
        return Err(format!("its footer is larger than {} MiB", LARGEST >> 20));
    }
    let back = i64::try_from(length + 8).unwrap_or(i64::MAX);
    let mut footer = Vec::new();
    let read =
        file.seek(SeekFrom::End(-back)).and_then(|_| file.take(length).read_to_end(&mut footer));
    if read.is_err() {
        return Ok(()); // It is longer than the file.
    }
    let mut thrift = Thrift { bytes: &footer };
    thrift.each_field(&mut |thrift, id, kind| match (id, kind) {
        (2, LIST) => thrift.schema(),
        _ => thrift.skip(kind, SKIPPED),
    })
}

/// Returns the length of the footer, or `None` if the file does not end like a Parquet file.
fn footer_length(mut file: &File) -> Option<u64> {
    file.seek(SeekFrom::End(-8)).ok()?;
    let mut end = [0; 8];
    file.read_exact(&mut end).ok()?;
    let [a, b, c, d, magic @ ..] = end;
    (magic == *b"PAR1").then(|| u64::from(u32::from_le_bytes([a, b, c, d])))
}

const LIST: u8 = 9;
const STRUCT: u8 = 12;
/// Field of a schema element with its number of children.
const CHILDREN: i64 = 5;

/// A reader of Thrift's compact protocol.
struct Thrift<'a> {
    bytes: &'a [u8],
}

type Parsed<T> = Result<T, String>;

impl Thrift<'_> {
    /// Reads the list of schema elements, which is the tree in depth-first order.
    fn schema(&mut self) -> Parsed<()> {
        let (size, kind) = self.list_header()?;
        if kind != STRUCT {
            return Err(DAMAGED.to_owned());
        }
        // Children that are still missing at each level.
        let mut missing: Vec<u64> = Vec::new();
        for _ in 0..size {
            let mut children = 0;
            self.each_field(&mut |thrift, id, kind| match (id, kind) {
                (CHILDREN, 4..=6) => {
                    children = u64::try_from(thrift.signed()?).unwrap_or(0);
                    Ok(())
                }
                _ => thrift.skip(kind, SKIPPED),
            })?;
            if let Some(last) = missing.last_mut() {
                *last -= 1;
            }
            if children > 0 {
                missing.push(children);
            }
            while missing.last() == Some(&0) {
                missing.pop();
            }
            if missing.len() > LEVELS {
                return Err(format!("a column has more than {DEEPEST} nested levels"));
            }
        }
        Ok(())
    }

    /// Calls `read` with the number and type of each field of a struct.
    fn each_field(&mut self, read: &mut dyn FnMut(&mut Self, i64, u8) -> Parsed<()>) -> Parsed<()> {
        let mut id = 0_i64;
        loop {
            let header = self.byte()?;
            let (step, kind) = (header >> 4, header & 15);
            if kind == 0 {
                return Ok(());
            }
            id = match step {
                0 => self.signed()?,
                step => id.wrapping_add(i64::from(step)),
            };
            read(self, id, kind)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Parsed<()> {
        let deeper = depth.checked_sub(1).ok_or(DAMAGED)?;
        match kind {
            1 | 2 => Ok(()), // The value of a boolean field is its type.
            3 => self.take(1),
            4..=6 => self.unsigned().map(|_| ()),
            7 => self.take(8),
            8 => {
                let length = self.unsigned()?;
                self.take(length)
            }
            LIST | 10 => {
                let (size, kind) = self.list_header()?;
                self.skip_all(size, &[kind], deeper)
            }
            11 => match self.unsigned()? {
                0 => Ok(()),
                size => {
                    let kinds = self.byte()?;
                    self.skip_all(size, &[kinds >> 4, kinds & 15], deeper)
                }
            },
            STRUCT => self.each_field(&mut |thrift, _, kind| thrift.skip(kind, deeper)),
            13 => self.take(16),
            _ => Err(DAMAGED.to_owned()),
        }
    }

    /// Skips the elements of a list or the entries of a map.
    fn skip_all(&mut self, size: u64, kinds: &[u8], depth: u32) -> Parsed<()> {
        for _ in 0..size {
            for &kind in kinds {
                match kind {
                    1 | 2 => self.take(1)?,
                    kind => self.skip(kind, depth)?,
                }
            }
        }
        Ok(())
    }

    fn list_header(&mut self) -> Parsed<(u64, u8)> {
        let header = self.byte()?;
        let size = match header >> 4 {
            15 => self.unsigned()?,
            size => u64::from(size),
        };
        Ok((size, header & 15))
    }

    fn signed(&mut self) -> Parsed<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn unsigned(&mut self) -> Parsed<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DAMAGED.to_owned())
    }

    fn byte(&mut self) -> Parsed<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or(DAMAGED)?;
        self.bytes = rest;
        Ok(byte)
    }

    fn take(&mut self, length: u64) -> Parsed<()> {
        let length = usize::try_from(length).map_err(|_| DAMAGED)?;
        self.bytes = self.bytes.get(length..).ok_or(DAMAGED)?;
        Ok(())
    }
}

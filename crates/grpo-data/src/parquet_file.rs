//! A reader for untrusted Parquet files.

use crate::caught::caught;
use crate::expansion::check_expansion;
use crate::parquet_columns::{ParquetColumn, columns_of};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// Minimum size of a value in memory, in bytes.
const VALUE: u64 = 8;
/// Minimum size of a row in memory, in bytes.
const ROW: u64 = 64;

/// Memory limit for a row and the pages that start at it. A page header of a few bytes can claim a
/// size of 2 GiB.
const PAGE: usize = 1 << 30;
const REMEDY: &str = "write the file with smaller pages";

/// Why a Parquet file cannot be read.
#[derive(Debug)]
pub enum ParquetFault {
    /// Its content is damaged or not supported.
    Content(String),
    /// The operating system cannot read it, which says nothing about its content.
    System(io::Error),
}

impl From<String> for ParquetFault {
    fn from(reason: String) -> Self {
        Self::Content(reason)
    }
}

impl From<io::Error> for ParquetFault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl fmt::Display for ParquetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(reason) => f.write_str(reason),
            Self::System(error) => error.fmt(f),
        }
    }
}

/// Reads a Parquet file row by row.
///
/// Damaged files that make the `parquet` crate panic result in an error. The same applies to
/// content that is implausibly large for the file size, because run-length and dictionary encoding
/// can represent any number of values in a few bytes. The iterator ends after an error.
pub struct ParquetFile {
    file: File,
    rows: Option<RowIter<'static>>,
    columns: Vec<ParquetColumn>,
    stored: u64,
    expanded: u64,
    /// Number of rows read so far.
    read: usize,
}

impl ParquetFile {
    /// Opens a file and reads its footer and all page headers.
    ///
    /// # Errors
    /// Returns an error if the file is not a Parquet file, if its page headers claim more values
    /// than are plausible for its size, if a column has a type that is not supported, or if the
    /// file cannot be read.
    pub fn new(file: File) -> Result<Self, ParquetFault> {
        let stored = file.metadata()?.len();
        let own = file.try_clone()?;
        let opened = caught(|| {
            crate::parquet_footer::check_depth(&file)?;
            let reader = SerializedFileReader::new(file).map_err(|error| reason(&error))?;
            let values = values_of(&reader)?;
            check_expansion(stored, values.saturating_mul(VALUE))
                .map_err(|error| error.to_string())?;
            let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
            let columns = columns_of(schema.get_fields())?;
            Ok((RowIter::from_file_into(Box::new(reader)), columns))
        });
        let (rows, columns) = opened.flatten().map_err(|reason| fault(&own, reason))?;
        Ok(Self { file: own, rows: Some(rows), columns, stored, expanded: 0, read: 0 })
    }

    /// Returns the column names.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Converts a row of this file to JSON.
    ///
    /// Dates, times, timestamps, decimals and UUIDs become strings, structs and maps objects, and
    /// binary values that are not UTF-8 an object `{"bytes": …}` with hexadecimal digits.
    ///
    /// # Errors
    /// Returns an error with the name of the column if a value is not valid for its type, such as a
    /// date after the year 9999.
    pub fn object(&self, row: &Row) -> Result<Map<String, Value>, String> {
        let cells = self.columns.iter().zip(row.get_column_iter());
        cells.map(|(column, (name, field))| Ok((name.clone(), column.json(field)?))).collect()
    }

    fn read(&mut self) -> Result<Option<Row>, ParquetFault> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let read = || caught(|| rows.next().transpose().map_err(|error| reason(&error)));
        let row = grpo_runtime::limited("a page of a Parquet file", REMEDY, PAGE, read).flatten();
        let row = row.map_err(|reason| match fault(&self.file, reason) {
            ParquetFault::Content(reason) => ParquetFault::Content(match self.damaged_column() {
                Some(name) => format!("column `{name}`: {reason}"),
                None => reason,
            }),
            system => system,
        })?;
        if let Some(row) = &row {
            self.expanded += ROW + row.get_column_iter().map(|(_, field)| size(field)).sum::<u64>();
            check_expansion(self.stored, self.expanded).map_err(|error| error.to_string())?;
            self.read += 1;
        }
        Ok(row)
    }

    /// Reads each column alone up to the current row, and returns the name of the first one that
    /// cannot be read.
    fn damaged_column(&self) -> Option<String> {
        let is_damaged = |column: TypePtr, root: &Type| {
            let file = self.file.try_clone().ok()?;
            let only = Type::group_type_builder(root.name()).with_fields(vec![column]).build();
            let reader = SerializedFileReader::new(file).ok()?;
            let mut rows = RowIter::from_file_into(Box::new(reader)).project(only.ok()).ok()?;
            Some(rows.nth(self.read).is_some_and(|row| row.is_err()))
        };
        let find = || {
            let reader = SerializedFileReader::new(self.file.try_clone().ok()?).ok()?;
            let root = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
            let found = root
                .get_fields()
                .iter()
                .find(|column| caught(|| is_damaged((*column).clone(), &root)) != Ok(Some(false)));
            found.map(|column| column.name().to_owned())
        };
        grpo_runtime::limited("a page of a Parquet file", REMEDY, PAGE, || caught(find)).ok()?
    }
}

impl Iterator for ParquetFile {
    type Item = Result<Row, ParquetFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.read().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.rows = None;
        }
        row
    }
}

/// Returns why a file could not be read. The `parquet` crate loses errors of the operating system, so
/// this reads the file again: if that fails, its content is not to blame.
fn fault(file: &File, reason: String) -> ParquetFault {
    let read = || -> io::Result<u64> {
        // Needs as many file descriptors as the crate.
        let (mut copy, _other) = (file.try_clone()?, file.try_clone()?);
        copy.seek(SeekFrom::Start(0))?;
        io::copy(&mut copy, &mut io::sink())
    };
    read().map_or_else(ParquetFault::System, |_| ParquetFault::Content(reason))
}

/// Returns the total number of values according to the page headers.
fn values_of(reader: &SerializedFileReader<File>) -> Result<u64, String> {
    let mut values = 0_u64;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|error| reason(&error))?;
        for column in 0..group.num_columns() {
            let pages = group.get_column_page_reader(column);
            let mut pages = pages.map_err(|error| reason(&error))?;
            while let Some(page) = pages.peek_next_page().map_err(|error| reason(&error))? {
                let levels = page.num_levels.or(page.num_rows).unwrap_or(0);
                values = values.saturating_add(levels as u64);
                pages.skip_next_page().map_err(|error| reason(&error))?;
            }
        }
    }
    Ok(values)
}

/// Describes an error of the `parquet` crate, whose own messages name its internals.
pub(crate) fn reason(error: &ParquetError) -> String {
    let text = error.to_string();
    let known = [
        ("checksum", "a page does not match its checksum"),
        ("Corrupt footer", "it does not end like a Parquet file"),
        ("less than footer", "it is too short to be a Parquet file"),
        ("file too small", "it is too short to be a Parquet file"),
        ("encrypt", "it is encrypted, which is not supported"),
        ("BYTE_ARRAY as String", "a text is not UTF-8"),
        ("codec type", "its compression is not supported"),
        ("Disabled feature", "its compression is not supported"),
        ("unknown encoding", "its encoding is not supported"),
    ];
    let found = known.iter().find(|(part, _)| text.contains(part));
    found.map_or("its metadata or a page is damaged", |(_, words)| words).to_owned()
}

/// Returns the approximate size of a value in bytes.
fn size(field: &Field) -> u64 {
    let inner = match field {
        Field::Str(text) => text.len() as u64,
        Field::Bytes(bytes) => bytes.len() as u64,
        Field::Group(row) => row.get_column_iter().map(|(_, field)| size(field)).sum(),
        Field::ListInternal(list) => list.elements().iter().map(size).sum(),
        Field::MapInternal(map) => {
            map.entries().iter().map(|(key, value)| size(key) + size(value)).sum()
        }
        _ => 0,
    };
    VALUE + inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_system_cannot_read_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        std::fs::write(&path, "not Parquet").unwrap();
        // Reading a file that is open for writing only fails.
        let file = File::options().write(true).open(&path).unwrap();
        assert!(matches!(ParquetFile::new(file), Err(ParquetFault::System(_))));
        let file = File::open(&path).unwrap();
        assert!(matches!(ParquetFile::new(file), Err(ParquetFault::Content(_))));
    }
}

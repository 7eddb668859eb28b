//! A reader for untrusted Parquet files.

use crate::caught::caught;
use crate::expansion::check_expansion;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use std::fs::File;

/// Minimum size of a value in memory, in bytes.
const VALUE: u64 = 8;
/// Minimum size of a row in memory, in bytes.
const ROW: u64 = 64;

/// Memory limit for a row and the pages that start at it. A page header of a few bytes can claim a
/// size of 2 GiB.
const PAGE: usize = 1 << 30;
const REMEDY: &str = "write the file with smaller pages";

/// Reads a Parquet file row by row.
///
/// Damaged files that make the `parquet` crate panic result in an error. The same applies to
/// content that is implausibly large for the file size, because run-length and dictionary encoding
/// can represent any number of values in a few bytes. The iterator ends after an error.
pub struct ParquetFile {
    rows: Option<RowIter<'static>>,
    columns: Vec<String>,
    stored: u64,
    expanded: u64,
}

impl ParquetFile {
    /// Opens a file and reads its footer and all page headers.
    ///
    /// # Errors
    /// Returns an error if the file is not a Parquet file, or if its page headers claim more values
    /// than are plausible for its size.
    pub fn new(file: File) -> Result<Self, String> {
        let stored = file.metadata().map_err(|error| error.to_string())?.len();
        let opened = caught(|| {
            let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
            let values = values_of(&reader)?;
            check_expansion(stored, values.saturating_mul(VALUE))
                .map_err(|error| error.to_string())?;
            let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
            let columns = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
            Ok((RowIter::from_file_into(Box::new(reader)), columns))
        });
        let (rows, columns) = opened.flatten()?;
        Ok(Self { rows: Some(rows), columns, stored, expanded: 0 })
    }

    /// Returns the column names.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    fn read(&mut self) -> Result<Option<Row>, String> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let read = || caught(|| rows.next().transpose().map_err(|error| error.to_string()));
        let row =
            grpo_process::limited("a page of a Parquet file", REMEDY, PAGE, read).flatten()?;
        if let Some(row) = &row {
            self.expanded += ROW + row.get_column_iter().map(|(_, field)| size(field)).sum::<u64>();
            check_expansion(self.stored, self.expanded).map_err(|error| error.to_string())?;
        }
        Ok(row)
    }
}

impl Iterator for ParquetFile {
    type Item = Result<Row, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.read().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.rows = None;
        }
        row
    }
}

/// Returns the total number of values according to the page headers.
fn values_of(reader: &SerializedFileReader<File>) -> Result<u64, String> {
    let mut values = 0;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|error| error.to_string())?;
        for column in 0..group.num_columns() {
            let pages = group.get_column_page_reader(column);
            let mut pages = pages.map_err(|error| error.to_string())?;
            while let Some(page) = pages.peek_next_page().map_err(|error| error.to_string())? {
                values += page.num_levels.or(page.num_rows).unwrap_or(0) as u64;
                pages.skip_next_page().map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(values)
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

//! Rows of a CSV file.

use super::options::ReadOptions;
use super::record::{LONGEST, MoleculeRecord, filled};
use crate::conditions::is_condition_column;
use grpo_data::{
    Bytes, CsvQuoteFaults, CsvQuotes, DataError, FileOrigin, Names, cell_separator, counted,
    too_long,
};
use std::io::{self, Read};

/// Names of the SMILES column, in order of preference.
const SMILES_COLUMNS: [&str; 3] = ["smiles", "canonical_smiles", "molecule"];

/// Buffer size of the CSV reader in bytes.
const BUFFER: usize = 1 << 16;

pub(super) struct CsvRows {
    csv: csv::Reader<RowLimit>,
    quote_faults: CsvQuoteFaults,
    row: csv::ByteRecord,
    /// The character that separates cells.
    delimiter: u8,
    /// Number of columns.
    width: usize,
    /// `None` if rows do not need a SMILES.
    smiles: Option<usize>,
    name: Option<usize>,
    split: Option<usize>,
    /// Names and positions of the columns with conditions.
    conditions: Vec<(String, usize)>,
}

impl CsvRows {
    /// Reads the header line and locates the columns. Also returns the header line.
    pub(super) fn new(
        source: Bytes,
        options: &ReadOptions,
        origin: &FileOrigin,
    ) -> Result<(Self, String), DataError> {
        let (delimiter, source) = cell_separator(source, LONGEST, origin)?;
        let (source, quote_faults) = CsvQuotes::new(source, delimiter);
        let mut csv = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(delimiter)
            // The number of cells is checked below, which allows the error to include the line
            // number.
            .flexible(true)
            .buffer_capacity(BUFFER)
            .from_reader(RowLimit { source, read: 0 });
        let mut row = csv::ByteRecord::new();
        csv.read_byte_record(&mut row).map_err(|error| reading_error(error, origin, 0))?;
        refuse_quotes(&quote_faults, origin)?;
        if row.is_empty() {
            return Err(DataError::Invalid(format!(
                "`{}` is empty; expected a line with the names of the columns, and a row per molecule",
                origin.path.display()
            )));
        }
        let line = line_of(&csv, &row);
        let names = row
            .iter()
            .map(|cell| origin.text(cell, line).map(|name| name.trim().to_owned()))
            .collect::<Result<Vec<String>, _>>()?;
        let find = |wanted: &str| {
            let exact = names.iter().position(|name| name == wanted);
            exact.or_else(|| names.iter().position(|name| name.eq_ignore_ascii_case(wanted)))
        };
        let wanted = match options.smiles_column.as_deref() {
            Some(name) => vec![name.trim()],
            None => SMILES_COLUMNS.to_vec(),
        };
        let smiles = wanted.iter().find_map(|name| find(name));
        let needs_none = options.rows_without_smiles
            && names.iter().any(|name| is_condition_column(&name.to_ascii_lowercase()));
        if smiles.is_none() && !needs_none {
            if options.rows_without_smiles {
                return Err(DataError::Invalid(format!(
                    "`{}` has no column with a condition (columns: {}); name a column `scaffold_smiles` or after a property, e.g. `logp`",
                    origin.path.display(),
                    Names(names)
                )));
            }
            let named = options.column_setting.map(|setting| format!(" or set {setting}"));
            return Err(DataError::Invalid(format!(
                "`{}` has no column {} (columns: {}); rename the column that contains the SMILES{}",
                origin.path.display(),
                Names(wanted.into_iter().map(str::to_owned).collect()),
                Names(names),
                named.unwrap_or_default()
            )));
        }
        let (name, split) = (find("name"), find("split").or_else(|| find("source")));
        for column in [smiles, name, split].into_iter().flatten() {
            refuse_duplicates(&names, column, Some(column) == smiles, options, origin)?;
        }
        let width = names.len();
        let lower = names.iter().map(|name| name.to_ascii_lowercase()).zip(0..);
        let conditions = lower.filter(|(name, _)| is_condition_column(name)).collect();
        let rows =
            Self { csv, quote_faults, row, delimiter, width, smiles, name, split, conditions };
        Ok((rows, names.join(",")))
    }

    /// Returns the next row. The SMILES can be empty.
    pub(super) fn next(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<MoleculeRecord>, DataError> {
        let before = self.csv.position().line() - 1;
        self.csv.get_mut().read = 0;
        let read = self.csv.read_byte_record(&mut self.row);
        if !read.map_err(|error| reading_error(error, origin, before))? {
            return Ok(None);
        }
        refuse_quotes(&self.quote_faults, origin)?;
        let line = line_of(&self.csv, &self.row);
        if self.row.len() != self.width {
            let remedy = match (self.row.len() < self.width, self.delimiter) {
                (true, _) => "add the missing fields, which may be empty",
                (false, b';') => "quote fields that contain semicolons",
                (false, b'\t') => "quote fields that contain tabs",
                (false, _) => "quote fields that contain commas",
            };
            return Err(DataError::Invalid(format!(
                "line {line} of `{}` has {}, but the header has {}; {remedy}",
                origin.path.display(),
                counted(self.row.len(), "field"),
                self.width,
            )));
        }
        let cell = |column: usize| origin.text(&self.row[column], line);
        let optional = |column: Option<usize>| match column {
            Some(column) => cell(column).map(filled),
            None => Ok(None),
        };
        let smiles = optional(self.smiles)?.unwrap_or_default();
        if smiles.contains(['\n', '\r']) {
            return Err(DataError::Invalid(format!(
                "line {line} of `{}` has a SMILES with a line break; write one molecule per row, or close a quote",
                origin.path.display()
            )));
        }
        Ok(Some(MoleculeRecord {
            line,
            smiles,
            name: optional(self.name)?,
            split: optional(self.split)?,
            conditions: self
                .conditions
                .iter()
                .map(|(name, column)| Ok((name.clone(), optional(Some(*column))?)))
                .collect::<Result<_, DataError>>()?,
        }))
    }
}

/// Returns an error if the name of a column is ambiguous.
fn refuse_duplicates(
    names: &[String],
    column: usize,
    is_smiles: bool,
    options: &ReadOptions,
    origin: &FileOrigin,
) -> Result<(), DataError> {
    let chosen = &names[column];
    // A column that was named exactly is distinct from one in another case.
    let is_exact = options.smiles_column.as_ref() == Some(chosen);
    let is_same =
        |other: &&String| *other == chosen || !is_exact && other.eq_ignore_ascii_case(chosen);
    let same: Vec<String> = names.iter().filter(is_same).cloned().collect();
    if same.len() == 1 {
        return Ok(());
    }
    let setting = options.column_setting.filter(|_| is_smiles && same[0] != same[1]);
    let choice = setting.map_or(String::new(), |setting| {
        format!(", or set {setting} to one of them, in this spelling")
    });
    Err(DataError::Invalid(format!(
        "`{}` has {} columns with the same name ({}); rename or remove all but one{choice}",
        origin.path.display(),
        same.len(),
        Names(same)
    )))
}

/// Returns an error if a quote is invalid.
fn refuse_quotes(faults: &CsvQuoteFaults, origin: &FileOrigin) -> Result<(), DataError> {
    match faults.first() {
        None => Ok(()),
        Some((line, fault)) => {
            Err(DataError::Invalid(format!("line {line} of `{}` {fault}", origin.path.display())))
        }
    }
}

/// Returns the line number on which `row`, the last row read, begins. The CSV reader reports the
/// position of preceding blank lines, so the number of lines in the row is subtracted from the
/// position of its end.
fn line_of(csv: &csv::Reader<RowLimit>, row: &csv::ByteRecord) -> u64 {
    let bytes = row.as_slice().iter();
    let inner = bytes.filter(|&&byte| byte == b'\n').count() as u64;
    let counted = csv.position().line().saturating_sub(1 + inner);
    // For an unclosed quote, the result would be too small by one, because the last newline is part
    // of the row.
    counted.max(row.position().map_or(1, csv::Position::line))
}

/// Extracts the I/O error from a CSV error. No other errors can occur, because the number of cells
/// and UTF-8 are checked in this module.
fn reading_error(error: csv::Error, origin: &FileOrigin, before: u64) -> DataError {
    let error = match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    };
    match error.get_ref().is_some_and(|inner| inner.is::<RowTooLong>()) {
        true => too_long(LONGEST).at_line(&origin.path, before + 1),
        false => origin.io_error(error, before),
    }
}

/// Limits the length of a row, e.g. after an unclosed quote.
struct RowLimit {
    source: CsvQuotes<Bytes>,
    /// Number of bytes read since the previous row.
    read: usize,
}

impl Read for RowLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read > LONGEST + BUFFER {
            return Err(io::Error::other(RowTooLong));
        }
        let read = self.source.read(buffer)?;
        self.read += read;
        Ok(read)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the row is too long")]
struct RowTooLong;

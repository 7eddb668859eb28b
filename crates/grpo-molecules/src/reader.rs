//! Reads molecules from `.smi` and CSV files, optionally compressed.

mod csv_rows;
mod line_ends;
mod options;
mod record;
mod smi_rows;

use csv_rows::CsvRows;
use grpo_data::{Bytes, DataError, FileOrigin, Records, open_file};
use line_ends::LineEnds;
pub use options::ReadOptions;
pub use record::MoleculeRecord;
pub use record::REMOVE_TEXT;
pub(crate) use record::{record_fault, smiles_and_name};
use smi_rows::SmiRows;
pub(crate) use smi_rows::is_header;
use std::io::Read;
use std::path::Path;

/// The format of a file, ignoring compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoleculeFormat {
    /// One molecule per line. The SMILES ends at the first space or tab and can be followed by a
    /// name.
    Smi,
    /// Values separated by commas, semicolons or tabs, with a header line.
    Csv,
}

/// A lazy iterator over the molecules in a file. It ends after the first error.
///
/// - In `.smi` files, the SMILES ends at the first space or tab, or after the CXSMILES extension that
///   follows it. If the first line starts with `smiles`, it is treated as a header and stored in
///   [`Self::header`].
/// - In `.csv` files, column names are case-insensitive and cells are trimmed. The whole cell is the
///   SMILES, because names have a column of their own. If the header contains no comma, cells are
///   separated by semicolons or tabs.
///
/// Both formats can be compressed (`.gz`). Byte order marks and all types of line endings are
/// accepted. Lines without a SMILES are skipped and counted in [`Self::empty_lines`], unless
/// [`ReadOptions::keep_empty`] is set.
pub struct MoleculeReader {
    origin: FileOrigin,
    rows: Rows,
    keep_empty: bool,
    empty_lines: u64,
    header: Option<String>,
}

impl MoleculeReader {
    /// Opens a `.smi`, `.smi.gz`, `.csv` or `.csv.gz` file.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has an unsupported extension, or is a
    /// CSV file without a SMILES column.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, DataError> {
        let (origin, ending) = FileOrigin::new(path);
        let format = match ending.as_str() {
            "smi" => MoleculeFormat::Smi,
            "csv" => MoleculeFormat::Csv,
            _ => {
                let expected = "`.smi`, `.smi.gz`, `.csv` or `.csv.gz`";
                return Err(origin.unknown_format(expected, Records::Keys("a molecule")));
            }
        };
        Self::from_reader(open_file(path)?, format, origin.compressed, path, options)
    }

    /// Creates a reader for a byte source. `path` is only used in error messages.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read or is a CSV file without a SMILES column.
    pub fn from_reader(
        source: impl Read + Send + 'static,
        format: MoleculeFormat,
        compressed: bool,
        path: &Path,
        options: &ReadOptions,
    ) -> Result<Self, DataError> {
        let origin = FileOrigin { path: path.into(), compressed };
        let source: Bytes = Box::new(LineEnds::new(origin.decoded(source)));
        let (rows, header) = match format {
            MoleculeFormat::Smi => (Rows::Smi(SmiRows::new(source)), None),
            MoleculeFormat::Csv => {
                let (rows, header) = CsvRows::new(source, options, &origin)?;
                (Rows::Csv(rows), Some(header))
            }
        };
        let keep_empty = options.keep_empty;
        Ok(Self { origin, rows, keep_empty, empty_lines: 0, header })
    }

    /// Returns the number of lines without a SMILES read so far.
    pub fn empty_lines(&self) -> u64 {
        self.empty_lines
    }

    /// Returns the header line if it has been read. All CSV files have one, but few `.smi` files
    /// do.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Reads the next record that has a SMILES.
    fn read(&mut self) -> Result<Option<MoleculeRecord>, DataError> {
        loop {
            let record = match &mut self.rows {
                Rows::Smi(rows) => rows.next(&self.origin)?,
                Rows::Csv(rows) => rows.next(&self.origin)?,
                Rows::Ended => None,
            };
            let Some(record) = record else {
                return Ok(None);
            };
            if record.smiles.is_empty() && !self.keep_empty {
                self.empty_lines += 1;
            } else if self.is_smi_header(&record) {
                self.header = Some(match record.name {
                    Some(name) => format!("{} {name}", record.smiles),
                    None => record.smiles,
                });
            } else {
                return Ok(Some(record));
            }
        }
    }

    fn is_smi_header(&self, record: &MoleculeRecord) -> bool {
        matches!(self.rows, Rows::Smi(_)) && record.line == 1 && is_header(&record.smiles)
    }
}

impl Iterator for MoleculeReader {
    type Item = Result<MoleculeRecord, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read().transpose();
        if !matches!(record, Some(Ok(_))) {
            self.rows = Rows::Ended;
        }
        record
    }
}

/// Divides records into blocks of at most `size`, in order to process those of a block in parallel
/// without using much memory.
pub(crate) fn blocks(
    mut records: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    size: usize,
) -> impl Iterator<Item = Result<Vec<MoleculeRecord>, DataError>> {
    std::iter::from_fn(move || {
        let block: Result<Vec<_>, DataError> = records.by_ref().take(size).collect();
        block.map(|block| (!block.is_empty()).then_some(block)).transpose()
    })
}

enum Rows {
    Smi(SmiRows),
    Csv(CsvRows),
    Ended,
}

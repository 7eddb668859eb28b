//! Reads molecules from `.smi` and CSV files, plain or compressed.

mod csv_rows;
mod line_ends;
mod options;
mod quotes;
mod record;
mod smi_rows;

use csv_rows::CsvRows;
use grpo_data::{Bytes, DataError, FileOrigin, open_file};
use line_ends::LineEnds;
pub use options::ReadOptions;
pub use record::MoleculeRecord;
use smi_rows::SmiRows;
use std::io::Read;
use std::path::Path;

/// File formats, compressed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoleculeFormat {
    /// One molecule per line: the SMILES up to the first blank, then a name.
    Smi,
    /// Values separated by commas, semicolons or tabs, with a header line.
    Csv,
}

/// Iterates lazily over the molecules of a file. After an error the iterator ends.
///
/// - `.smi`: the SMILES ends at the first space or tab. A first line that starts with `smiles` is a header, kept in
///   [`Self::header`].
/// - `.csv`: column names are case-insensitive, cells are trimmed. Without a comma in the header, cells are separated by
///   semicolons or tabs.
/// - Either may end in `.gz`. Byte order marks and all line ends are accepted. Lines without a SMILES are skipped and counted in
///   [`Self::empty_lines`], unless [`ReadOptions::keep_empty`] is set.
pub struct MoleculeReader {
    origin: FileOrigin,
    rows: Rows,
    keep_empty: bool,
    empty_lines: u64,
    header: Option<String>,
}

impl MoleculeReader {
    /// Opens a file whose name ends in `.smi`, `.smi.gz`, `.csv` or `.csv.gz`.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has another extension, or is CSV
    /// without a column of SMILES.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, DataError> {
        let (origin, ending) = FileOrigin::new(path);
        let format = match ending.as_str() {
            "smi" => MoleculeFormat::Smi,
            "csv" => MoleculeFormat::Csv,
            _ => return Err(origin.unknown_format("`.smi`, `.smi.gz`, `.csv` or `.csv.gz`")),
        };
        Self::from_reader(open_file(path)?, format, origin.compressed, path, options)
    }

    /// Reads from a source of bytes; errors name `path`.
    ///
    /// # Errors
    /// As [`Self::open`], except for opening.
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

    /// Returns the number of lines without a SMILES so far.
    pub fn empty_lines(&self) -> u64 {
        self.empty_lines
    }

    /// Returns the header line, if it was read: always in CSV files, rarely in `.smi` files.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Reads the next record with a SMILES.
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

    /// `smiles` is not a SMILES, so treating it as a header loses no molecule.
    fn is_smi_header(&self, record: &MoleculeRecord) -> bool {
        matches!(self.rows, Rows::Smi(_))
            && record.line == 1
            && record.smiles.eq_ignore_ascii_case("smiles")
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

enum Rows {
    Smi(SmiRows),
    Csv(CsvRows),
    Ended,
}

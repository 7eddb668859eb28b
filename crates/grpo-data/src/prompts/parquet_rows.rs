//! Converts the rows of a Parquet file to JSON.

use super::json_rows::NumberedKeys;
use crate::DataError;
use crate::origin::FileOrigin;
use crate::parquet_file::{ParquetFault, ParquetFile};
use crate::system_fault::note_system_fault;
use std::collections::BTreeSet;
use std::fs::File;

pub(super) struct ParquetRows {
    rows: ParquetFile,
    /// Number of rows read so far.
    row: u64,
}

impl ParquetRows {
    pub(super) fn new(file: File, origin: &FileOrigin) -> Result<Self, DataError> {
        let rows = ParquetFile::new(file);
        let rows = rows.and_then(refuse_same_columns).map_err(|reason| bad(origin, 0, reason))?;
        Ok(Self { rows, row: 0 })
    }

    pub(super) fn next(&mut self, origin: &FileOrigin) -> Result<Option<NumberedKeys>, DataError> {
        let Some(row) = self.rows.next() else { return Ok(None) };
        let row = row.map_err(|reason| bad(origin, self.row, reason))?;
        self.row += 1;
        let object = self.rows.object(&row).map_err(|fault| {
            let remedy = "correct the value, or write the file without this column";
            DataError::Invalid(format!("{fault}; {remedy}")).at_line(&origin.path, self.row)
        })?;
        Ok(Some((self.row, object)))
    }
}

/// Rejects duplicate column names. Only the last of these columns would be read.
fn refuse_same_columns(rows: ParquetFile) -> Result<ParquetFile, ParquetFault> {
    let mut names = BTreeSet::new();
    let duplicate = rows.columns().find(|name| !names.insert(*name)).map(str::to_owned);
    match duplicate {
        Some(name) => Err(format!("duplicate column `{name}`").into()),
        None => Ok(rows),
    }
}

fn bad(origin: &FileOrigin, row: u64, fault: ParquetFault) -> DataError {
    match fault {
        ParquetFault::Content(reason) => DataError::Invalid(format!(
            "`{}` cannot be read as Parquet after row {row}: {reason}; write the file again",
            origin.path.display()
        )),
        ParquetFault::System(source) => {
            note_system_fault(&origin.path, &source);
            DataError::Unreadable { path: origin.path.clone(), source }
        }
    }
}

//! Converts the rows of a Parquet file to JSON.

use super::json_rows::NumberedKeys;
use crate::DataError;
use crate::origin::FileOrigin;
use crate::parquet_file::ParquetFile;
use parquet::record::Field;
use serde_json::{Map, Value, json};
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
        Ok(Some((self.row, object(row.get_column_iter()))))
    }
}

/// Rejects duplicate column names. Only the last of these columns would be read.
fn refuse_same_columns(rows: ParquetFile) -> Result<ParquetFile, String> {
    let mut names = BTreeSet::new();
    match rows.columns().iter().find(|name| !names.insert(*name)) {
        Some(name) => Err(format!("duplicate column `{name}`")),
        None => Ok(rows),
    }
}

fn bad(origin: &FileOrigin, row: u64, reason: String) -> DataError {
    DataError::Invalid(format!(
        "`{}` cannot be read as Parquet after row {row}: {reason}; write the file again",
        origin.path.display()
    ))
}

fn object<'a>(columns: impl Iterator<Item = (&'a String, &'a Field)>) -> Map<String, Value> {
    columns.map(|(name, field)| (name.clone(), json_of(field))).collect()
}

fn json_of(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => number(value.to_f64()),
        Field::Float(value) => number(f64::from(*value)),
        Field::Double(value) => number(*value),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => match str::from_utf8(bytes.data()) {
            // Some writers don't annotate text columns as UTF-8.
            Ok(text) => text.into(),
            Err(_) => {
                let hex: String = bytes.data().iter().map(|byte| format!("{byte:02x}")).collect();
                json!({ "bytes": hex })
            }
        },
        Field::Group(row) => object(row.get_column_iter()).into(),
        Field::ListInternal(list) => list.elements().iter().map(json_of).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter();
            entries.map(|(key, value)| (name_of(key), json_of(value))).collect()
        }
        Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => field.to_string().into(),
    }
}

/// Converts a number to JSON, which supports neither NaN nor infinity. NaN often marks missing
/// values in tables and becomes null. Infinity becomes a string, which is rejected if a number is
/// expected.
fn number(value: f64) -> Value {
    if value.is_infinite() { value.to_string().into() } else { value.into() }
}

/// Converts a map key to a JSON object key.
fn name_of(key: &Field) -> String {
    match json_of(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

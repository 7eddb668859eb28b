//! Rows of a file in any supported format.

use super::json_rows::JsonRows;
use super::parquet_rows::ParquetRows;
use crate::DataError;
use crate::origin::{FileOrigin, RECORD_ENDINGS, Records, open_file};
use std::path::Path;

pub(super) enum Rows {
    Json(JsonRows),
    Parquet(ParquetRows),
    Ended,
}

impl Rows {
    /// Opens a file. Its extension determines the format.
    pub(super) fn open(path: &Path, needs: Records<'_>) -> Result<(FileOrigin, Self), DataError> {
        let (origin, ending) = FileOrigin::new(path);
        let rows = match ending.as_str() {
            "jsonl" | "json" => Self::Json(JsonRows::new(origin.decoded(open_file(path)?))),
            "parquet" if !origin.compressed => {
                Self::Parquet(ParquetRows::new(open_file(path)?, &origin)?)
            }
            _ => return Err(origin.unknown_format(RECORD_ENDINGS, needs)),
        };
        Ok((origin, rows))
    }
}

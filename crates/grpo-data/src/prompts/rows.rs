//! Rows of a file in any supported format.

use super::array_rows::{ArrayRows, starts_array};
use super::json_rows::JsonRows;
use super::parquet_rows::ParquetRows;
use crate::DataError;
use crate::origin::{FileOrigin, RECORD_ENDINGS, Records, open_file};
use std::path::Path;

pub(super) enum Rows {
    Json(JsonRows),
    Array(ArrayRows),
    Parquet(ParquetRows),
    Ended,
}

impl Rows {
    /// Opens a file. Its extension determines the format.
    pub(super) fn open(path: &Path, needs: Records<'_>) -> Result<(FileOrigin, Self), DataError> {
        let (origin, ending) = FileOrigin::new(path);
        let rows = match ending.as_str() {
            "jsonl" | "json" => {
                let rows =
                    starts_array(origin.decoded(open_file(path)?)).and_then(|start| match start {
                        (true, source) => ArrayRows::new(source).map(Self::Array),
                        (false, source) => Ok(Self::Json(JsonRows::new(Box::new(source)))),
                    });
                rows.map_err(|error| origin.io_error(error, 0))?
            }
            "parquet" if !origin.compressed => {
                Self::Parquet(ParquetRows::new(open_file(path)?, &origin)?)
            }
            _ => return Err(origin.unknown_format(RECORD_ENDINGS, needs)),
        };
        Ok((origin, rows))
    }
}

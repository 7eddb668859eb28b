//! Parquet files with log-probabilities of the entire vocabulary.

use std::io::{self, Write};

use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use crate::completions::{Values, write_rows, writer};

/// Log-probabilities at each token of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionLogprobs {
    /// Line number of the completion in the input file, starting at 1.
    pub line: u64,
    /// Token ids of the completion.
    pub ids: Vec<u32>,
    /// Log-probabilities of the entire vocabulary for each token, indexed by token id.
    pub logprobs: Vec<Vec<f32>>,
}

impl CompletionLogprobs {
    fn into_columns(self) -> Vec<(String, Values)> {
        let tokens = self.ids.len();
        vec![
            ("line".to_owned(), Values::Long(vec![self.line as i64; tokens])),
            ("position".to_owned(), Values::Int((0..tokens as i32).collect())),
            ("id".to_owned(), Values::Int(self.ids.iter().map(|&id| id as i32).collect())),
            ("logprobs".to_owned(), Values::Floats(self.logprobs)),
        ]
    }
}

/// Writes a Parquet file with one row per token. The columns are `line`, `position` (starting at
/// 0), `id` and `logprobs`, a list with one entry per vocabulary item.
pub struct LogprobTable<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> LogprobTable<W> {
    /// Creates a table that is written to `sink`.
    ///
    /// # Errors
    /// Returns an error if the sink cannot be written to.
    pub fn new(sink: W) -> io::Result<Self> {
        let none = CompletionLogprobs { line: 0, ids: Vec::new(), logprobs: Vec::new() };
        let writer = writer("token", &none.into_columns(), sink).map_err(io_error)?;
        Ok(Self { writer })
    }

    /// Writes the rows of a completion.
    ///
    /// # Errors
    /// Returns an error if the sink cannot be written to.
    pub fn push(&mut self, completion: CompletionLogprobs) -> io::Result<()> {
        write_rows(&mut self.writer, &completion.into_columns()).map_err(io_error)
    }

    /// Writes the footer and closes the file.
    ///
    /// # Errors
    /// Returns an error if the sink cannot be written to.
    pub fn finish(self) -> io::Result<()> {
        self.writer.close().map(|_| ()).map_err(io_error)
    }
}

fn io_error(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Row;

    use super::*;

    #[test]
    fn a_row_a_token() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let mut table = LogprobTable::new(File::create(place.path()).unwrap()).unwrap();
        let of = |line, ids: &[u32], logprobs: &[[f32; 3]]| CompletionLogprobs {
            line,
            ids: ids.to_vec(),
            logprobs: logprobs.iter().map(|row| row.to_vec()).collect(),
        };
        table.push(of(1, &[2, 0], &[[-1.0, -2.0, -0.5], [-0.25, -3.0, -4.0]])).unwrap();
        table.push(of(7, &[1], &[[-9.0, -0.125, -8.0]])).unwrap();
        table.finish().unwrap();
        let file = SerializedFileReader::new(File::open(place.path()).unwrap()).unwrap();
        let rows: Vec<Row> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let expected = [
            "{line: 1, position: 0, id: 2, logprobs: [-1E0, -2E0, -5E-1]}",
            "{line: 1, position: 1, id: 0, logprobs: [-2.5E-1, -3E0, -4E0]}",
            "{line: 7, position: 0, id: 1, logprobs: [-9E0, -1.25E-1, -8E0]}",
        ];
        assert_eq!(rows.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}

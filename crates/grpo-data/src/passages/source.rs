//! The text of a file, whatever the file is.

use crate::origin::{FileOrigin, open_file};
use crate::{DataError, MoleculeReader, ReadOptions};
use flate2::read::MultiGzDecoder;
use std::io::{BufReader, Read};
use std::path::Path;

/// A text with `\n` as its only line end.
pub(super) struct Source {
    pub(super) text: String,
    /// The line of the file that each line of the text stands on, counted from 1, where that is not its own number.
    numbers: Option<Vec<u64>>,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Self, DataError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        if plain.ends_with(".smi") || plain.ends_with(".csv") {
            return Self::of_molecules(path);
        }
        let origin = FileOrigin { path: path.into(), compressed: plain.len() < name.len() };
        let mut file = BufReader::new(open_file(path)?);
        let mut bytes = Vec::new();
        let read = if origin.compressed {
            MultiGzDecoder::new(file).read_to_end(&mut bytes)
        } else {
            file.read_to_end(&mut bytes)
        };
        read.map_err(|error| origin.io_error(error, line_ends(&bytes)))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            DataError::NotUtf8 { path: path.into(), line: line_ends(before) + 1 }
        })?;
        Ok(Self::of_text(text))
    }

    pub(super) fn of_text(mut text: String) -> Self {
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        if text.contains('\r') {
            text = text.replace("\r\n", "\n").replace('\r', "\n");
        }
        Self { text, numbers: None }
    }

    /// The molecules alone, one a line: not their names, nor the other columns.
    fn of_molecules(path: &Path) -> Result<Self, DataError> {
        let (mut text, mut numbers) = (String::new(), Vec::new());
        for record in MoleculeReader::open(path, &ReadOptions::default())? {
            let record = record?;
            text.push_str(&record.smiles);
            text.push('\n');
            numbers.push(record.line);
        }
        Ok(Self { text, numbers: Some(numbers) })
    }

    /// Gives the last line an end where it has none.
    pub(super) fn end_last_line(&mut self) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// The line of the file, counted from 1, that line `index` of the text stands on, counted from 0.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.numbers.as_ref().map_or(index as u64 + 1, |numbers| numbers[index])
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

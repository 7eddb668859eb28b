//! The text of a file, whatever the file is.

use grpo_data::{DataError, FileOrigin, read_text_file};
use grpo_molecules::{MoleculeReader, ReadOptions};
use std::path::Path;

/// A text with `\n` as its only line end.
pub(super) struct Source {
    pub(super) text: String,
    /// The line of the file that each line of the text stands on, counted from 1, where that is not its own number.
    numbers: Option<Vec<u64>>,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Self, DataError> {
        let (_, ending) = FileOrigin::new(path);
        if ending == "smi" || ending == "csv" {
            return Self::from_molecules(path);
        }
        Ok(Self::from_text(read_text_file(path)?))
    }

    pub(super) fn from_text(mut text: String) -> Self {
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        if text.contains('\r') {
            text = text.replace("\r\n", "\n").replace('\r', "\n");
        }
        Self { text, numbers: None }
    }

    /// The molecules alone, one a line: not their names, nor the other columns.
    fn from_molecules(path: &Path) -> Result<Self, DataError> {
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

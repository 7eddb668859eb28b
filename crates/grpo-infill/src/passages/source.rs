//! The text of a file of any supported kind.

use grpo_data::{DataError, FileOrigin, read_text_file};
use grpo_molecules::{MoleculeReader, ReadOptions};
use std::path::Path;

/// A text with `\n` as its only line end.
pub(super) struct Source {
    pub(super) text: String,
    /// File line, from 1, of each line of the text, if they differ.
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

    /// Reads molecules only, one per line, without names and other columns.
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

    /// Adds a missing end to the last line.
    pub(super) fn end_last_line(&mut self) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Returns the file line, from 1, of line `index`, from 0.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.numbers.as_ref().map_or(index as u64 + 1, |numbers| numbers[index])
    }
}

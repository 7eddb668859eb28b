//! Reads text and molecule files.

use grpo_data::{DataError, FileOrigin, read_text_file};
use grpo_molecules::{MoleculeReader, REMOVE_TEXT, ReadOptions};
use std::path::Path;

/// A text in which all line endings are `\n`.
pub(super) struct Source {
    pub(super) text: String,
    /// Line number in the file of each line of the text, starting at 1. `None` if they are
    /// consecutive.
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

    /// Reads the molecules of a file, one per line. Names and other columns are ignored.
    fn from_molecules(path: &Path) -> Result<Self, DataError> {
        let (mut text, mut numbers) = (String::new(), Vec::new());
        for record in MoleculeReader::open(path, &ReadOptions::default())? {
            let record = record?;
            if record.has_text_after() {
                return Err(DataError::Invalid(format!(
                    "line {} of `{}` has text after the SMILES; {REMOVE_TEXT}",
                    record.line,
                    path.display()
                )));
            }
            text.push_str(&record.smiles);
            text.push('\n');
            numbers.push(record.line);
        }
        Ok(Self { text, numbers: Some(numbers) })
    }

    /// Terminates the last line if necessary.
    pub(super) fn end_last_line(&mut self) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Returns the line number in the file, starting at 1, for the zero-based line `index` of the
    /// text.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.numbers.as_ref().map_or(index as u64 + 1, |numbers| numbers[index])
    }
}

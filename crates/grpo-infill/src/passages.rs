//! Passages: excerpts from a text that are read by an infiller and its judge.

mod lines;
mod options;
mod source;

use crate::characters::{BLANK, Characters, blank_in_text};
use grpo_data::{CounterRng, DataError};
use lines::Kept;
pub(crate) use lines::Lines;
pub use options::{PassageOptions, PassageReport, PassageUnit};
use source::Source;
use std::path::Path;

/// The training or validation split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// Training split, at the start of the file.
    Train,
    /// Validation split, at the end of the file.
    Validation,
}

/// An encoded text with a training and a validation split. Both contain at least one passage.
#[derive(Clone, Debug)]
pub struct Passages {
    characters: Characters,
    options: PassageOptions,
    train: Lines,
    validation: Lines,
    report: PassageReport,
}

impl Passages {
    /// Reads a UTF-8 text file or a molecule file (`.smi`, `.csv`), optionally compressed (`.gz`).
    /// Byte order marks and all kinds of line endings are supported. `characters` is the vocabulary
    /// of the model. It defaults to the characters in the file.
    ///
    /// The first lines of the file are used for training and the last ones for validation. With
    /// windows, the file is split by characters instead. The splits don't overlap.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - An option is out of range.
    /// - The file cannot be read, is not UTF-8, or is empty or too small.
    /// - A character is missing from `characters` or equals [`BLANK`](crate::BLANK).
    pub fn read(
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        Self::new(Source::read(&options.file)?, options, characters)
    }

    /// Creates passages from text. The file of the options only names it in error messages.
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn from_text(
        text: &str,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        Self::new(Source::from_text(text.to_owned()), options, characters)
    }

    fn new(
        mut source: Source,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        options.check("").map_err(|fault| DataError::Invalid(fault.to_string()))?;
        let path = &options.file;
        if source.text.is_empty() {
            let path = path.display();
            return Err(DataError::Invalid(format!("`{path}` is empty; use a file with text")));
        }
        if options.unit == PassageUnit::Lines {
            source.end_last_line();
        }
        let is_one_line = characters.is_some_and(|characters| characters.id('\n').is_none());
        if is_one_line && options.unit != PassageUnit::Line && source.text.contains('\n') {
            return Err(DataError::Invalid(format!(
                "`{}` has several lines, but the model has no line break among its characters, because it was trained on single lines; set `unit` to \"line\" (`--unit line` of `grpo fill`)",
                path.display()
            )));
        }
        let mut report = PassageReport::default();
        let kept = lines::kept(&source, options, &mut report);
        let characters = match characters {
            Some(characters) => characters.clone(),
            None => own_characters(&source, &kept, path)?,
        };
        let all = Lines::encode(&kept, &characters, path)?;
        report.characters = all.ids.len() as u64;
        let (train, validation) = all.split(options, path, &report)?;
        report.train = train.places(options) as u64;
        report.validation = validation.places(options) as u64;
        Ok(Self { characters, options: options.clone(), train, validation, report })
    }

    /// Returns the vocabulary.
    pub fn characters(&self) -> &Characters {
        &self.characters
    }

    /// Returns the options.
    pub fn options(&self) -> &PassageOptions {
        &self.options
    }

    /// Returns statistics about the file.
    pub fn report(&self) -> &PassageReport {
        &self.report
    }

    /// Draws a random passage using `rng` at `counter`. It consists of 2 to
    /// [`PassageOptions::length`] characters, without special tokens.
    pub fn passage(&self, split: Split, rng: &CounterRng, counter: [u32; 2]) -> Vec<u32> {
        let lines = self.split(split);
        let bound = lines.places(&self.options) as u64;
        let place = rng.below([counter[0], counter[1], split as u32, 0], bound) as usize;
        lines.passage(place, &self.options)
    }

    pub(crate) fn split(&self, split: Split) -> &Lines {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }
}

/// Returns the characters of the retained text.
fn own_characters(
    source: &Source,
    kept: &[Kept<'_>],
    path: &Path,
) -> Result<Characters, DataError> {
    if let Some(index) = source.text.lines().position(|line| line.contains(BLANK)) {
        return Err(blank_in_text().at_line(path, source.number(index)));
    }
    if kept.is_empty() {
        // There are too few lines, which a later check reports with a better message.
        return Characters::from_texts([source.text.as_str()]);
    }
    Characters::from_texts(kept.iter().map(|line| line.text))
}

//! Passages: parts of a text that an infiller and its judge read.

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

/// The training and validation splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// Training: the beginning of the file.
    Train,
    /// Validation: the held-out end.
    Validation,
}

/// A text as ids, split for training and validation. Both splits have passages.
#[derive(Clone, Debug)]
pub struct Passages {
    characters: Characters,
    options: PassageOptions,
    train: Lines,
    validation: Lines,
    report: PassageReport,
}

impl Passages {
    /// Reads a UTF-8 text or a file of molecules (`.smi`, `.csv`), optionally with `.gz`. Byte
    /// order marks and all line ends are accepted. `characters` is the vocabulary of the model;
    /// default: the characters of the file.
    ///
    /// The first lines are for training and the last for validation; with windows, the first and
    /// last characters. The splits share no line and no character of a window.
    ///
    /// # Errors
    /// Returns an error if options are out of range, if the file cannot be read, is not UTF-8,
    /// empty or too small, or if a character is not in `characters` or is [`BLANK`](crate::BLANK).
    pub fn read(
        path: &Path,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        Self::new(Source::read(path)?, path, options, characters)
    }

    /// Creates passages from a text; errors name `path`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_text(
        text: &str,
        path: &Path,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        Self::new(Source::from_text(text.to_owned()), path, options, characters)
    }

    fn new(
        mut source: Source,
        path: &Path,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        options.check()?;
        if source.text.is_empty() {
            let path = path.display();
            return Err(DataError::Invalid(format!("`{path}` is empty; use a file with text")));
        }
        if options.unit == PassageUnit::Lines {
            source.end_last_line();
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

    /// Returns the report.
    pub fn report(&self) -> &PassageReport {
        &self.report
    }

    /// Draws a passage with `rng` at `counter`: characters only, 2 to [`PassageOptions::length`].
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

/// Returns the characters of the kept text.
fn own_characters(
    source: &Source,
    kept: &[Kept<'_>],
    path: &Path,
) -> Result<Characters, DataError> {
    if let Some(index) = source.text.lines().position(|line| line.contains(BLANK)) {
        return Err(blank_in_text().at_line(path, source.number(index)));
    }
    if kept.is_empty() {
        // Too few lines; a later error has a better message.
        return Characters::from_texts([source.text.as_str()]);
    }
    Characters::from_texts(kept.iter().map(|line| line.text))
}

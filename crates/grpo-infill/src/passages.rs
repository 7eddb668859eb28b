//! Passages: the stretches of a user's text that an infiller and its judge read.

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

/// The two sides of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// To train on: the beginning of the file.
    Train,
    /// Held out: its end.
    Validation,
}

/// A text as ids, cut into a split to train on and a split that is held out. Both have passages.
#[derive(Clone, Debug)]
pub struct Passages {
    characters: Characters,
    options: PassageOptions,
    train: Lines,
    validation: Lines,
    report: PassageReport,
}

impl Passages {
    /// Reads a UTF-8 text, or a file of molecules (`.smi`, `.csv`), each plain or with `.gz` behind its name. Byte order
    /// marks and all line ends are fine. `characters` is the vocabulary of the model; without one it is made of the
    /// file's own characters.
    ///
    /// The first lines are to train on and the last are held out; where passages are windows, the first and the last
    /// characters. No line, and no character of a window, is in both.
    ///
    /// # Errors
    /// Options outside their ranges; a file that cannot be read, is not UTF-8, is empty, or too small for its passages
    /// and its split; a character that `characters` lacks, or that is [`BLANK`](crate::BLANK).
    pub fn read(
        path: &Path,
        options: &PassageOptions,
        characters: Option<&Characters>,
    ) -> Result<Self, DataError> {
        Self::new(Source::read(path)?, path, options, characters)
    }

    /// The same of a text in memory; errors name `path` as its origin.
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
            return Err(DataError::Invalid(format!("`{path}` is empty; give a file with text")));
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

    /// The vocabulary of the ids.
    pub fn characters(&self) -> &Characters {
        &self.characters
    }

    /// What a passage is.
    pub fn options(&self) -> &PassageOptions {
        &self.options
    }

    /// What was read and left out.
    pub fn report(&self) -> &PassageReport {
        &self.report
    }

    /// A passage that `rng` draws at `counter`: characters alone, at least 2 and at most [`PassageOptions::length`].
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

/// The characters of what is kept.
fn own_characters(
    source: &Source,
    kept: &[Kept<'_>],
    path: &Path,
) -> Result<Characters, DataError> {
    if let Some(index) = source.text.lines().position(|line| line.contains(BLANK)) {
        return Err(blank_in_text().at_line(path, source.number(index)));
    }
    if kept.is_empty() {
        // Too few lines: there is a better message for it than that there is no character.
        return Characters::from_texts([source.text.as_str()]);
    }
    Characters::from_texts(kept.iter().map(|line| line.text))
}

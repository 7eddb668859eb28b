//! What of a file becomes passages, and what was left out.

use clap::ValueEnum;
use grpo_data::DataError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What of a text is one passage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PassageUnit {
    /// From the beginning of a random line on, whole lines with their ends while they fit. A line that does not fit is
    /// cut and gets its end back. No passage begins with a line of fewer than two characters, blanks around it not counted.
    #[default]
    #[value(help = "Whole lines, while they fit")]
    Lines,
    /// One line each, without its end, as in a file of molecules. A line that does not fit is left out, since split a
    /// molecule is no molecule; so are lines of fewer than two characters and lines that stood there before.
    #[value(help = "One line, as in a file of molecules")]
    Line,
    /// Exactly `length` characters from anywhere.
    #[value(help = "As many characters as fit, from anywhere")]
    Window,
}

/// What of a file becomes passages.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageOptions {
    /// The most characters of a passage; at least 2.
    pub length: usize,
    /// What a passage is.
    pub unit: PassageUnit,
    /// The part that is held out for validation: the end of the file. Between 0 and 1, and neither.
    pub validation_fraction: f64,
}

/// What was read, kept and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassageReport {
    /// Characters of all that was kept.
    pub characters: u64,
    /// Lines, or rows of a file of molecules.
    pub lines: u64,
    /// Passages can begin so many places (lines, or characters of a window) of the training split …
    pub train: u64,
    /// … and of the other.
    pub validation: u64,
    /// Lines left out because they have fewer than two characters.
    pub too_short: u64,
    /// Lines left out because they are longer than a passage.
    pub too_long: u64,
    /// Lines left out because they stood there before.
    pub duplicates: u64,
}

impl PassageUnit {
    /// As it is written in a configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Line => "line",
            Self::Window => "window",
        }
    }
}

impl PassageOptions {
    pub(super) fn check(&self) -> Result<(), DataError> {
        let fraction = self.validation_fraction;
        if self.length < 2 {
            return Err(DataError::setting("length", self.length, "at least 2 characters"));
        }
        if !(fraction > 0.0 && fraction < 1.0) {
            let expected = "a number between 0 and 1 (0.1 holds out the last tenth of the file)";
            return Err(DataError::setting("validation_fraction", fraction, expected));
        }
        Ok(())
    }
}

impl fmt::Display for PassageReport {
    /// One sentence of counts; those that are 0 are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lines, {} characters kept: passages from {} places for training, {} for validation",
            self.lines, self.characters, self.train, self.validation
        )?;
        for (count, what) in [
            (self.too_short, "lines of fewer than 2 characters"),
            (self.too_long, "too long"),
            (self.duplicates, "written twice"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

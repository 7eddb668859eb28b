//! Options of passages, and reports.

use clap::ValueEnum;
use grpo_data::DataError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The unit of a passage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PassageUnit {
    /// Whole lines with their ends from a random line on, as many as fit. A line that does not fit
    /// is truncated and gets its end back. No passage begins with a line of fewer than two
    /// non-blank characters.
    #[default]
    #[value(help = "Whole lines, while they fit")]
    Lines,
    /// A line without its end, as in a file of molecules. Lines that do not fit are dropped,
    /// because part of a molecule is not a molecule; so are lines of fewer than two characters and
    /// duplicates.
    #[value(help = "One line, as in a file of molecules")]
    Line,
    /// Exactly `length` characters from any position.
    #[value(help = "As many characters as fit, from anywhere")]
    Window,
}

/// Options of passages.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageOptions {
    /// Largest number of characters of a passage; at least 2.
    pub length: usize,
    /// The unit of a passage.
    pub unit: PassageUnit,
    /// Fraction at the end of the file that is held out for validation, strictly between 0 and 1.
    pub validation_fraction: f64,
}

/// Report on a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassageReport {
    /// Number of kept characters.
    pub characters: u64,
    /// Lines, or rows of a file of molecules.
    pub lines: u64,
    /// Number of positions (lines, or characters of a window) at which a training passage can
    /// begin.
    pub train: u64,
    /// The same for validation passages.
    pub validation: u64,
    /// Lines dropped because they have fewer than two characters.
    pub too_short: u64,
    /// Lines dropped because they are longer than a passage.
    pub too_long: u64,
    /// Lines dropped because they are duplicates.
    pub duplicates: u64,
}

impl PassageUnit {
    /// Returns the name in configurations.
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
    /// Writes a sentence of counts, without those that are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lines, {} characters kept: passages from {} positions for training, {} for validation",
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

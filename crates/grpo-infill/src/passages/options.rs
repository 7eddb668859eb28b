//! Passage options and statistics.

use clap::ValueEnum;
use grpo_data::DataError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The unit of text that forms a passage.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PassageUnit {
    /// As many complete lines as fit, including their line endings, starting at a random line. A
    /// line that is too long on its own is truncated, but keeps its line ending. Passages never
    /// start with a line of fewer than two non-blank characters.
    #[default]
    #[value(help = "As many whole lines as fit")]
    Lines,
    /// A single line without its line ending, e.g. from a molecule file. Lines that don't fit are
    /// dropped, because part of a molecule isn't a molecule. Duplicates and lines of fewer than two
    /// characters are dropped as well.
    #[value(help = "A single line, as in a molecule file")]
    Line,
    /// Exactly `length` characters, starting anywhere.
    #[value(help = "As many characters as fit, starting anywhere")]
    Window,
}

/// Options for creating passages.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageOptions {
    /// Maximum number of characters in a passage. Must be at least 2.
    pub length: usize,
    /// Unit of text that forms a passage.
    pub unit: PassageUnit,
    /// Fraction of the file, at its end, that is held out for validation. Must be between 0 and 1,
    /// exclusive.
    pub validation_fraction: f64,
}

/// Statistics about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassageReport {
    /// Number of characters retained.
    pub characters: u64,
    /// Number of lines, or of rows in a molecule file.
    pub lines: u64,
    /// Number of positions at which a training passage can start. A position is a line, or a
    /// character if passages are windows.
    pub train: u64,
    /// Number of positions at which a validation passage can start.
    pub validation: u64,
    /// Number of lines dropped because they have fewer than two characters.
    pub too_short: u64,
    /// Number of lines dropped because they don't fit into a passage.
    pub too_long: u64,
    /// Number of duplicate lines dropped.
    pub duplicates: u64,
}

impl PassageUnit {
    /// Returns the name used in configuration files.
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
    /// Formats the counts as a sentence, omitting counts of dropped lines that are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lines, {} characters kept: passages from {} positions for training, {} for validation",
            self.lines, self.characters, self.train, self.validation
        )?;
        for (count, what) in [
            (self.too_short, "lines of fewer than 2 characters"),
            (self.too_long, "too long"),
            (self.duplicates, "duplicate"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

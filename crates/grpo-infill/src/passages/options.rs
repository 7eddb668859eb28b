//! Passage options and statistics.

use clap::ValueEnum;
use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

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

/// The configuration section for passages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct PassageOptions {
    /// UTF-8 text or file of molecules; all characters must be in the infiller's `characters.json`.
    #[schemars(extend("x-basic" = true))]
    pub file: PathBuf,
    /// Maximum characters of a passage, at most the model's `block_size`.
    #[schemars(range(min = 2, max = 1048576), extend("x-basic" = true))]
    pub length: usize,
    /// What a passage is.
    #[serde(default)]
    pub unit: PassageUnit,
    /// Fraction held out, at the end of the file.
    #[serde(default = "default_validation_fraction")]
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub validation_fraction: f64,
}

fn default_validation_fraction() -> f64 {
    0.1
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
    /// Validates the options of `section` without reading the file. Without a name, the errors have only
    /// those of the options.
    pub(crate) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        self.check_ranges(section)?;
        let fraction = self.validation_fraction;
        if fraction > 0.0 && fraction < 1.0 {
            return Ok(());
        }
        let dot = if section.is_empty() { "" } else { "." };
        let key = format!("{section}{dot}validation_fraction");
        let expected = "a number between 0 and 1 (0.1 holds out the last tenth of the file)";
        Err(ConfigFault::out_of_range(key, fraction, expected))
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

//! A molecule read from a file.

use std::collections::BTreeMap;

/// Maximum length of a line or CSV row in bytes. Longer rows indicate a different file format or an
/// unclosed quote.
pub(super) const LONGEST: usize = 1 << 20;

/// A molecule read from a file. The SMILES is not empty, but it has not been validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoleculeRecord {
    /// Line number, starting at 1. For a row with several lines, this is the first one.
    pub line: u64,
    /// The SMILES without leading and trailing whitespace.
    pub smiles: String,
    /// The text after the SMILES in a `.smi` file, or the value of the CSV column `name`.
    pub name: Option<String>,
    /// The value of the CSV column `split` or `source`, e.g. `train`.
    pub split: Option<String>,
    /// The values of the scaffold column (`scaffold_smiles`) and the property columns (e.g. `logp`)
    /// of a CSV file, by lower-case column name. `None` for empty cells.
    pub conditions: BTreeMap<String, Option<String>>,
}

/// Returns the trimmed text, or `None` if it is empty.
pub(super) fn filled(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

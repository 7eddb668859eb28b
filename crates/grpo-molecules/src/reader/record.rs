//! A row of a file.

/// Bytes of the longest line or CSV row. More is a file of another kind, or a quote that is never closed.
pub(super) const LONGEST: usize = 1 << 20;

/// One molecule of a file. Nothing is checked about its SMILES but that it is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoleculeRecord {
    /// The line of the file that it stands on (or begins on), counted from 1.
    pub line: u64,
    /// The SMILES, without blanks around it.
    pub smiles: String,
    /// What follows the SMILES on the line of a `.smi` file, or a CSV file's column `name`.
    pub name: Option<String>,
    /// A CSV file's column `split` or `source`, such as `train`.
    pub split: Option<String>,
}

/// The text without blanks around it, if there is any.
pub(super) fn filled(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

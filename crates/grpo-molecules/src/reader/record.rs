//! A row of a file.

/// Longest line or CSV row in bytes. A longer one is another kind of file, or an unclosed quote.
pub(super) const LONGEST: usize = 1 << 20;

/// A molecule of a file. Its SMILES is not empty but not checked otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoleculeRecord {
    /// Its (first) line in the file, counted from 1.
    pub line: u64,
    /// The SMILES, trimmed.
    pub smiles: String,
    /// The text after the SMILES in a `.smi` file, or the column `name` of a CSV file.
    pub name: Option<String>,
    /// The column `split` or `source` of a CSV file, such as `train`.
    pub split: Option<String>,
}

/// Returns the trimmed text, unless it is empty.
pub(super) fn filled(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

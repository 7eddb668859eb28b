//! Options of a reader.

/// Options of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The CSV column of the SMILES, case-insensitive. Default: the first of `smiles`,
    /// `canonical_smiles` and `molecule`.
    pub smiles_column: Option<String>,
    /// The option or key that names the column, for the message if it is missing.
    pub column_setting: Option<&'static str>,
    /// Whether to return lines without a SMILES as empty records instead of skipping them.
    pub keep_empty: bool,
}

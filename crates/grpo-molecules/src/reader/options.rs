//! Choices of the caller.

/// Choices of reading that the file itself does not settle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The CSV column that holds the SMILES, in any case of letters. Without one, the first of
    /// `smiles`, `canonical_smiles` and `molecule` that there is.
    pub smiles_column: Option<String>,
    /// The option or key that names the column, for the message if it is missing.
    pub column_setting: Option<&'static str>,
    /// Gives a record with an empty SMILES for a line that has none, instead of skipping it.
    pub keep_empty: bool,
}

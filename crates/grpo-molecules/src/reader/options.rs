//! Options for reading molecules.

/// Options for reading molecules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Name of the CSV column that contains the SMILES, which is case-insensitive. Defaults to the
    /// first of `smiles`, `canonical_smiles` and `molecule` that exists.
    pub smiles_column: Option<String>,
    /// Name of the option or key that sets the column. It is mentioned in the error message if the
    /// column is missing.
    pub column_setting: Option<&'static str>,
    /// Whether to return lines without a SMILES as empty records. By default, they are skipped.
    pub keep_empty: bool,
    /// Whether a CSV file with condition columns may omit the SMILES column.
    pub rows_without_smiles: bool,
}

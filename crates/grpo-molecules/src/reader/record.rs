//! A molecule read from a file.

use std::collections::BTreeMap;

use grpo_chem::InvalidSmiles;

/// Maximum length of a line or CSV row in bytes. Longer rows indicate a different file format or an
/// unclosed quote.
pub(super) const LONGEST: usize = 1 << 20;

/// A molecule read from a file. The SMILES is not empty, but it has not been validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoleculeRecord {
    /// Line number, starting at 1. For a row with several lines, this is the first one.
    pub line: u64,
    /// The SMILES without leading and trailing whitespace. A CXSMILES extension is kept, because
    /// `CC |^1:1|` is another molecule than `CC`, and so is any text after the SMILES in a cell of a
    /// table, which may be a molecule that a blank has cut;
    /// [`Molecule::parse`](grpo_chem::Molecule::parse) refuses both.
    pub smiles: String,
    /// The value of the CSV column `name`, or the text after the SMILES of a `.smi` file.
    pub name: Option<String>,
    /// The value of the CSV column `split` or `source`, e.g. `train`.
    pub split: Option<String>,
    /// The values of the scaffold column (`scaffold_smiles`) and the property columns (e.g. `logp`)
    /// of a CSV file, by lower-case column name. `None` for empty cells.
    pub conditions: BTreeMap<String, Option<String>>,
}

impl MoleculeRecord {
    /// Returns whether text follows the SMILES, such as a CXSMILES extension.
    pub fn has_text_after(&self) -> bool {
        self.smiles.contains(char::is_whitespace)
    }
}

/// What to do about text after the SMILES in a cell of a table.
pub(crate) const REMOVE_TEXT: &str = "remove it, or write names into a column of their own";

/// Describes why a record is not a molecule, with the remedy for text after its SMILES.
pub(crate) fn record_fault(error: &InvalidSmiles) -> String {
    match error {
        InvalidSmiles::TextAfter { .. } => format!("{error}; {REMOVE_TEXT}"),
        _ => error.to_string(),
    }
}

/// Returns the trimmed text, or `None` if it is empty.
pub(super) fn filled(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Splits a text at the first space or tab into the SMILES and the name. A CXSMILES extension, i.e.
/// text between two `|` after the SMILES, belongs to the SMILES.
pub(crate) fn smiles_and_name(text: &str) -> (&str, &str) {
    let text = text.trim();
    let Some((smiles, rest)) = text.split_once([' ', '\t']) else { return (text, "") };
    let Some(extension) = rest.trim_start().strip_prefix('|') else { return (smiles, rest) };
    match extension.split_once('|') {
        Some((_, name)) => (text[..text.len() - name.len()].trim_end(), name),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_belongs_to_the_smiles() {
        for (line, expected) in [
            ("CCO", ("CCO", "")),
            (" CCO\tethanol 96 % ", ("CCO", "ethanol 96 %")),
            ("CC |^1:1|", ("CC |^1:1|", "")),
            ("[CH2]C |^1:0| ethyl", ("[CH2]C |^1:0|", "ethyl")),
            ("CC\t|^1:1|\tethyl", ("CC\t|^1:1|", "ethyl")),
            ("CC  \t |^1:1|  ethyl |x|", ("CC  \t |^1:1|", "ethyl |x|")),
            ("CC ||", ("CC ||", "")),
            ("CC |^1:1", ("CC |^1:1", "")),
            ("CC a|b|", ("CC", "a|b|")),
        ] {
            let (smiles, name) = smiles_and_name(line);
            assert_eq!((smiles, name.trim()), expected, "{line}");
        }
    }
}

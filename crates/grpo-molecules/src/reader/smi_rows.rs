//! Lines of a `.smi` file.

use super::record::{LONGEST, MoleculeRecord, filled, smiles_and_name};
use grpo_data::{Bytes, DataError, FileOrigin, LineReader};

pub(super) struct SmiRows(LineReader);

impl SmiRows {
    pub(super) fn new(source: Bytes) -> Self {
        Self(LineReader::new(source, LONGEST))
    }

    /// Returns the next line. The SMILES can be empty.
    pub(super) fn next(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<MoleculeRecord>, DataError> {
        let Some((line, bytes)) = self.0.next_line(origin)? else { return Ok(None) };
        let (smiles, name) = smiles_and_name(origin.text(bytes, line)?);
        Ok(Some(MoleculeRecord {
            line,
            smiles: smiles.to_owned(),
            name: filled(name),
            split: None,
            conditions: Default::default(),
        }))
    }
}

/// Returns whether a line with this SMILES is a header, if it is the first line. `smiles` is not a
/// valid SMILES, so this never skips a molecule.
pub(crate) fn is_header(smiles: &str) -> bool {
    smiles.eq_ignore_ascii_case("smiles")
}

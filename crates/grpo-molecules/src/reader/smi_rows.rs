//! Lines of a `.smi` file.

use super::record::{LONGEST, MoleculeRecord, filled};
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
        let text = origin.text(bytes, line)?.trim();
        let (smiles, name) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        Ok(Some(MoleculeRecord {
            line,
            smiles: smiles.to_owned(),
            name: filled(name),
            split: None,
            conditions: Default::default(),
        }))
    }
}

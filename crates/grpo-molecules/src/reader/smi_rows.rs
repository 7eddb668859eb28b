//! The lines of a `.smi` file.

use super::record::{MoleculeRecord, filled};
use grpo_data::{Bytes, DataError, FileOrigin};
use std::io::{BufRead, BufReader};

pub(super) struct SmiRows {
    source: BufReader<Bytes>,
    /// Lines that were read whole.
    line: u64,
    bytes: Vec<u8>,
}

impl SmiRows {
    pub(super) fn new(source: Bytes) -> Self {
        Self { source: BufReader::with_capacity(1 << 16, source), line: 0, bytes: Vec::new() }
    }

    /// The next line; its SMILES may be empty.
    pub(super) fn next(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<MoleculeRecord>, DataError> {
        self.bytes.clear();
        let read = self.source.read_until(b'\n', &mut self.bytes);
        if read.map_err(|error| origin.io_error(error, self.line))? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let text = origin.text(&self.bytes, self.line)?;
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) if self.line == 1 => rest,
            _ => text,
        };
        let text = text.trim();
        let (smiles, name) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        Ok(Some(MoleculeRecord {
            line: self.line,
            smiles: smiles.to_owned(),
            name: filled(name),
            split: None,
        }))
    }
}

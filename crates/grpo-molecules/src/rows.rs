//! Files of molecules as `grpo score` reads them.

use std::path::Path;

use grpo_app::eval::{CompletionRow, CompletionRows, RowFormat};
use grpo_chem::Molecule;
use grpo_data::FileOrigin;

use crate::identity::identities;
use crate::{MoleculeReader, ReadOptions};

/// Returns how to read a file of SMILES, or a table with a column of SMILES. With a reward of this
/// task (`is_ours`), a table has such a column.
pub(crate) fn format(file: &Path, is_ours: bool) -> Option<RowFormat> {
    let (_, ending) = FileOrigin::new(file);
    let is_table = || is_ours || MoleculeReader::open(file, &ReadOptions::default()).is_ok();
    let is_read = ending == "smi" || (ending == "csv" && is_table());
    is_read.then_some(RowFormat {
        holds: "molecules",
        column: "smiles",
        label: "name",
        open,
        invalid: Some(|smiles| Molecule::parse(smiles).err().map(|error| error.to_string())),
        identify: Some(identities),
    })
}

fn open(path: &Path, column: Option<&str>) -> anyhow::Result<CompletionRows> {
    let options = ReadOptions {
        smiles_column: column.map(str::to_owned),
        column_setting: Some("--column"),
        keep_empty: true,
        ..ReadOptions::default()
    };
    let rows = MoleculeReader::open(path, &options)?.map(|record| {
        let record = record?;
        let label = record.name.unwrap_or_default();
        Ok(CompletionRow { input: record.smiles.as_str().into(), label })
    });
    Ok(Box::new(rows))
}

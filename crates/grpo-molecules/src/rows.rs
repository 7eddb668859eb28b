//! Files of molecules as `grpo score` reads them.

use std::path::Path;

use grpo_chem::Molecule;
use grpo_data::FileOrigin;
use grpo_task::eval::{CompletionRow, CompletionRows, RowFormat, TEXT_ROWS};

use crate::identity::identities;
use crate::reader::record_fault;
use crate::{MoleculeReader, ReadOptions};

/// Returns how to read a file of SMILES, or a table with a column of SMILES. With a reward of this
/// task (`is_ours`), a table has such a column, and the completions of any other file are molecules.
pub(crate) fn format(file: Option<&Path>, is_ours: bool) -> Option<RowFormat> {
    let ending = file.map(|file| FileOrigin::new(file).1).unwrap_or_default();
    let opens = |file: &Path| MoleculeReader::open(file, &ReadOptions::default()).is_ok();
    let is_table = || is_ours || file.is_some_and(opens);
    let molecules = RowFormat {
        invalid: Some(|smiles| Some(Molecule::parse(smiles).err()?.to_string())),
        identify: Some(identities),
        ..TEXT_ROWS
    };
    match ending.as_str() {
        "smi" => {}
        "csv" if is_table() => {}
        _ => return is_ours.then_some(molecules),
    }
    Some(RowFormat {
        holds: "molecules",
        column: "smiles",
        label: "name",
        open,
        invalid: Some(|smiles| Some(record_fault(&Molecule::parse(smiles).err()?))),
        ..molecules
    })
}

fn open(path: &Path, column: Option<&str>) -> anyhow::Result<CompletionRows> {
    anyhow::ensure!(
        column.is_none() || FileOrigin::new(path).1 == "csv",
        "{}: a file of SMILES has no columns; remove --column",
        path.display()
    );
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

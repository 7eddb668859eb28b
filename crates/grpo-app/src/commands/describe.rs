//! `grpo describe`: each molecule of a file as one row of CSV.

use std::io::{self, Write};

use anyhow::Context;
use grpo_chem::{Description, InvalidSmiles};
use grpo_data::{MoleculeReader, MoleculeRecord, ReadOptions};
use rayon::prelude::*;

use crate::args::DescribeArguments;
use crate::output::FileInPlace;

const COLUMNS: [&str; 15] = [
    "input",
    "valid",
    "canonical",
    "mw",
    "logp",
    "tpsa",
    "hba",
    "hbd",
    "rotatable",
    "aromatic_rings",
    "alerts",
    "qed",
    "sa",
    "scaffold",
    "reason",
];

/// Molecules that are described at the same time: enough for all threads, little enough for memory.
const BLOCK: usize = 4096;

pub(crate) fn run(arguments: &DescribeArguments) -> anyhow::Result<()> {
    let options = ReadOptions { smiles_column: arguments.smiles_column.clone(), keep_empty: true };
    let reader = MoleculeReader::open(&arguments.file, &options)?;
    match &arguments.output {
        Some(path) => {
            let mut file = FileInPlace::create_beside(path, &[&arguments.file])?;
            describe_all(reader, &mut file)
                .with_context(|| format!("describing into {} failed", path.display()))?;
            file.finish()
        }
        None => describe_all(reader, io::stdout().lock())
            .context("describing to standard output failed"),
    }
}

fn describe_all(mut reader: MoleculeReader, output: impl Write) -> anyhow::Result<()> {
    let mut table = csv::Writer::from_writer(output);
    table.write_record(COLUMNS)?;
    loop {
        let block: Vec<MoleculeRecord> =
            reader.by_ref().take(BLOCK).collect::<Result<_, grpo_data::DataError>>()?;
        if block.is_empty() {
            break;
        }
        let rows: Vec<[String; 15]> = block.par_iter().map(|record| row(&record.smiles)).collect();
        for row in rows {
            table.write_record(row)?;
        }
    }
    table.flush()?;
    Ok(())
}

fn row(smiles: &str) -> [String; 15] {
    match grpo_chem::describe(smiles) {
        Ok(description) => valid_row(smiles, description),
        Err(reason) => invalid_row(smiles, &reason),
    }
}

fn valid_row(smiles: &str, description: Description) -> [String; 15] {
    let Description {
        canonical,
        mw,
        logp,
        tpsa,
        hba,
        hbd,
        rotatable,
        aromatic_rings,
        alerts,
        qed,
        sa,
        scaffold,
    } = description;
    [
        smiles.to_owned(),
        "1".to_owned(),
        canonical,
        number(mw),
        number(logp),
        number(tpsa),
        hba.to_string(),
        hbd.to_string(),
        rotatable.to_string(),
        aromatic_rings.to_string(),
        alerts.to_string(),
        number(qed),
        number(sa),
        scaffold,
        String::new(),
    ]
}

fn invalid_row(smiles: &str, reason: &InvalidSmiles) -> [String; 15] {
    let mut row: [String; 15] = Default::default();
    row[0] = smiles.to_owned();
    row[1] = "0".to_owned();
    row[14] = reason.to_string();
    row
}

/// Six decimals: finer than any of these properties is meant.
fn number(value: f64) -> String {
    format!("{value:.6}")
}

//! `grpo describe`: descriptors of the molecules of a file as CSV.

use std::io::Write;
use std::path::PathBuf;

use crate::{MoleculeReader, MoleculeRecord, ReadOptions};
use anyhow::Context;
use clap::Args;
use grpo_chem::Description;
use grpo_data::DataError;
use rayon::prelude::*;

use grpo_app::output::FileInPlace;
use grpo_app::task::TaskCommand;
use grpo_app::visible::{data_output, visible};

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

/// Molecules described at the same time: enough for all threads at little memory.
const BLOCK: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Molecules: .smi, .smi.gz, .csv or .csv.gz
    pub(crate) file: PathBuf,
    /// Column of the SMILES in a CSV file [default: smiles, canonical_smiles or molecule]
    #[arg(long, value_name = "NAME")]
    pub(crate) smiles_column: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Describe each molecule of a file as one row of CSV",
        "hba, hbd, rotatable, aromatic_rings and alerts are counted as QED counts them (RDKit's QED.properties), which is not what RDKit's descriptors of similar names count.",
    ];
    TaskCommand::new("describe", &about, "train-tokenizer", |_, arguments| run(arguments))
}

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
        None => describe_all(reader, data_output()).context("describing to standard output failed"),
    }
}

fn describe_all(mut reader: MoleculeReader, output: impl Write) -> anyhow::Result<()> {
    let mut table = csv::Writer::from_writer(output);
    table.write_record(COLUMNS)?;
    loop {
        let block: Vec<MoleculeRecord> =
            reader.by_ref().take(BLOCK).collect::<Result<_, DataError>>()?;
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
    let mut row: [String; 15] = Default::default();
    row[0] = as_text(&visible(smiles));
    match grpo_chem::describe(smiles) {
        Ok(Description { canonical, properties: of, qed, sa, scaffold }) => {
            let counts = [of.hba, of.hbd, of.rotatable, of.aromatic_rings, of.alerts];
            let cells = ["1".to_owned(), canonical].into_iter();
            let cells = cells.chain([of.mw, of.logp, of.tpsa].map(number));
            let cells = cells.chain(counts.map(|count| count.to_string()));
            let cells = cells.chain([number(qed), number(sa), scaffold]);
            row[1..14].iter_mut().zip(cells).for_each(|(cell, value)| *cell = value);
        }
        Err(reason) => {
            row[1] = "0".to_owned();
            row[14] = reason.to_string();
        }
    }
    row
}

/// Quotes a text that a spreadsheet would treat as a formula; no SMILES begins with these
/// characters.
fn as_text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if is_formula { format!("'{text}") } else { text.to_owned() }
}

/// Six decimals, more than the precision of any property.
fn number(value: f64) -> String {
    format!("{value:.6}")
}

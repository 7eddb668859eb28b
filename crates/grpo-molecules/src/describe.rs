//! `grpo describe`: computes descriptors for the molecules in a file and writes them as CSV.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use crate::reader::{blocks, record_fault};
use crate::{MoleculeReader, MoleculeRecord, ReadOptions};
use anyhow::Context;
use clap::Args;
use grpo_chem::Description;
use grpo_data::DataError;
use rayon::prelude::*;

use grpo_task::output::{CSV, FileInPlace, say_aside};
use grpo_task::phase::Phase;
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::visible::{data_output, number_cell, text_cell};

const COLUMNS: [&str; 16] = [
    "smiles",
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
    "name",
];

/// Number of molecules processed in parallel. This keeps all threads busy without using much
/// memory.
const BLOCK: usize = 4096;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo describe molecules.smi -o molecules.csv
  grpo describe library.csv.gz --column Structure | head")]
pub(crate) struct DescribeArguments {
    /// File with molecules (.smi, .smi.gz, .csv or .csv.gz)
    pub(crate) file: PathBuf,
    /// CSV column that contains the SMILES [default: smiles, canonical_smiles or molecule]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub(crate) column: Option<String>,
    /// Output file (CSV), compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Compute the properties of molecules as a CSV table",
        "Writes one row per input line: the SMILES as written, canonical SMILES, molecular weight, logP, TPSA, counts, QED, SA and scaffold, or the reason why the SMILES is invalid. hba, hbd, rotatable, aromatic_rings and alerts are counted as in QED (RDKit's QED.properties), which differs from the RDKit descriptors with similar names.",
    ];
    TaskCommand::new("describe", &about, CommandGroup::Prepare, |_, arguments| run(arguments))
}

pub(crate) fn run(arguments: &DescribeArguments) -> anyhow::Result<()> {
    let create =
        |path: &PathBuf| FileInPlace::create_beside(path, CSV, &[&arguments.file], arguments.force);
    let output = arguments.output.as_ref().map(create).transpose()?;
    let options = ReadOptions {
        smiles_column: arguments.column.clone(),
        column_setting: Some("--column"),
        keep_empty: true,
        ..ReadOptions::default()
    };
    let mut reader = MoleculeReader::open(&arguments.file, &options)?.peekable();
    // Lines without a SMILES are rows of the table, but a file with nothing else is refused.
    let is_empty = |record: &Result<MoleculeRecord, DataError>| {
        record.as_ref().is_ok_and(|record| record.smiles.trim().is_empty())
    };
    let leading: Vec<_> = std::iter::from_fn(|| reader.next_if(is_empty)).collect();
    anyhow::ensure!(reader.peek().is_some(), "{} contains no molecules", arguments.file.display());
    let reader = leading.into_iter().chain(reader);
    let phase = Phase::begin(format!("computing properties of {}", arguments.file.display()));
    let counts = match output {
        Some(mut file) => {
            let place = file.path().display().to_string();
            let counts = describe_all(reader, &mut file, &place)?;
            file.finish()?;
            counts
        }
        None => describe_all(reader, data_output(), &"standard output")?,
    };
    drop(phase);
    say_aside(format_args!("valid    {:>8}", counts.valid));
    let empty = match counts.empty {
        0 => String::new(),
        empty => format!(", {empty} of them empty"),
    };
    say_aside(format_args!("invalid  {:>8}{empty}", counts.invalid));
    Ok(())
}

/// Number of rows of the table.
#[derive(Default)]
struct Counts {
    valid: usize,
    invalid: usize,
    /// Number of invalid rows with an empty SMILES.
    empty: usize,
}

fn describe_all(
    reader: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    output: impl Write,
    place: &dyn fmt::Display,
) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let failed = || format!("cannot write properties to {place}");
    let mut table = csv::Writer::from_writer(output);
    let mut blocks = blocks(reader, BLOCK);
    // A file that cannot be read does not begin a table.
    let mut next = blocks.next().transpose()?;
    table.write_record(COLUMNS).with_context(failed)?;
    while let Some(block) = next {
        counts.empty += block.iter().filter(|record| record.smiles.is_empty()).count();
        let rows: Vec<(bool, [String; 16])> = block.par_iter().map(row).collect();
        for (is_valid, row) in rows {
            match is_valid {
                true => counts.valid += 1,
                false => counts.invalid += 1,
            }
            table.write_record(row).with_context(failed)?;
        }
        next = blocks.next().transpose()?;
    }
    table.flush().with_context(failed)?;
    Ok(counts)
}

/// Returns whether the molecule is valid, and its row.
fn row(record: &MoleculeRecord) -> (bool, [String; 16]) {
    let mut row: [String; 16] = Default::default();
    let smiles = &record.smiles;
    row[0] = text_cell(smiles);
    row[15] = record.name.as_deref().map_or_else(String::new, text_cell);
    let described = grpo_chem::describe(smiles);
    let is_valid = described.is_ok();
    match described {
        Ok(Description { canonical, properties: of, qed, sa, scaffold }) => {
            let counts = [of.hba, of.hbd, of.rotatable, of.aromatic_rings, of.alerts];
            let cells = ["1".to_owned(), canonical].into_iter();
            let cells = cells.chain([of.mw, of.logp, of.tpsa].map(number_cell));
            let cells = cells.chain(counts.map(|count| count.to_string()));
            let cells = cells.chain([number_cell(qed), number_cell(sa), scaffold]);
            row[1..14].iter_mut().zip(cells).for_each(|(cell, value)| *cell = value);
        }
        Err(reason) => {
            row[1] = "0".to_owned();
            row[14] = record_fault(&reason);
        }
    }
    (is_valid, row)
}

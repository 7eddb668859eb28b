//! `grpo bench-pmo`: the oracles of the PMO benchmark.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use crate::{MoleculeReader, MoleculeRecord, ReadOptions};
use anyhow::Context;
use clap::Args;
use grpo_chem::Molecule;
use grpo_chem::pmo::Oracle;
use grpo_data::DataError;
use rayon::prelude::*;

use grpo_app::output::FileInPlace;
use grpo_app::phase::Phase;
use grpo_app::task::{CommandGroup, TaskCommand};
use grpo_app::visible::{data_output, visible};

/// Number of molecules processed in parallel. This keeps all threads busy without using much
/// memory.
const BLOCK: usize = 4096;

/// Number of oracles up to which they are computed one by one.
const FEW: usize = 4;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo bench-pmo --score molecules.smi -o scores.csv
  grpo bench-pmo --score molecules.smi --tasks celecoxib_rediscovery,qed

The oracles drd2, gsk3b and jnk3 are trained classifiers and not included.")]
struct BenchPmoArguments {
    /// File with molecules to score (.smi, .smi.gz, .csv or .csv.gz)
    #[arg(long, value_name = "FILE", required = true, help_heading = "Input")]
    score: PathBuf,
    /// CSV column that contains the SMILES [default: smiles, canonical_smiles or molecule]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    smiles_column: Option<String>,
    /// Oracles, separated by commas, or `all`
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "all",
        help_heading = "Oracles"
    )]
    tasks: Vec<String>,
    /// Output file (CSV), compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Score molecules with the oracles of the PMO benchmark",
        "PMO (Gao et al. 2022, \"Sample efficiency matters\") ranks molecule generators by how good their molecules are after few oracle calls. Writes a column per oracle, equal to PyTDC 0.4.1. The scores of invalid molecules are 0.",
    ];
    TaskCommand::new("bench-pmo", &about, CommandGroup::Evaluate, |_, arguments| run(arguments))
}

/// Returns the oracles with these names.
fn oracles(names: &[String]) -> anyhow::Result<Vec<Oracle>> {
    if names == ["all"] {
        return Ok(Oracle::ALL.to_vec());
    }
    let mut oracles = Vec::new();
    for name in names {
        let oracle = Oracle::from_name(name.trim()).context("--tasks")?;
        anyhow::ensure!(!oracles.contains(&oracle), "--tasks: {name} occurs twice; remove one");
        oracles.push(oracle);
    }
    Ok(oracles)
}

fn run(arguments: &BenchPmoArguments) -> anyhow::Result<()> {
    let oracles = oracles(&arguments.tasks)?;
    let options = ReadOptions {
        smiles_column: arguments.smiles_column.clone(),
        column_setting: Some("--smiles-column"),
        keep_empty: true,
        ..ReadOptions::default()
    };
    let path = &arguments.score;
    let mut reader = MoleculeReader::open(path, &options)?.peekable();
    anyhow::ensure!(reader.peek().is_some(), "{} contains no molecules", path.display());
    let _phase = Phase::begin(format!("scoring {}", path.display()));
    match &arguments.output {
        Some(output) => {
            let mut file = FileInPlace::create_beside(output, &[path], arguments.force)?;
            score_all(reader, &oracles, &mut file, &output.display())?;
            file.finish()
        }
        None => score_all(reader, &oracles, data_output(), &"standard output"),
    }
}

fn score_all(
    mut reader: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    oracles: &[Oracle],
    output: impl Write,
    place: &dyn fmt::Display,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let header = std::iter::once("smiles").chain(oracles.iter().map(|oracle| oracle.name()));
    table.write_record(header).with_context(failed)?;
    loop {
        let block: Vec<MoleculeRecord> =
            reader.by_ref().take(BLOCK).collect::<Result<_, DataError>>()?;
        if block.is_empty() {
            break;
        }
        let rows: Vec<Vec<f64>> =
            block.par_iter().map(|record| scores(&record.smiles, oracles)).collect();
        for (record, scores) in block.iter().zip(rows) {
            let smiles = visible(&record.smiles).into_owned();
            // The shortest text that is read back as the same number.
            let row =
                std::iter::once(smiles).chain(scores.iter().map(|score| format!("{score:?}")));
            table.write_record(row).with_context(failed)?;
        }
    }
    table.flush().with_context(failed)
}

/// Returns the scores of a molecule, all 0 if it is invalid.
fn scores(smiles: &str, oracles: &[Oracle]) -> Vec<f64> {
    let Ok(molecule) = Molecule::parse(smiles) else { return vec![0.0; oracles.len()] };
    match oracles.len() {
        // Few oracles cost less than all of them, which share their fingerprints.
        ..=FEW => oracles.iter().map(|oracle| oracle.score(&molecule)).collect(),
        _ => {
            let all = Oracle::score_all(&molecule);
            let score =
                |oracle: &Oracle| Oracle::ALL.iter().position(|of| of == oracle).map(|i| all[i]);
            oracles.iter().filter_map(score).collect()
        }
    }
}

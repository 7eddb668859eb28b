//! `grpo bench-pmo --score`: scores the molecules of a file.

use std::fmt;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use grpo_chem::pmo::Oracle;
use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::{DataError, short_text};
use grpo_task::output::{CSV, FileInPlace, say_aside};
use grpo_task::phase::Phase;
use grpo_task::visible::{data_output, number_cell, text_cell, visible};
use rayon::prelude::*;

use crate::reader::{blocks, record_fault};
use crate::{MoleculeReader, MoleculeRecord, ReadOptions};

/// Number of molecules processed in parallel. This keeps all threads busy without using much
/// memory.
const BLOCK: usize = 4096;

/// Number of oracles up to which they are computed one by one.
const FEW: usize = 4;

/// Writes a CSV file with a column per oracle to `output`, or to standard output.
pub(super) fn run(
    path: &Path,
    column: Option<&str>,
    oracles: &[Oracle],
    output: Option<&Path>,
    force: bool,
) -> anyhow::Result<()> {
    let create = |output: &Path| FileInPlace::create_beside(output, CSV, &[path], force);
    let output = output.map(create).transpose()?;
    let options = ReadOptions {
        smiles_column: column.map(str::to_owned),
        column_setting: Some("--column"),
        keep_empty: true,
        ..ReadOptions::default()
    };
    let mut reader = MoleculeReader::open(path, &options)?.peekable();
    anyhow::ensure!(reader.peek().is_some(), "{} contains no molecules", path.display());
    let _phase = Phase::begin(format!("scoring {}", path.display()));
    match output {
        Some(mut file) => {
            let place = file.path().display().to_string();
            score_all(reader, oracles, &mut file, &place)?;
            file.finish()
        }
        None => score_all(reader, oracles, data_output(), &"standard output"),
    }
}

fn score_all(
    reader: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    oracles: &[Oracle],
    output: impl Write,
    place: &dyn fmt::Display,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let header = std::iter::once("smiles").chain(oracles.iter().map(|oracle| oracle.name()));
    let mut blocks = blocks(reader, BLOCK);
    // A file that cannot be read does not begin a table.
    let mut next = blocks.next().transpose()?;
    table.write_record(header).with_context(failed)?;
    let (mut invalid, mut first) = (0, None);
    while let Some(block) = next {
        let rows: Vec<Result<Vec<f64>, InvalidSmiles>> =
            block.par_iter().map(|record| scores(&record.smiles, oracles)).collect();
        for (record, scores) in block.iter().zip(rows) {
            let scores = scores.unwrap_or_else(|reason| {
                invalid += 1;
                first.get_or_insert_with(|| {
                    format!("`{}`: {}", short_text(&record.smiles), record_fault(&reason))
                });
                vec![0.0; oracles.len()]
            });
            let numbers = scores.into_iter().map(number_cell);
            let row = std::iter::once(text_cell(&record.smiles)).chain(numbers);
            table.write_record(row).with_context(failed)?;
        }
        next = blocks.next().transpose()?;
    }
    table.flush().with_context(failed)?;
    if let Some(first) = first {
        let first = visible(&first);
        say_aside(format_args!("invalid      {invalid:>8}, which score 0; the first is {first}"));
    }
    Ok(())
}

/// Returns the scores of a molecule.
fn scores(smiles: &str, oracles: &[Oracle]) -> Result<Vec<f64>, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(match oracles.len() {
        // Few oracles cost less than all of them, which share their fingerprints.
        ..=FEW => oracles.iter().map(|oracle| oracle.score(&molecule)).collect(),
        _ => {
            let all = Oracle::score_all(&molecule);
            let score =
                |oracle: &Oracle| Oracle::ALL.iter().position(|of| of == oracle).map(|i| all[i]);
            oracles.iter().filter_map(score).collect()
        }
    })
}

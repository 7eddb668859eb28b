//! `grpo bench-pmo --score`: scores the molecules of a file.

use std::fmt;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use grpo_app::output::{FileInPlace, say_aside};
use grpo_app::phase::Phase;
use grpo_app::visible::{data_output, visible};
use grpo_chem::Molecule;
use grpo_chem::pmo::Oracle;
use grpo_data::DataError;
use rayon::prelude::*;

use crate::{MoleculeReader, MoleculeRecord, ReadOptions};

/// Number of molecules processed in parallel. This keeps all threads busy without using much
/// memory.
const BLOCK: usize = 4096;

/// Number of oracles up to which they are computed one by one.
const FEW: usize = 4;

/// Writes a CSV file with a column per oracle to `output`, or to standard output.
pub(super) fn run(
    path: &Path,
    smiles_column: Option<&str>,
    oracles: &[Oracle],
    output: Option<&Path>,
    force: bool,
) -> anyhow::Result<()> {
    let create = |output: &Path| FileInPlace::create_beside(output, &[path], force);
    let output = output.map(create).transpose()?;
    let options = ReadOptions {
        smiles_column: smiles_column.map(str::to_owned),
        column_setting: Some("--smiles-column"),
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
    mut reader: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    oracles: &[Oracle],
    output: impl Write,
    place: &dyn fmt::Display,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let header = std::iter::once("smiles").chain(oracles.iter().map(|oracle| oracle.name()));
    table.write_record(header).with_context(failed)?;
    let mut invalid = 0;
    loop {
        let block: Vec<MoleculeRecord> =
            reader.by_ref().take(BLOCK).collect::<Result<_, DataError>>()?;
        if block.is_empty() {
            break;
        }
        let rows: Vec<Option<Vec<f64>>> =
            block.par_iter().map(|record| scores(&record.smiles, oracles)).collect();
        invalid += rows.iter().filter(|scores| scores.is_none()).count();
        for (record, scores) in block.iter().zip(rows) {
            let scores = scores.unwrap_or_else(|| vec![0.0; oracles.len()]);
            let smiles = visible(&record.smiles).into_owned();
            // The shortest text that is read back as the same number.
            let row =
                std::iter::once(smiles).chain(scores.iter().map(|score| format!("{score:?}")));
            table.write_record(row).with_context(failed)?;
        }
    }
    table.flush().with_context(failed)?;
    if invalid > 0 {
        say_aside(format_args!("invalid      {invalid:>8}, which score 0"));
    }
    Ok(())
}

/// Returns the scores of a molecule, or `None` if it is invalid.
fn scores(smiles: &str, oracles: &[Oracle]) -> Option<Vec<f64>> {
    let molecule = Molecule::parse(smiles).ok()?;
    Some(match oracles.len() {
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

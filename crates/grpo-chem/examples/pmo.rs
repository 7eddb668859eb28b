//! Writes the scores of all PMO oracles as CSV, to compare them with PyTDC (see
//! `tests/peers/pmo/oracles.py`).
//!
//! Usage: `pmo [--time] < FILE.smi`. `--time` prints microseconds per molecule and oracle instead.

use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;

use grpo_chem::Molecule;
use grpo_chem::pmo::Oracle;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let lines: Vec<String> = std::io::stdin().lock().lines().collect::<Result<_, _>>()?;
    if std::env::args().any(|argument| argument == "--time") {
        return time(&mut out, &lines);
    }
    writeln!(out, "smiles,{}", Oracle::ALL.map(Oracle::name).join(","))?;
    for line in &lines {
        let smiles = line.split_ascii_whitespace().next().unwrap_or_default();
        let scores = Molecule::parse(smiles)
            .map_or([0.0; 20], |molecule| Oracle::score_all(&molecule))
            .map(|score| score.to_string());
        writeln!(out, "{smiles},{}", scores.join(","))?;
    }
    Ok(())
}

fn time(out: &mut impl Write, lines: &[String]) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let molecules: Vec<Molecule> =
        lines.iter().filter_map(|line| Molecule::parse(line).ok()).collect();
    let mut report = |name: &str, start: Instant| {
        let micros = start.elapsed().as_secs_f64() * 1e6 / molecules.len() as f64;
        writeln!(out, "{name:25} {micros:8.1} µs per molecule")
    };
    report("parsing", start)?;
    for oracle in Oracle::ALL {
        oracle.score(&molecules[0]);
        let start = Instant::now();
        molecules.iter().for_each(|molecule| _ = black_box(oracle.score(molecule)));
        report(oracle.name(), start)?;
    }
    let start = Instant::now();
    molecules.iter().for_each(|molecule| _ = black_box(Oracle::score_all(molecule)));
    report("all together", start)?;
    Ok(())
}

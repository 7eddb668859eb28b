//! Reads a file of SMILES, one a line (what follows a blank is a name), and prints one CSV row a line.
//!
//! ```text
//! cargo run --release -p grpo-chem --example describe -- molecules.smi > described.csv
//! ```
//!
//! With `--lines` the whole line is the SMILES, and the last column holds the milliseconds it took: that is how
//! `tests/peers/rdkit/compare.py` tries malformed strings.

use std::io::Write as _;
use std::time::Instant;

use grpo_chem::describe;
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let whole_lines = arguments.first().is_some_and(|argument| argument == "--lines");
    if whole_lines {
        arguments.remove(0);
    }
    let [path] = arguments.as_slice() else {
        return Err("usage: describe [--lines] FILE".into());
    };
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();

    let started = Instant::now();
    let rows: Vec<Vec<String>> = lines.par_iter().map(|line| row(line, whole_lines)).collect();
    let seconds = started.elapsed().as_secs_f64();

    let mut writer = csv::Writer::from_writer(std::io::stdout().lock());
    writer.write_record([
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
        "milliseconds",
    ])?;
    for row in rows {
        writer.write_record(row)?;
    }
    writer.flush()?;
    writeln!(std::io::stderr(), "{} lines in {seconds:.2} s", lines.len())?;
    Ok(())
}

fn row(line: &str, whole_lines: bool) -> Vec<String> {
    let smiles =
        if whole_lines { line } else { line.split_ascii_whitespace().next().unwrap_or_default() };
    let started = Instant::now();
    let result = describe(smiles);
    let milliseconds = format!("{:.3}", started.elapsed().as_secs_f64() * 1e3);
    let mut row = vec![smiles.to_owned(), u8::from(result.is_ok()).to_string()];
    match result {
        Ok(d) => {
            row.push(d.canonical);
            row.extend([d.mw, d.logp, d.tpsa].map(|value| value.to_string()));
            row.extend(
                [d.hba, d.hbd, d.rotatable, d.aromatic_rings, d.alerts]
                    .map(|count| count.to_string()),
            );
            row.extend([d.qed.to_string(), d.sa.to_string(), d.scaffold, String::new()]);
        }
        Err(reason) => {
            row.resize(14, String::new());
            row.push(reason.to_string());
        }
    }
    row.push(milliseconds);
    row
}

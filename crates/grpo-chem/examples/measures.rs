//! Computes the measures of MOSES and GuacaMol for the sets in a folder, and times them:
//! `cargo run --release -p grpo-chem --example measures -- FOLDER`.
//!
//! Reads `generated.smi`, `training.smi` and `test.smi`, prints the measures as JSON, and writes
//! `ours.csv` with what each generated molecule contributes. Its columns are those of `peers.csv` of
//! `tests/peers/moses/measures.py`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]
#![allow(clippy::disallowed_methods, reason = "an example opens its own files")]

use std::error::Error;
use std::fmt::Write;
use std::fs::{read_to_string, write};
use std::time::Instant;

use grpo_chem::distribution::{Flat, Measures, Record, Role, Sets};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("missing argument FOLDER")?;
    let started = Instant::now();
    let read = |name: &str, role| -> Result<(Vec<String>, Vec<_>), Box<dyn Error>> {
        let text = read_to_string(format!("{folder}/{name}.smi"))?;
        let smiles: Vec<String> = text.lines().map(str::to_owned).collect();
        let records = Record::parse_all(&smiles, role);
        Ok((smiles, records))
    };
    let (smiles, generated) = read("generated", Role::Generated)?;
    let mut columns = vec!["smiles", "flat", "fragments", "scaffold", "passes"];
    columns.extend(Flat::NAMES);
    let mut table = columns.join(",") + "\n";
    for (smiles, record) in smiles.iter().zip(&generated) {
        let Ok(record) = record else { continue };
        let flat = record.flat.as_ref().ok_or("the role of the record has no flat molecule")?;
        let passes = u8::from(record.passes_filters == Some(true));
        let scaffold = record.scaffold.as_deref().unwrap_or_default();
        let fragments = record.fragments.join(".");
        write!(table, "{smiles},{},{fragments},{scaffold},{passes}", flat.canonical)?;
        flat.descriptors.iter().try_for_each(|value| write!(table, ",{value:?}"))?;
        table.push('\n');
    }
    let valid = |records: Vec<Result<Record, _>>| records.into_iter().flatten().collect::<Vec<_>>();
    let generated = valid(generated);
    let training = valid(read("training", Role::Reference)?.1);
    let test = valid(read("test", Role::Reference)?.1);
    let parsed = started.elapsed();
    let sets = Sets {
        training: Some(&training),
        test: Some(&test),
        ..Sets::new(smiles.len(), &generated)
    };
    let measures = Measures::new(&sets);
    println!("{}", serde_json::to_string_pretty(&measures)?);
    eprintln!("records {parsed:.1?}, with measures {:.1?}", started.elapsed());
    write(format!("{folder}/ours.csv"), table)?;
    Ok(())
}

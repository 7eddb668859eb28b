//! Writes descriptors, similarities and pattern counts of molecules as CSV, to compare them with
//! RDKit (see `tests/peers/rdkit/components.py`).
//!
//! Usage: `descriptors [--patterns FILE] [--references FILE] < FILE.smi`. The files contain one
//! pattern or SMILES per line. An empty cell is a value that could not be computed. Invalid
//! patterns are reported on standard error.
#![allow(clippy::disallowed_methods, reason = "an example opens its own files")]

use std::error::Error;
use std::io::{BufRead, Write};

use grpo_chem::{Descriptor, Fingerprint, Molecule, Morgan, MorganRadius, Pattern};

const DEFINITIONS: [(&str, Morgan); 4] = [
    ("bits2", Morgan::Bits(MorganRadius::Two)),
    ("bits3", Morgan::Bits(MorganRadius::Three)),
    ("counts2", Morgan::Counts(MorganRadius::Two)),
    ("counts3", Morgan::Counts(MorganRadius::Three)),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut patterns = Vec::new();
    let mut references = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let file = std::fs::read_to_string(arguments.next().ok_or("missing FILE")?)?;
        match option.as_str() {
            "--patterns" => {
                for line in file.lines() {
                    let pattern = Pattern::parse(line);
                    if let Err(error) = &pattern {
                        writeln!(std::io::stderr(), "{line}\t{error}")?;
                    }
                    patterns.push(pattern.ok());
                }
            }
            "--references" => {
                for line in file.lines() {
                    let molecule = Molecule::parse(line)?;
                    let all: Result<Vec<Fingerprint>, _> =
                        DEFINITIONS.iter().map(|(_, of)| molecule.morgan(*of)).collect();
                    references.push(all?);
                }
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }

    let mut out = std::io::stdout().lock();
    let names = Descriptor::ALL.map(Descriptor::name);
    write!(out, "input,{},formula,framework,block", names.join(","))?;
    for i in 0..references.len() {
        DEFINITIONS.iter().try_for_each(|(name, _)| write!(out, ",{name}_{i}"))?;
    }
    (0..patterns.len()).try_for_each(|i| write!(out, ",pattern_{i}"))?;
    writeln!(out)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Ok(molecule) = Molecule::parse(&line) else { continue };
        write!(out, "{line}")?;
        for descriptor in Descriptor::ALL {
            cell(&mut out, molecule.descriptor(descriptor).ok())?;
        }
        cell(&mut out, molecule.formula().ok())?;
        cell(&mut out, molecule.topological_scaffold().ok())?;
        cell(&mut out, molecule.mol_block(&line).ok().map(|block| block.replace('\n', "|")))?;
        for all in &references {
            for ((_, definition), reference) in DEFINITIONS.iter().zip(all) {
                let similarity = molecule.morgan(*definition).map(|of| of.tanimoto(reference));
                cell(&mut out, similarity.ok())?;
            }
        }
        for pattern in &patterns {
            let count = pattern.as_ref().and_then(|pattern| pattern.count(&molecule).ok());
            cell(&mut out, count)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn cell<T: ToString>(out: &mut impl Write, value: Option<T>) -> std::io::Result<()> {
    write!(out, ",{}", value.map_or_else(String::new, |value| value.to_string()))
}

//! Reads a SMILES per line and writes it with two random SMILES, separated by tabs. Strings that are
//! not molecules are left out.
//!
//! Used by `tests/peers/rdkit/randomized.py` to compare the molecules with RDKit's.

use std::io::{Write, stdin, stdout};

use grpo_chem::Molecule;

fn main() -> std::io::Result<()> {
    let mut output = stdout().lock();
    for (line, number) in stdin().lines().zip(0..) {
        let line = line?;
        let Ok(molecule) = Molecule::parse(&line) else { continue };
        let random = [2 * number, 2 * number + 1].map(|random| molecule.randomized_smiles(random));
        if let [Ok(one), Ok(other)] = random {
            writeln!(output, "{}\t{one}\t{other}", molecule.canonical_smiles())?;
        }
    }
    Ok(())
}

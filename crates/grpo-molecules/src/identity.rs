//! The identity of molecules, and the molecule that rewards score.

use grpo_chem::{Descriptor, InvalidSmiles, Molecule};
use grpo_rewards::Identity;
use rayon::prelude::*;

/// Identifies molecules by the string that [`identity`] returns.
pub(crate) fn identities(texts: &[&str]) -> Vec<Identity> {
    let of = |smiles: &&str| match Molecule::parse(smiles).and_then(|it| identity(&it)) {
        Ok(identity) => Identity::Canonical(identity),
        // It may be a molecule.
        Err(InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }) => {
            Identity::Unknown
        }
        Err(_) => Identity::Invalid,
    };
    texts.par_iter().map(of).collect()
}

/// Returns a string that is the same for all spellings of a molecule. It ignores isotopes and atom
/// maps, and of several fragments all but the largest, so that a salt is its parent molecule.
///
/// # Errors
/// Returns an error if the toolkit cannot write the molecule.
pub(crate) fn identity(molecule: &Molecule) -> Result<String, InvalidSmiles> {
    parent(molecule)?.as_ref().unwrap_or(molecule).identity()
}

/// Parses a SMILES and returns the molecule that rewards score: the largest fragment, without
/// isotopes and atom maps. Otherwise, a policy could raise sums over atoms, e.g. the weight, with a
/// second fragment, or make a known molecule look new with an isotope.
///
/// # Errors
/// Same as [`Molecule::parse`].
pub(crate) fn scored_molecule(smiles: &str) -> Result<Molecule, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(parent(&molecule)?.unwrap_or(molecule))
}

/// Returns the largest fragment without isotopes and atom maps, or `None` if that is the molecule
/// itself.
fn parent(molecule: &Molecule) -> Result<Option<Molecule>, InvalidSmiles> {
    let canonical = molecule.canonical_smiles();
    match (has_labels(canonical), canonical.contains('.')) {
        (true, _) => largest_fragment(&molecule.identity()?).map(Some),
        (false, true) => largest_fragment(canonical).map(Some),
        (false, false) => Ok(None),
    }
}

/// Returns whether a SMILES may have isotopes or atom maps.
fn has_labels(smiles: &str) -> bool {
    smiles.contains(':')
        || smiles.as_bytes().windows(2).any(|pair| pair[0] == b'[' && pair[1].is_ascii_digit())
}

/// Returns the fragment with the most heavy atoms. Ties are broken by weight and then by the canonical
/// SMILES, so that the spelling has no influence.
fn largest_fragment(canonical: &str) -> Result<Molecule, InvalidSmiles> {
    let mut largest: Option<(f64, f64, Molecule)> = None;
    for fragment in canonical.split('.') {
        let fragment = Molecule::parse(fragment)?;
        let atoms = fragment.descriptor(Descriptor::HeavyAtoms)?;
        let weight = fragment.descriptor(Descriptor::Mw)?;
        let is_larger = largest.as_ref().is_none_or(|(most, heaviest, other)| {
            let order = atoms.total_cmp(most).then(weight.total_cmp(heaviest));
            order.then_with(|| other.canonical_smiles().cmp(fragment.canonical_smiles())).is_gt()
        });
        if is_larger {
            largest = Some((atoms, weight, fragment));
        }
    }
    largest.map(|(.., fragment)| fragment).ok_or(InvalidSmiles::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(smiles: &str) -> String {
        identity(&Molecule::parse(smiles).unwrap()).unwrap()
    }

    #[test]
    fn spellings_of_a_molecule_have_one_identity() {
        for (molecule, spellings) in [
            ("CCO", ["OCC", "[2H]OCC", "CC[18OH].Cl", "[Na+].O[CH2:1][CH3:2]"]),
            ("CCO", ["[13CH3]CN.CCO", "[3H]CCO", "[1H]OCC", "[CH3:1]CO.[18OH2]"]),
            ("c1ccccc1", ["C1=CC=CC=C1", "c1ccccc1.CCO", "O.c1ccccc1.O", "c1ccccc1.[Na+].[Cl-]"]),
            // Fragments of equal size: the heavier one, then the first in the order of text.
            ("CCO", ["CCC.CCO", "CCO.CCC", "CCO.CCO", "CCN.CCO"]),
            ("CC(C)O", ["CCCO.CC(C)O", "CC(C)O.CCCO", "OCCC.CC(O)C", "CC(C)O.OCCC"]),
        ] {
            for spelling in spellings {
                assert_eq!(of(spelling), of(molecule), "{spelling}");
            }
            assert_eq!(of(&of(molecule)), of(molecule), "{molecule}");
        }
    }

    #[test]
    fn other_molecules_have_other_identities() {
        for [a, b] in [["CCO", "CCN"], ["C[C@H](F)Cl", "C[C@@H](F)Cl"], ["CC=O", "C=CO"]] {
            assert_ne!(of(a), of(b), "{a} {b}");
        }
    }

    #[test]
    fn rewards_score_the_largest_fragment() {
        for (smiles, atoms) in
            [("CCO", 3.0), ("CCO.CCO.CCO", 3.0), ("Cl.CCCCN", 5.0), ("[2H]OCC", 3.0)]
        {
            let molecule = scored_molecule(smiles).unwrap();
            assert_eq!(molecule.descriptor(Descriptor::HeavyAtoms), Ok(atoms), "{smiles}");
        }
        assert!(scored_molecule("CCO.C(").is_err());
    }
}

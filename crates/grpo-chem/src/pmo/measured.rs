//! The properties of one molecule that tasks share, computed when first needed.

use std::cell::OnceCell;

use chematic::chem::bertz_ct;
use chematic::core::Molecule as Graph;
use chematic::fp::rdkit_atom_pair_sparse_counts;
use chematic::perception::with_rdkit_parity_view;

use super::feature_morgan::fcfp4;
use super::pharmacophore::pharmacophores;
use crate::descriptor::is_aromatic;
use crate::error::InvalidSmiles;
use crate::fingerprint::{Counts, Morgan, MorganRadius};
use crate::guard::guarded;
use crate::molecule::Molecule;
use crate::rings::rings;

/// A fingerprint whose Tanimoto similarity is a score. Stereochemistry is ignored.
#[derive(Debug, Clone, Copy)]
pub(super) enum Similarity {
    /// Counts of environments with radius 2 (`GetMorganFingerprint`).
    Ecfp4,
    /// Counts of environments with radius 3.
    Ecfp6,
    /// Counts of environments with radius 2, made of features instead of elements (`useFeatures`).
    Fcfp4,
    /// Counts of atom pairs with up to 10 bonds in between (`GetAtomPairFingerprint`).
    AtomPairs,
    /// Set of pairs and triples of pharmacophores (`Gobbi_Pharm2D`).
    Pharmacophores,
}

/// Maximum distance of an atom pair in bonds.
const LONGEST_PAIR: u32 = 10;

/// A molecule and the properties that were computed so far.
pub(super) struct Measured<'a> {
    molecule: &'a Molecule,
    fingerprints: [OnceCell<Result<Counts, InvalidSmiles>>; 5],
    formula: OnceCell<Result<Formula, InvalidSmiles>>,
    rings: OnceCell<Result<Rings, InvalidSmiles>>,
}

/// Numbers of rings in RDKit's list of rings.
#[derive(Clone, Copy)]
pub(super) struct Rings {
    pub(super) all: u32,
    /// Rings whose bonds are all aromatic (`CalcNumAromaticRings`).
    pub(super) aromatic: u32,
}

/// Elements of a molecular formula and their numbers of atoms.
pub(super) struct Formula(Vec<(String, f64)>);

impl<'a> Measured<'a> {
    pub(super) fn new(molecule: &'a Molecule) -> Self {
        Self {
            molecule,
            fingerprints: Default::default(),
            formula: OnceCell::new(),
            rings: OnceCell::new(),
        }
    }

    pub(super) fn molecule(&self) -> &'a Molecule {
        self.molecule
    }

    pub(super) fn fingerprint(&self, kind: Similarity) -> Result<&Counts, InvalidSmiles> {
        shared(&self.fingerprints[kind as usize], || fingerprint(self.molecule, kind))
    }

    pub(super) fn formula(&self) -> Result<&Formula, InvalidSmiles> {
        shared(&self.formula, || self.molecule.formula().map(|text| Formula::parse(&text)))
    }

    pub(super) fn rings(&self) -> Result<Rings, InvalidSmiles> {
        let counted = shared(&self.rings, || {
            let model = self.molecule.model();
            let rings = rings(model)?;
            let aromatic = rings.iter().filter(|ring| is_aromatic(model, ring)).count();
            Ok(Rings { all: rings.len() as u32, aromatic: aromatic as u32 })
        });
        counted.copied()
    }

    /// Bertz's index of complexity (`BertzCT`).
    pub(super) fn complexity(&self) -> Result<f64, InvalidSmiles> {
        guarded(|| bertz_ct(self.molecule.model()))
    }
}

fn shared<T>(
    cell: &OnceCell<Result<T, InvalidSmiles>>,
    compute: impl FnOnce() -> Result<T, InvalidSmiles>,
) -> Result<&T, InvalidSmiles> {
    cell.get_or_init(compute).as_ref().map_err(Clone::clone)
}

fn fingerprint(molecule: &Molecule, kind: Similarity) -> Result<Counts, InvalidSmiles> {
    let morgan = |radius| molecule.morgan(Morgan::Counts(radius)).map(Counts::from);
    match kind {
        Similarity::Ecfp4 => morgan(MorganRadius::Two),
        Similarity::Ecfp6 => morgan(MorganRadius::Three),
        Similarity::Fcfp4 => in_view(molecule, fcfp4),
        Similarity::AtomPairs => guarded(|| {
            let pairs = rdkit_atom_pair_sparse_counts(molecule.model()).into_iter();
            // The code of a pair contains its distance in the lowest five bits.
            Counts::new(pairs.filter(|(code, _)| code % 32 <= LONGEST_PAIR).collect())
        }),
        Similarity::Pharmacophores => in_view(molecule, pharmacophores),
    }
}

/// Computes a fingerprint from the molecule with RDKit's aromaticity.
fn in_view(
    molecule: &Molecule,
    compute: fn(&Graph) -> Result<Counts, InvalidSmiles>,
) -> Result<Counts, InvalidSmiles> {
    let model = molecule.model();
    guarded(|| with_rdkit_parity_view(model, |view| compute(view.unwrap_or(model))))?
}

impl Formula {
    /// Parses a formula such as `C2H4ClO2-`. The charge and atoms of unknown elements are ignored.
    fn parse(text: &str) -> Self {
        let mut elements = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_uppercase()) {
            rest = &rest[start..];
            let symbol = prefix(rest, 1, |c| c.is_ascii_lowercase());
            let digits = prefix(&rest[symbol..], 0, |c| c.is_ascii_digit());
            let (element, number) = rest[..symbol + digits].split_at(symbol);
            elements.push((element.to_owned(), number.parse().unwrap_or(1.0)));
            rest = &rest[symbol + digits..];
        }
        Self(elements)
    }

    pub(super) fn count(&self, element: &str) -> f64 {
        self.0.iter().find(|(of, _)| of == element).map_or(0.0, |(_, count)| *count)
    }

    /// Returns the number of atoms, including hydrogen.
    pub(super) fn total(&self) -> f64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

/// Returns where the first characters after `start` end that satisfy a condition.
fn prefix(text: &str, start: usize, is_inside: impl Fn(char) -> bool) -> usize {
    text[start..].find(|c| !is_inside(c)).map_or(text.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_have_elements_and_a_total() {
        for (text, expected, total) in [
            ("C7H8N2O2", vec![("C", 7.0), ("H", 8.0), ("N", 2.0), ("O", 2.0)], 19.0),
            ("CHCl3", vec![("C", 1.0), ("H", 1.0), ("Cl", 3.0)], 5.0),
            ("C2H3NaO2", vec![("C", 2.0), ("H", 3.0), ("Na", 1.0), ("O", 2.0)], 8.0),
            ("Cu+2", vec![("Cu", 1.0)], 1.0),
            ("H4N+", vec![("H", 4.0), ("N", 1.0)], 5.0),
            ("C6H5*", vec![("C", 6.0), ("H", 5.0)], 11.0),
            ("", vec![], 0.0),
        ] {
            let formula = Formula::parse(text);
            let elements: Vec<(&str, f64)> =
                formula.0.iter().map(|(element, count)| (element.as_str(), *count)).collect();
            assert_eq!(elements, expected, "{text}");
            assert_eq!(formula.total(), total);
            assert_eq!(formula.count("Br"), 0.0);
        }
    }
}

//! MOSES's filters: medicinal chemistry filters (MCF), PAINS, elements, charges and ring sizes.

use std::sync::LazyLock;

use chematic::core::Element;

use crate::descriptor::Descriptor;
use crate::error::InvalidSmiles;
use crate::molecule::{Molecule, in_view};
use crate::query::Pattern;
use crate::screen::{Census, Screen};

/// Elements that pass the filters.
const ELEMENTS: [Element; 8] = [
    Element::H,
    Element::C,
    Element::N,
    Element::O,
    Element::F,
    Element::S,
    Element::CL,
    Element::BR,
];

/// Size of the smallest ring that does not pass.
const LARGE_RING: f64 = 8.0;

impl Molecule {
    /// Returns `true` if the molecule passes MOSES's filters (`mol_passes_filters`): no charged atom,
    /// only H, C, N, O, F, S, Cl and Br, no ring with eight or more atoms, and none of the 22 MCF
    /// and 480 PAINS patterns.
    ///
    /// # Errors
    /// Same as [`Pattern::matches`].
    pub fn passes_moses_filters(&self) -> Result<bool, InvalidSmiles> {
        // Hydrogen atoms of the patterns become conditions on their neighbors, so that they need
        // not be added to the molecule.
        static PATTERNS: LazyLock<Vec<(Screen, Pattern)>> = LazyLock::new(|| {
            let pattern = |line: &str| {
                let pattern = Pattern::parse(line);
                let pattern =
                    pattern.unwrap_or_else(|error| panic!("embedded pattern {line}: {error}"));
                (Screen::new(pattern.query()), pattern)
            };
            include_str!("../../data/moses_filters.smarts").lines().map(pattern).collect()
        });
        let is_allowed = |atom: &chematic::core::Atom| {
            !atom.wildcard && atom.charge == 0 && ELEMENTS.contains(&atom.element)
        };
        if !self.model().atoms().all(|(_, atom)| is_allowed(atom))
            || self.descriptor(Descriptor::LargestRing)? >= LARGE_RING
        {
            return Ok(false);
        }
        in_view(self.model(), |view| {
            let census = Census::new(view);
            for (screen, pattern) in PATTERNS.iter() {
                if screen.passes(&census) && pattern.is_in(view)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use chematic::smiles::rdkit_added_hs_molecule;

    use super::*;

    /// Merging hydrogen atoms has the same result as adding them to the molecule.
    #[test]
    fn patterns_with_hydrogen_atoms_match_both_ways() {
        let patterns = include_str!("../../data/moses_filters.smarts");
        let mut found = 0;
        let molecules = include_str!("../../tests/fixtures/molecules.smi");
        for smiles in molecules.lines().step_by(2).filter_map(|line| line.split(' ').next()) {
            let molecule = Molecule::parse(smiles).unwrap();
            let whole = rdkit_added_hs_molecule(molecule.graph()).unwrap();
            for smarts in patterns.lines() {
                let merged = Pattern::parse(smarts).unwrap().matches(&molecule).unwrap();
                let explicit = Pattern::embedded(smarts).is_in(&whole).unwrap();
                assert_eq!(merged, explicit, "{smarts} in {smiles}");
                found += u32::from(merged);
            }
        }
        assert!(found > 10, "{found}");
    }

    /// Computed with MOSES's `mol_passes_filters` and RDKit 2026.09.
    #[test]
    fn each_rule_refuses_a_molecule() {
        for (smiles, expected) in [
            ("CC(=O)Nc1ccccc1", true),
            ("C1CCCCCC1", true),
            ("C1CCCCCCC1", false),
            ("CC[NH3+]", false),
            ("C[N+](=O)[O-]", false),
            ("CCI", false),
            ("C[Si](C)(C)C", false),
            // An aldehyde (MCF), and a catechol and an aminobenzaldehyde (PAINS).
            ("CCC=O", false),
            ("Oc1ccccc1O", false),
            ("CN(C)c1ccc(C=O)cc1", false),
        ] {
            let molecule = Molecule::parse(smiles).unwrap();
            assert_eq!(molecule.passes_moses_filters(), Ok(expected), "{smiles}");
        }
    }
}

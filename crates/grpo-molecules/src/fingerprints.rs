//! Similarity of molecules by their fingerprints.

use grpo_chem::{Fingerprint, Molecule, Morgan, MorganRadius};
use grpo_train::SimilarTexts;

/// Counts of environments, radius 2 (ECFC4).
const KIND: Morgan = Morgan::Counts(MorganRadius::Two);

/// Fingerprints of molecules, or `None` for texts that are not molecules.
#[derive(Default)]
pub(crate) struct Fingerprints(Vec<Option<Fingerprint>>);

impl Fingerprints {
    pub(crate) fn empty() -> Box<dyn SimilarTexts> {
        Box::new(Self::default())
    }
}

fn fingerprint(smiles: &str) -> Option<Fingerprint> {
    Molecule::parse(smiles).ok()?.morgan(KIND).ok()
}

impl SimilarTexts for Fingerprints {
    fn push(&mut self, text: &str) {
        self.0.push(fingerprint(text));
    }

    fn similarities(&self, text: &str) -> Vec<Option<f64>> {
        let own = fingerprint(text);
        self.0.iter().map(|other| Some(own.as_ref()?.tanimoto(other.as_ref()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of RDKit 2026.09.1, `GetMorganGenerator(radius=2).GetSparseCountFingerprint`.
    #[test]
    fn similarities_are_those_of_rdkit() {
        let mut all = Fingerprints::empty();
        ["CCO", "C(", "c1ccccc1", "OCC"].iter().for_each(|smiles| all.push(smiles));
        let found = all.similarities("CCCO");
        assert_eq!(found[1], None);
        assert_eq!(found[0], found[3]);
        assert_eq!(found[0], Some(0.5));
        assert_eq!(found[2], Some(0.0));
        assert_eq!(all.similarities("C("), [None; 4]);
    }
}

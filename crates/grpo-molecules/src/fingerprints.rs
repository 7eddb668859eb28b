//! Similarity of molecules by their fingerprints.

use grpo_chem::{Fingerprint, Morgan, MorganRadius};
use grpo_extensions::SimilarTexts;
use rayon::prelude::*;

use crate::identity::scored_molecule;

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
    scored_molecule(smiles).ok()?.morgan(KIND).ok()
}

impl SimilarTexts for Fingerprints {
    fn extend(&mut self, texts: &[&str]) {
        self.0.par_extend(texts.par_iter().map(|text| fingerprint(text)));
    }

    fn similarities(&self, text: &str) -> Vec<Option<f64>> {
        let own = fingerprint(text);
        let similarity =
            |other: &Option<Fingerprint>| Some(own.as_ref()?.tanimoto(other.as_ref()?));
        self.0.par_iter().with_min_len(256).map(similarity).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of RDKit 2026.09.1, `GetMorganGenerator(radius=2).GetSparseCountFingerprint`.
    #[test]
    fn similarities_are_those_of_rdkit() {
        let mut all = Fingerprints::empty();
        all.extend(&["CCO", "C(", "c1ccccc1", "OCC"]);
        let found = all.similarities("CCCO");
        assert_eq!(found[1], None);
        assert_eq!(found[0], found[3]);
        assert_eq!(found[0], Some(0.5));
        assert_eq!(found[2], Some(0.0));
        assert_eq!(all.similarities("C("), [None; 4]);
    }
}

//! Random SMILES and genetic operators for replay.

use grpo_chem::Molecule;
use grpo_chem::genetic::{Size, crossover, mutate};
use grpo_extensions::Variation;

use crate::Vocabulary;

/// Writes molecules as random SMILES, and varies them with the genetic operators of
/// [`grpo_chem::genetic`].
pub(crate) struct MoleculeVariation {
    pub(crate) vocabulary: Vocabulary,
}

impl MoleculeVariation {
    /// Returns the ids of a SMILES after the start token, which is the prompt, to the end token.
    fn ids(&self, smiles: &str) -> Option<Vec<u32>> {
        let sequence = self.vocabulary.sequence(&self.vocabulary.encode(smiles).ok()?);
        let (start, ids) = sequence.split_first()?;
        (*start == self.vocabulary.start()).then(|| ids.to_vec())
    }
}

impl Variation for MoleculeVariation {
    /// Returns the canonical SMILES if the random one has a token that is not in the vocabulary, e.g.
    /// another ring number.
    fn written(&self, canonical: &str, random: Option<u32>) -> Option<Vec<u32>> {
        let randomized = |random: u32| {
            self.ids(&Molecule::parse(canonical).ok()?.randomized_smiles(random).ok()?)
        };
        random.and_then(randomized).or_else(|| self.ids(canonical))
    }

    fn mutated(&self, parent: &str, random: &mut dyn FnMut() -> u32) -> Option<String> {
        let parent = Molecule::parse(parent).ok()?;
        mutate(&parent, &Size::JENSEN, random)
    }

    fn combined(&self, parents: [&str; 2], random: &mut dyn FnMut() -> u32) -> Option<String> {
        let [a, b] = parents.map(|parent| Molecule::parse(parent).ok());
        crossover(&a?, &b?, &Size::JENSEN, random)
    }
}

#[cfg(test)]
mod tests {
    use grpo_data::TextCodec;

    use super::*;

    fn variation(start: Option<&str>) -> MoleculeVariation {
        let vocabulary = Vocabulary::from_smiles(["CCO", "c1ccc(N)cc1"]).unwrap();
        let vocabulary = match start {
            Some(start) => vocabulary.starting_with(start).unwrap(),
            None => vocabulary,
        };
        MoleculeVariation { vocabulary }
    }

    fn text(variation: &MoleculeVariation, ids: Option<Vec<u32>>) -> Option<String> {
        let ids = ids?;
        let (end, ids) = ids.split_last().unwrap();
        assert_eq!(*end, variation.vocabulary.boundary());
        Some(variation.vocabulary.decode(ids))
    }

    #[test]
    fn a_molecule_is_written_after_its_start_token() {
        let plain = variation(None);
        assert_eq!(text(&plain, plain.written("CCO", None)).as_deref(), Some("CCO"));
        // `F` is not in the vocabulary.
        assert_eq!(plain.written("CCF", None), None);
        let started = variation(Some("C"));
        assert_eq!(text(&started, started.written("CCO", None)).as_deref(), Some("CO"));
        assert_eq!(started.written("Nc1ccccc1", None), None);
    }

    #[test]
    fn a_random_form_is_the_same_molecule() {
        let variation = variation(None);
        let forms: std::collections::BTreeSet<String> = (0..20)
            .filter_map(|random| text(&variation, variation.written("Nc1ccccc1", Some(random))))
            .collect();
        assert!(forms.len() > 2, "{forms:?}");
        for form in &forms {
            assert_eq!(Molecule::parse(form).unwrap().canonical_smiles(), "Nc1ccccc1");
        }
    }
}

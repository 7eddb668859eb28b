//! Random SMILES and genetic operators for replay.

use grpo_chem::Molecule;
use grpo_chem::genetic::{Size, crossover, mutate};
use grpo_train::Variation;

use crate::Vocabulary;

/// Writes molecules as random SMILES, and varies them with the genetic operators of
/// [`grpo_chem::genetic`].
pub(crate) struct MoleculeVariation {
    pub(crate) vocabulary: Vocabulary,
}

impl MoleculeVariation {
    /// Returns the canonical form if the model can generate it.
    fn canonical(&self, smiles: &str) -> Option<String> {
        let canonical = Molecule::parse(smiles).ok()?.into_canonical();
        self.vocabulary.encode(&canonical).ok()?;
        Some(canonical)
    }

    /// Returns the ids of a SMILES and of the end token.
    fn ids(&self, smiles: &str) -> Option<Vec<u32>> {
        let mut ids = self.vocabulary.encode(smiles).ok()?;
        // An atom that begins each molecule is part of the prompt.
        if self.vocabulary.start() != self.vocabulary.boundary() {
            let is_start = ids.first() == Some(&self.vocabulary.start());
            ids = is_start.then(|| ids.split_off(1))?;
        }
        ids.push(self.vocabulary.boundary());
        Some(ids)
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
        self.canonical(&mutate(&parent, &Size::JENSEN, random)?)
    }

    fn combined(&self, parents: [&str; 2], random: &mut dyn FnMut() -> u32) -> Option<String> {
        let [a, b] = parents.map(|parent| Molecule::parse(parent).ok());
        self.canonical(&crossover(&a?, &b?, &Size::JENSEN, random)?)
    }
}

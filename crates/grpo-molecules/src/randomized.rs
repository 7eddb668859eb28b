//! Random SMILES of training molecules.

use grpo_chem::Molecule;
use grpo_data::{Augmentation, CounterRng, Example, Purpose, TextCodec};

use crate::Vocabulary;

/// Returns an augmentation that replaces a molecule with a random SMILES of the same molecule with
/// `probability`. Each molecule has its own draw in each epoch.
///
/// A random SMILES is not used if it has a token that is not in the vocabulary, e.g. another ring
/// number, or more than `max_tokens` tokens. The same holds for strings that are not molecules.
pub(crate) fn randomized(
    vocabulary: Vocabulary,
    probability: f64,
    max_tokens: usize,
    seed: u64,
) -> Augmentation {
    let rng = CounterRng::new(seed, Purpose::AUGMENTATION);
    Augmentation::new(move |example: &Example, index, epoch| {
        if rng.uniform([index, epoch, 0, 0]) >= probability {
            return None;
        }
        let molecule = Molecule::parse(&vocabulary.decode(&example.ids)).ok()?;
        let [random, ..] = rng.bits([index, epoch, 1, 0]);
        let ids = vocabulary.encode(&molecule.randomized_smiles(random).ok()?).ok()?;
        let ids = (ids.len() <= max_tokens).then(|| vocabulary.sequence(&ids))?;
        Some(Example { ids, ..example.clone() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        Vocabulary::from_smiles(["CC(=O)Oc1ccccc1C(=O)O", "N"]).unwrap()
    }

    fn example(smiles: &str) -> Example {
        let vocabulary = vocabulary();
        Example::of_all(vocabulary.sequence(&vocabulary.encode(smiles).unwrap()))
    }

    fn text(example: &Example) -> String {
        vocabulary().decode(&example.ids)
    }

    #[test]
    fn a_variant_is_another_spelling_of_the_molecule() {
        let aspirin = example("CC(=O)Oc1ccccc1C(=O)O");
        let always = randomized(vocabulary(), 1.0, 30, 1);
        let canonical = |smiles: &str| Molecule::parse(smiles).unwrap().into_canonical();
        let mut spellings = Vec::new();
        for epoch in 0..20 {
            let variant = always.variant(&aspirin, 3, epoch).unwrap();
            assert_eq!((variant.ids[0], variant.first_target), (aspirin.ids[0], 1));
            assert_eq!(variant.ids.last(), aspirin.ids.last());
            assert_eq!(canonical(&text(&variant)), canonical(&text(&aspirin)));
            // A resumed run draws the same.
            assert_eq!(always.variant(&aspirin, 3, epoch), Some(variant.clone()));
            spellings.push(text(&variant));
        }
        spellings.sort();
        spellings.dedup();
        assert!(spellings.len() > 10, "{spellings:?}");
    }

    /// 10 % of 20,000 draws, with a tolerance of five standard deviations.
    #[test]
    fn the_probability_is_that_of_a_molecule_in_an_epoch() {
        let some = randomized(vocabulary(), 0.1, 30, 1);
        let ethanol = example("CCO");
        let draws = (0..100).flat_map(|item| (0..200).map(move |epoch| (item, epoch)));
        let drawn =
            draws.filter(|(item, epoch)| some.variant(&ethanol, *item, *epoch).is_some()).count();
        assert!(drawn.abs_diff(2_000) < 5 * 43, "{drawn}");
    }

    #[test]
    fn variants_that_the_model_cannot_read_are_not_used() {
        let none = |smiles: &str, max_tokens| {
            let always = randomized(vocabulary(), 1.0, max_tokens, 1);
            (0..20).all(|epoch| always.variant(&example(smiles), 0, epoch).is_none())
        };
        assert!(none("CCO", 2));
        assert!(none("C1=C=C=C=C", 30));
    }
}

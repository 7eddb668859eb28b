//! Validity, uniqueness, novelty and mean properties of generated molecules, as defined in MOSES
//! (Polykovskiy et al. 2020).

use std::collections::BTreeSet;
use std::path::Path;

use grpo_chem::Molecule;
use grpo_data::DataError;
use grpo_data::statistics::{mean, standard_error};
use grpo_rewards::Outcome;
use rayon::prelude::*;

use crate::reader::blocks;
use crate::{MoleculeReader, ReadOptions};

/// Number of known molecules processed in parallel.
const BLOCK: usize = 4096;

/// Metrics for a set of generated strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoleculeSummary {
    /// Number of strings.
    pub samples: usize,
    /// Fraction of strings that are valid molecules.
    pub validity: f64,
    /// Fraction of valid molecules that are distinct.
    pub uniqueness: f64,
    /// Number of distinct Bemis–Murcko scaffolds divided by the number of distinct molecules. This
    /// is 1 if every molecule has a different scaffold, and close to 0 if all molecules are
    /// variants of a few scaffolds.
    pub scaffold_diversity: f64,
    /// Fraction of distinct molecules that are not in the set of known molecules. `None` if there
    /// is no such set.
    pub novelty: Option<f64>,
    /// Mean reward of all strings.
    pub reward: f64,
    /// Standard error of [`Self::reward`].
    pub reward_error: f64,
    /// Mean reward of the valid molecules.
    pub reward_valid: f64,
    /// Mean QED of the valid molecules.
    pub qed: f64,
    /// Mean SA score of the valid molecules, from 1 (easy) to 10 (hard).
    pub sa: f64,
}

impl MoleculeSummary {
    /// Computes the metrics of `smiles`, given the `outcomes` of a reward.
    ///
    /// `known` must contain canonical SMILES. Fractions and means of an empty set are NaN.
    ///
    /// # Panics
    /// Panics if `smiles` and `outcomes` have different lengths.
    pub fn of(smiles: &[String], outcomes: &[Outcome], known: Option<&BTreeSet<String>>) -> Self {
        assert_eq!(smiles.len(), outcomes.len(), "expected one outcome per string");
        let molecules: Vec<Option<Properties>> =
            smiles.par_iter().map(|smiles| Properties::of(smiles)).collect();
        let valid: Vec<&Properties> = molecules.iter().flatten().collect();
        let distinct: BTreeSet<&String> =
            valid.iter().map(|properties| &properties.canonical).collect();
        let scaffolds: BTreeSet<String> = distinct
            .par_iter()
            .filter_map(|canonical| Molecule::parse(canonical).ok()?.scaffold().ok())
            .collect();
        let novelty = known.map(|known| {
            let new = distinct.iter().filter(|canonical| !known.contains(**canonical)).count();
            new as f64 / distinct.len() as f64
        });
        let rewards: Vec<f64> = outcomes.iter().filter_map(Outcome::total).collect();
        let of_valid = molecules.iter().zip(outcomes).filter(|(molecule, _)| molecule.is_some());
        let rewards_of_valid: Vec<f64> =
            of_valid.filter_map(|(_, outcome)| outcome.total()).collect();
        Self {
            samples: smiles.len(),
            validity: valid.len() as f64 / smiles.len() as f64,
            uniqueness: distinct.len() as f64 / valid.len() as f64,
            scaffold_diversity: scaffolds.len() as f64 / distinct.len() as f64,
            novelty,
            reward: mean(&rewards),
            reward_error: standard_error(&rewards),
            reward_valid: mean(&rewards_of_valid),
            qed: mean(&valid.iter().map(|molecule| molecule.qed).collect::<Vec<f64>>()),
            sa: mean(&valid.iter().filter_map(|molecule| molecule.sa).collect::<Vec<f64>>()),
        }
    }
}

/// Properties of a valid molecule.
struct Properties {
    canonical: String,
    qed: f64,
    sa: Option<f64>,
}

impl Properties {
    fn of(smiles: &str) -> Option<Self> {
        let molecule = Molecule::parse(smiles).ok()?;
        let (qed, sa) = (molecule.qed().ok()?, molecule.sa().ok());
        Some(Self { qed, sa, canonical: molecule.into_canonical() })
    }
}

/// Returns the canonical SMILES of each string, or `None` if it is not a valid molecule.
pub fn canonical_forms(smiles: &[String]) -> Vec<Option<String>> {
    let canonical = |smiles: &String| Some(Molecule::parse(smiles).ok()?.into_canonical());
    smiles.par_iter().map(canonical).collect()
}

/// Returns the canonical SMILES of all valid molecules in a file.
pub(crate) fn known_molecules(path: &Path) -> Result<BTreeSet<String>, DataError> {
    let reader = MoleculeReader::open(path, &ReadOptions::default())?;
    let mut known = BTreeSet::new();
    for block in blocks(reader, BLOCK) {
        let smiles: Vec<String> = block?.into_iter().map(|record| record.smiles).collect();
        known.extend(canonical_forms(&smiles).into_iter().flatten());
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogpWindow, MoleculeReward};
    use grpo_rewards::{Reward, RewardInput};

    #[test]
    fn counted_by_hand() {
        let window = LogpWindow { centre: 0.0, half_width: 1.0 };
        let reward = MoleculeReward { qed: 0.5, sa: 0.5, logp: 0.0, window };
        let smiles: Vec<String> =
            ["CCO", "OCC", "c1ccccc1", "C(", "CCN"].iter().map(|s| (*s).to_owned()).collect();
        let samples: Vec<RewardInput> = smiles.iter().map(|text| text.as_str().into()).collect();
        let outcomes = reward.score(&samples);
        let known = BTreeSet::from(["c1ccccc1".to_owned(), "CCCC".to_owned()]);
        let summary = MoleculeSummary::of(&smiles, &outcomes, Some(&known));
        assert_eq!(summary.samples, 5);
        assert_eq!(summary.validity, 4.0 / 5.0);
        assert_eq!(summary.uniqueness, 3.0 / 4.0);
        // The empty scaffold and benzene.
        assert_eq!(summary.scaffold_diversity, 2.0 / 3.0);
        assert_eq!(summary.novelty, Some(2.0 / 3.0));
        let totals: Vec<f64> = outcomes.iter().map(|o| o.total().unwrap()).collect();
        let sum: f64 = totals.iter().sum();
        assert!((summary.reward - sum / 5.0).abs() < 1e-12);
        assert!((summary.reward_valid - sum / 4.0).abs() < 1e-12);
        let centre = sum / 5.0;
        let squares: f64 = totals.iter().map(|t| (t - centre) * (t - centre)).sum();
        assert!((summary.reward_error - (squares / 20.0).sqrt()).abs() < 1e-12);
        let qed: f64 = outcomes.iter().filter_map(|o| o.part("qed")).sum();
        assert!((summary.qed - qed / 4.0).abs() < 1e-12);
    }
}

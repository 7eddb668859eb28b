//! Validity, uniqueness, novelty and mean properties of generated molecules, as defined in MOSES
//! (Polykovskiy et al. 2020).

use std::collections::BTreeSet;
use std::path::Path;

use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::statistics::{mean, standard_error};
use grpo_data::{DataError, short_text};
use grpo_rewards::Outcome;
use rayon::prelude::*;

use crate::identity::identity;
use crate::reader::{blocks, record_fault};
use crate::{MoleculeReader, MoleculeRecord, ReadOptions};

/// Number of known molecules processed in parallel.
const BLOCK: usize = 4096;

/// Metrics for a set of generated strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoleculeSummary {
    /// Number of strings.
    pub samples: usize,
    /// Fraction of strings that are valid molecules.
    pub validity: f64,
    /// Fraction of valid molecules that are distinct. Spellings, isotopes, atom maps and small
    /// fragments do not make a molecule distinct.
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
    /// Fractions and means of an empty set are NaN.
    ///
    /// # Panics
    /// Panics if `smiles` and `outcomes` have different lengths.
    pub fn of(smiles: &[String], outcomes: &[Outcome], known: Option<&KnownMolecules>) -> Self {
        assert_eq!(smiles.len(), outcomes.len(), "expected one outcome per string");
        let molecules: Vec<Option<Properties>> =
            smiles.par_iter().map(|smiles| Properties::of(smiles)).collect();
        let valid: Vec<&Properties> = molecules.iter().flatten().collect();
        let distinct: BTreeSet<&String> =
            valid.iter().map(|properties| &properties.identity).collect();
        let scaffolds: BTreeSet<String> = distinct
            .par_iter()
            .filter_map(|identity| Molecule::parse(identity).ok()?.scaffold().ok())
            .collect();
        let novelty = known.map(|known| {
            let new = distinct.iter().filter(|identity| !known.contains(identity)).count();
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
    identity: String,
    qed: f64,
    sa: Option<f64>,
}

impl Properties {
    fn of(smiles: &str) -> Option<Self> {
        let molecule = Molecule::parse(smiles).ok()?;
        let (qed, sa) = (molecule.qed().ok()?, molecule.sa().ok());
        Some(Self { qed, sa, identity: identity(&molecule).ok()? })
    }
}

/// The molecules of a file, to recognize them in any spelling.
#[derive(Clone, Debug, Default)]
pub struct KnownMolecules {
    identities: BTreeSet<String>,
    /// Number of rows that are not molecules, or not supported.
    pub left_out: usize,
    /// The first of them, with the reason.
    pub first_left_out: Option<(MoleculeRecord, InvalidSmiles)>,
    /// The first row with text after the SMILES, such as a CXSMILES extension, with the reason.
    pub first_with_text: Option<(MoleculeRecord, InvalidSmiles)>,
}

impl KnownMolecules {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let reader = MoleculeReader::open(path, &ReadOptions::default())?;
        let mut known = Self::default();
        for block in blocks(reader, BLOCK) {
            let block = block?;
            let identities: Vec<Result<String, InvalidSmiles>> = block
                .par_iter()
                .map(|record| Molecule::parse(&record.smiles).and_then(|it| identity(&it)))
                .collect();
            for (record, identity) in block.into_iter().zip(identities) {
                match identity {
                    Ok(identity) => drop(known.identities.insert(identity)),
                    Err(reason) => {
                        known.left_out += 1;
                        if record.has_text_after() {
                            let first = || (record.clone(), reason.clone());
                            known.first_with_text.get_or_insert_with(first);
                        }
                        known.first_left_out.get_or_insert((record, reason));
                    }
                }
            }
        }
        Ok(known)
    }

    /// Adds a molecule.
    ///
    /// # Errors
    /// Returns an error if the toolkit cannot write the molecule.
    pub fn insert(&mut self, molecule: &Molecule) -> Result<(), InvalidSmiles> {
        self.identities.insert(identity(molecule)?);
        Ok(())
    }

    /// Returns whether there is no molecule.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Returns whether the molecule with this identity is known.
    pub(crate) fn contains(&self, identity: &str) -> bool {
        self.identities.contains(identity)
    }

    /// Describes the rows that were left out, or returns `None` if there are none.
    pub fn fault(&self) -> Option<String> {
        let (record, reason) = self.first_left_out.as_ref()?;
        let rows = if self.left_out == 1 { "row is" } else { "rows are" };
        Some(format!(
            "{} {rows} invalid or not supported; the first is `{}` in line {}: {}",
            self.left_out,
            short_text(&record.smiles),
            record.line,
            record_fault(reason)
        ))
    }
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
        let mut known = KnownMolecules::default();
        for smiles in ["C1=CC=CC=C1", "CCCC"] {
            known.insert(&Molecule::parse(smiles).unwrap()).unwrap();
        }
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

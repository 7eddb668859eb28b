//! GuacaMol's measures, which ignore stereochemistry and isotopes.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counts::{distinct_fraction, novel_fraction};
use super::error::MeasureError;
use super::record::{Flat, Record};
use super::similarity::{OnBits, nearest_in_set};
use super::values::{continuous_kl, discrete_kl};

/// GuacaMol's measures of generated molecules.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guacamol {
    /// Fraction of the valid molecules that are distinct.
    pub uniqueness: f64,
    /// Fraction of the distinct molecules that are not in the training set.
    pub novelty: f64,
    /// Mean of exp(−KL) over all divergences, from 0 to 1. `None` if a divergence does not exist.
    pub kl_score: Option<f64>,
    /// Kullback–Leibler divergences of the generated molecules from the training set.
    pub kl: Option<Divergences>,
}

/// Kullback–Leibler divergences of the distribution of each descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Divergences {
    /// Complexity of the molecular graph.
    pub bertz_ct: f64,
    /// Octanol–water partition coefficient.
    pub logp: f64,
    /// Molecular weight.
    pub mw: f64,
    /// Topological polar surface area.
    pub tpsa: f64,
    /// Hydrogen-bond acceptors.
    pub hba: f64,
    /// Hydrogen-bond donors.
    pub hbd: f64,
    /// Rotatable bonds.
    pub rotatable: f64,
    /// Aliphatic rings.
    pub aliphatic_rings: f64,
    /// Aromatic rings.
    pub aromatic_rings: f64,
    /// Similarity of a molecule to its nearest neighbor in the same set.
    pub internal_similarity: f64,
}

/// Number of continuous descriptors in [`Flat::NAMES`].
const CONTINUOUS: usize = 4;

impl Divergences {
    /// Computes the divergences of `generated` from `training`. Duplicates are ignored.
    ///
    /// # Errors
    /// Returns the name of the first descriptor whose divergence does not exist, with the reason.
    pub fn new(
        generated: &[Record],
        training: &[Record],
    ) -> Result<Self, (&'static str, MeasureError)> {
        let (sampled, baseline) = (distinct(generated), distinct(training));
        let mut found = [0.0; Flat::NAMES.len()];
        for (i, name) in Flat::NAMES.into_iter().enumerate() {
            let values = |set: &[&Flat]| -> Vec<f64> {
                set.iter().map(|molecule| molecule.descriptors[i]).collect()
            };
            let divergence = if i < CONTINUOUS { continuous_kl } else { discrete_kl };
            found[i] =
                divergence(&values(&baseline), &values(&sampled)).map_err(|error| (name, error))?;
        }
        let nearest = |set: &[&Flat]| {
            nearest_in_set(&set.iter().map(|molecule| &molecule.bits).collect::<Vec<&OnBits>>())
        };
        let internal_similarity = continuous_kl(&nearest(&baseline), &nearest(&sampled))
            .map_err(|error| ("internal_similarity", error))?;
        let [bertz_ct, logp, mw, tpsa, hba, hbd, rotatable, aliphatic_rings, aromatic_rings] =
            found;
        Ok(Self {
            bertz_ct,
            logp,
            mw,
            tpsa,
            hba,
            hbd,
            rotatable,
            aliphatic_rings,
            aromatic_rings,
            internal_similarity,
        })
    }

    /// Returns GuacaMol's score: the mean of exp(−KL), from 0 to 1.
    pub fn score(&self) -> f64 {
        let all = [
            self.bertz_ct,
            self.logp,
            self.mw,
            self.tpsa,
            self.hba,
            self.hbd,
            self.rotatable,
            self.aliphatic_rings,
            self.aromatic_rings,
            self.internal_similarity,
        ];
        all.iter().map(|divergence| (-divergence).exp()).sum::<f64>() / all.len() as f64
    }
}

impl Guacamol {
    /// Computes the measures, and the reason if there are no divergences.
    pub(super) fn new(
        generated: &[Record],
        training: &[Record],
    ) -> Result<(Self, Option<String>), MeasureError> {
        let known: BTreeSet<&str> = flat(training).map(|flat| flat.canonical.as_str()).collect();
        let canonical = || flat(generated).map(|flat| flat.canonical.as_str());
        let (uniqueness, novelty) =
            (distinct_fraction(canonical())?, novel_fraction(canonical(), &known)?);
        let (kl, reason) = match Divergences::new(generated, training) {
            Ok(kl) => (Some(kl), None),
            Err((descriptor, error)) => (None, Some(format!("{descriptor}: {error}"))),
        };
        let kl_score = kl.map(|kl| kl.score());
        Ok((Self { uniqueness, novelty, kl_score, kl }, reason))
    }
}

fn flat(records: &[Record]) -> impl Iterator<Item = &Flat> {
    records.iter().filter_map(|record| record.flat.as_ref())
}

/// Returns the distinct molecules, ordered by SMILES.
fn distinct(records: &[Record]) -> Vec<&Flat> {
    let mut molecules: Vec<&Flat> = flat(records).collect();
    molecules.sort_by(|a, b| a.canonical.cmp(&b.canonical));
    molecules.dedup_by(|a, b| a.canonical == b.canonical);
    molecules
}

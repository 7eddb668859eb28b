//! The synthetic accessibility (SA) score.
//!
//! Ertl and Schuffenhauer, "Estimation of synthetic accessibility score of drug-like molecules
//! based on molecular complexity and fragment contributions", Journal of Cheminformatics 1:8
//! (2009). This is the variant in `Contrib/SA_Score/sascorer.py` of RDKit, which has a different
//! macrocycle term and an additional symmetry term.

use crate::sa_table;

/// The quantities that determine the score.
#[derive(Debug, Clone, PartialEq)]
pub struct Complexity {
    /// Number of atoms in RDKit's representation. Hydrogen atoms count only if they are explicit
    /// there.
    pub atoms: usize,
    /// Number of assigned and unassigned stereocenters
    /// (`FindMolChiralCenters(includeUnassigned=True)`).
    pub stereocenters: usize,
    /// Number of spiro atoms (`CalcNumSpiroAtoms`).
    pub spiro_atoms: usize,
    /// Number of bridgehead atoms (`CalcNumBridgeheadAtoms`).
    pub bridgeheads: usize,
    /// Whether a ring has more than eight atoms.
    pub macrocycle: bool,
    /// Distinct identifiers of the Morgan environments up to radius 2, with their counts.
    pub fragments: Vec<(u32, u32)>,
}

/// Computes the synthetic accessibility score, from 1 (easy) to 10 (hard). NaN if there are no
/// fragments.
///
/// The score does not always increase with the difficulty: RDKit's smoothing maps values from 8 to 9
/// to values from 1 to 8. See [`Molecule::monotonic_sa`](crate::Molecule::monotonic_sa).
pub fn sa_score(complexity: &Complexity) -> f64 {
    let score = unsmoothed(complexity);
    let score = if score > LARGEST_UNSMOOTHED { smoothed(score) } else { score };
    score.clamp(1.0, 10.0)
}

/// Computes the score such that it never decreases when the molecule gets harder.
pub(crate) fn monotonic(complexity: &Complexity) -> f64 {
    let score = unsmoothed(complexity);
    let is_smoothed = score > LARGEST_UNSMOOTHED;
    let score = if is_smoothed { smoothed(score).max(LARGEST_UNSMOOTHED) } else { score };
    score.clamp(1.0, 10.0)
}

const LARGEST_UNSMOOTHED: f64 = 8.0;

fn smoothed(score: f64) -> f64 {
    LARGEST_UNSMOOTHED + (score - LARGEST_UNSMOOTHED).ln()
}

fn unsmoothed(complexity: &Complexity) -> f64 {
    let raw =
        fragment_score(complexity) - complexity_penalty(complexity) + symmetry_bonus(complexity);
    // Raw values from -4 to 2.5 are inverted and mapped to 1..10.
    11.0 - (raw + 5.0) / 6.5 * 9.0
}

/// Returns the mean contribution of all fragments. Unknown fragments contribute -4.
fn fragment_score(complexity: &Complexity) -> f64 {
    let mut sum = 0.0;
    let mut count = 0.0;
    for &(identifier, times) in &complexity.fragments {
        sum += sa_table::contribution(identifier).unwrap_or(-4.0) * f64::from(times);
        count += f64::from(times);
    }
    sum / count
}

fn complexity_penalty(complexity: &Complexity) -> f64 {
    let atoms = complexity.atoms as f64;
    let log_count = |count: usize| (count as f64 + 1.0).log10();
    let size = atoms.powf(1.005) - atoms;
    let macrocycle = if complexity.macrocycle { 2f64.log10() } else { 0.0 };
    size + log_count(complexity.stereocenters)
        + log_count(complexity.spiro_atoms)
        + log_count(complexity.bridgeheads)
        + macrocycle
}

/// Symmetric molecules have repeated fragments and are easier to synthesize.
fn symmetry_bonus(complexity: &Complexity) -> f64 {
    let (atoms, distinct) = (complexity.atoms as f64, complexity.fragments.len() as f64);
    if atoms > distinct { (atoms / distinct).ln() * 0.5 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference implementation of the score as a single expression.
    fn oracle(c: &Complexity) -> f64 {
        let mut sum = 0.0;
        let mut count = 0.0;
        for &(identifier, times) in &c.fragments {
            for _ in 0..times {
                sum += sa_table::contribution(identifier).unwrap_or(-4.0);
                count += 1.0;
            }
        }
        let atoms = c.atoms as f64;
        let mut raw = sum / count;
        raw -= atoms.powf(1.005) - atoms;
        for feature in [c.stereocenters, c.spiro_atoms, c.bridgeheads, usize::from(c.macrocycle)] {
            raw -= (1.0 + feature as f64).ln() / 10f64.ln();
        }
        if c.atoms > c.fragments.len() {
            raw += 0.5 * (atoms / c.fragments.len() as f64).ln();
        }
        let score = 11.0 - (raw - -4.0 + 1.0) / (2.5 - -4.0) * 9.0;
        let score = if score > 8.0 { 8.0 + (score + 1.0 - 9.0).ln() } else { score };
        score.clamp(1.0, 10.0)
    }

    fn plain(atoms: usize, fragments: Vec<(u32, u32)>) -> Complexity {
        Complexity {
            atoms,
            stereocenters: 0,
            spiro_atoms: 0,
            bridgeheads: 0,
            macrocycle: false,
            fragments,
        }
    }

    #[test]
    fn equals_the_oracle() {
        // 2246728737 is a methyl carbon, and 3218693969 is an aromatic CH. 7 is not in the table.
        let known = vec![(2_246_728_737, 3), (3_218_693_969, 5), (7, 1)];
        for (atoms, spiro_atoms, bridgeheads) in [(9, 0, 0), (40, 1, 2), (2, 3, 0), (200, 0, 7)] {
            for (stereocenters, macrocycle) in [(0, false), (4, true), (30, false)] {
                let complexity = Complexity {
                    stereocenters,
                    spiro_atoms,
                    bridgeheads,
                    macrocycle,
                    ..plain(atoms, known.clone())
                };
                let (ours, expected) = (sa_score(&complexity), oracle(&complexity));
                assert!((ours - expected).abs() < 1e-12, "{complexity:?}: {ours} {expected}");
            }
        }
    }

    #[test]
    fn a_harder_molecule_never_scores_better() {
        let mut last = 1.0;
        for bridgeheads in (0..4_000_000).step_by(997) {
            let harder = Complexity { bridgeheads, ..plain(9, vec![(7, 9)]) };
            let score = monotonic(&harder);
            assert!(score >= last, "{bridgeheads}: {score} < {last}");
            let rdkit = sa_score(&harder);
            assert!(score == rdkit || (score == 8.0 && rdkit < 8.0), "{score} {rdkit}");
            last = score;
        }
        assert!(last > 9.0, "{last}");
        // Many molecules are just above 8, where RDKit's score turns round.
        let turned = Complexity { stereocenters: 0, ..plain(3, vec![(7, 3)]) };
        assert!((8.0..=10.0).contains(&monotonic(&turned)));
        assert!(monotonic(&plain(0, Vec::new())).is_nan());
    }

    #[test]
    fn stays_between_1_and_10() {
        assert_eq!(sa_score(&plain(100_000, vec![(7, 1)])), 10.0);
        let easiest = plain(1_000, vec![(2_246_728_737, 1_000)]);
        assert!(sa_score(&easiest) >= 1.0);
        assert!(sa_score(&plain(0, Vec::new())).is_nan());
    }
}

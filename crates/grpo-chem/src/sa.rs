//! The synthetic accessibility score.
//!
//! Ertl and Schuffenhauer, "Estimation of synthetic accessibility score of drug-like molecules based on molecular
//! complexity and fragment contributions", Journal of Cheminformatics 1:8 (2009), in the form of RDKit's
//! `Contrib/SA_Score/sascorer.py`, which changes the macrocycle term and adds one for symmetry.

use crate::sa_table;

/// Inputs of the score.
#[derive(Debug, Clone, PartialEq)]
pub struct Complexity {
    /// Atoms as RDKit represents the molecule: hydrogens count only if RDKit keeps them.
    pub atoms: usize,
    /// Stereocentres, assigned or not (`FindMolChiralCenters(includeUnassigned=True)`).
    pub stereocenters: usize,
    /// Spiro atoms (`CalcNumSpiroAtoms`).
    pub spiro_atoms: usize,
    /// Bridgehead atoms (`CalcNumBridgeheadAtoms`).
    pub bridgeheads: usize,
    /// Whether any ring has more than eight atoms.
    pub macrocycle: bool,
    /// Morgan environments up to radius 2: distinct identifiers and counts.
    pub fragments: Vec<(u32, u32)>,
}

/// Returns the synthetic accessibility, 1 (easy) to 10 (hard); NaN without fragments.
pub fn sa_score(complexity: &Complexity) -> f64 {
    let raw =
        fragment_score(complexity) - complexity_penalty(complexity) + symmetry_bonus(complexity);
    // Raw values from -4 to 2.5 are inverted and stretched to 1..10, with the hard end smoothed.
    let score = 11.0 - (raw + 5.0) / 6.5 * 9.0;
    let score = if score > 8.0 { 8.0 + (score - 8.0).ln() } else { score };
    score.clamp(1.0, 10.0)
}

/// Returns the mean contribution of the fragments; an unknown one counts as -4.
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

/// Symmetric molecules repeat their fragments and are easier to make.
fn symmetry_bonus(complexity: &Complexity) -> f64 {
    let (atoms, distinct) = (complexity.atoms as f64, complexity.fragments.len() as f64);
    if atoms > distinct { (atoms / distinct).ln() * 0.5 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole score as one expression, without the helpers above.
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
        // 2246728737 is a methyl carbon, 3218693969 an aromatic CH; 7 is in no table.
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
    fn stays_between_1_and_10() {
        assert_eq!(sa_score(&plain(100_000, vec![(7, 1)])), 10.0);
        let easiest = plain(1_000, vec![(2_246_728_737, 1_000)]);
        assert!(sa_score(&easiest) >= 1.0);
        assert!(sa_score(&plain(0, Vec::new())).is_nan());
    }
}

//! Two-dimensional pharmacophores.
//!
//! Gobbi, Poppinger, "Genetic optimization of combinatorial libraries", Biotechnology and
//! Bioengineering 61 (1998) 47–54, as implemented in RDKit's `Gobbi_Pharm2D`.

use std::sync::LazyLock;

use chematic::core::Molecule as Graph;

use crate::descriptor::distances;
use crate::error::InvalidSmiles;
use crate::fingerprint::Counts;
use crate::query::AtomFeatures;

/// Number of kinds of features.
const FEATURES: usize = 8;

/// Number of distance bins: 2, 3, 4, 5, 6, 7 and at least 8 bonds.
const BINS: usize = 7;

/// The distances that have a bin.
const DISTANCES: std::ops::Range<usize> = 2..100;

/// Number of pairs of features without order, each with a distance.
const PAIRS: usize = FEATURES * (FEATURES + 1) / 2 * BINS;

/// Number of triples of features without order, each with three distances.
const TRIPLES: usize = FEATURES * (FEATURES + 1) * (FEATURES + 2) / 6 * BINS.pow(3);

/// Returns the set of all pairs and triples of features with the distances between them. `view`
/// must use RDKit's aromaticity.
pub(super) fn pharmacophores(view: &Graph) -> Result<Counts, InvalidSmiles> {
    /// Hydrophobic, donor, acceptor, aromatic attachment, aliphatic attachment, unusual, basic and
    /// acidic atoms.
    static PATTERNS: LazyLock<AtomFeatures> =
        LazyLock::new(|| AtomFeatures::new(include_str!("../../data/gobbi_features.smarts")));
    let features = PATTERNS.atoms(view)?;
    let points: Vec<(usize, usize)> = features
        .iter()
        .enumerate()
        .flat_map(|(feature, atoms)| atoms.iter().map(move |atom| (feature, *atom)))
        .collect();
    let bins = bins(view, &points);

    let mut is_present = vec![false; PAIRS + TRIPLES];
    for (k, (third, _)) in points.iter().enumerate() {
        for (j, (second, _)) in points.iter().enumerate().take(k) {
            let Some(between) = bins[k][j] else { continue };
            is_present[pair(*second, *third) * BINS + between] = true;
            for (i, (first, _)) in points.iter().enumerate().take(j) {
                if let (Some(to_second), Some(to_third)) = (bins[j][i], bins[k][i]) {
                    let kinds = [*first, *second, *third];
                    let distances = [to_second, to_third, between];
                    is_present[PAIRS + triple(kinds, distances)] = true;
                }
            }
        }
    }
    let present = is_present.iter().enumerate().filter(|(_, is_present)| **is_present);
    Ok(Counts::new(present.map(|(bit, _)| (bit as u32, 1)).collect()))
}

/// Returns the bins of the distances between all points, or `None` for atoms that are bonded or not
/// connected.
fn bins(view: &Graph, points: &[(usize, usize)]) -> Vec<Vec<Option<usize>>> {
    let bin = |distance: usize| {
        DISTANCES.contains(&distance).then(|| (distance - DISTANCES.start).min(BINS - 1))
    };
    let from = |(_, atom): &(usize, usize)| -> Vec<Option<usize>> {
        let distances = distances(view, *atom);
        points.iter().map(|(_, other)| bin(distances[*other])).collect()
    };
    points.iter().map(from).collect()
}

/// Returns the index of a pair with `first` ≤ `second`.
fn pair(first: usize, second: usize) -> usize {
    second * (second + 1) / 2 + first
}

/// Returns the index of a triple of features in ascending order with the distances 1–2, 1–3 and
/// 2–3. The order of equal features is defined by their distances.
fn triple(kinds: [usize; 3], mut distances: [usize; 3]) -> usize {
    let [first, second, third] = kinds;
    match (first == second, second == third) {
        (true, true) => distances.sort_unstable(),
        (true, false) => distances[1..].sort_unstable(),
        (false, true) => distances[..2].sort_unstable(),
        (false, false) => {}
    }
    let features = third * (third + 1) * (third + 2) / 6 + pair(first, second);
    distances.into_iter().fold(features, |index, distance| index * BINS + distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_distinct() {
        let mut pairs = vec![0; PAIRS / BINS];
        let mut triples = vec![0; TRIPLES];
        for third in 0..FEATURES {
            for second in 0..=third {
                pairs[pair(second, third)] += 1;
                for first in 0..=second {
                    for distances in 0..BINS.pow(3) {
                        let distances = [distances / 49, distances / 7 % 7, distances % 7];
                        triples[triple([first, second, third], distances)] += 1;
                    }
                }
            }
        }
        assert_eq!(pairs, vec![1; PAIRS / BINS]);
        // Equal features share the index of up to six orders of their distances.
        assert_eq!(triples.iter().sum::<usize>(), TRIPLES);
        assert_eq!(triples[triple([0, 1, 2], [6, 0, 3])], 1);
        assert_eq!(triples[triple([0, 0, 2], [3, 6, 0])], 2);
        assert_eq!(triples[triple([0, 2, 2], [6, 3, 0])], 2);
        assert_eq!(triples[triple([2, 2, 2], [6, 3, 0])], 6);
        assert_ne!(triple([0, 0, 2], [3, 6, 0]), triple([0, 0, 2], [6, 3, 0]));
    }
}

//! Morgan fingerprints and their similarity.

use std::cmp::Ordering;

use chematic::fp::{
    RdkitMorganConfig, RdkitMorganFpSize, RdkitMorganRadius, rdkit_morgan_bitvec,
    rdkit_morgan_fingerprint,
};

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::Molecule;

/// The definition of a Morgan fingerprint, based on connectivity and without stereochemistry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Morgan {
    /// A set of 2048 bits, like `GetFingerprint` of RDKit's
    /// `GetMorganGenerator(radius, fpSize=2048)`.
    Bits(MorganRadius),
    /// How often each environment occurs, without folding, like `GetSparseCountFingerprint` of
    /// RDKit's `GetMorganGenerator(radius)`. This is the fingerprint of REINVENT's
    /// `TanimotoSimilarity` with `use_counts = true`.
    Counts(MorganRadius),
}

/// The number of bonds from the central atom that are part of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MorganRadius {
    /// ECFP4.
    Two,
    /// ECFP6.
    Three,
}

/// A Morgan fingerprint of a molecule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    definition: Morgan,
    /// Pairs of environment (or bit) and count, ordered by environment.
    counts: Vec<(u32, u32)>,
    /// Sum of all counts.
    total: u64,
}

impl Molecule {
    /// Computes a Morgan fingerprint.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the toolkit cannot compute the environments, and
    /// [`InvalidSmiles::ToolkitPanic`] if the toolkit panics. Neither has been observed for organic
    /// molecules.
    pub fn morgan(&self, definition: Morgan) -> Result<Fingerprint, InvalidSmiles> {
        let (Morgan::Bits(radius) | Morgan::Counts(radius)) = definition;
        let config = RdkitMorganConfig {
            radius: match radius {
                MorganRadius::Two => RdkitMorganRadius::R2,
                MorganRadius::Three => RdkitMorganRadius::R3,
            },
            fp_size: RdkitMorganFpSize::B2048,
            include_chirality: false,
        };
        let counts = guarded(|| match definition {
            Morgan::Bits(_) => rdkit_morgan_bitvec(self.model(), &config).map(|bits| {
                (0..bits.bit_width())
                    .filter(|bit| bits.get(*bit))
                    .map(|bit| (bit as u32, 1))
                    .collect()
            }),
            Morgan::Counts(_) => rdkit_morgan_fingerprint(self.model(), &config).map(|found| {
                let mut counts: Vec<(u32, u32)> = found.sparse_counts.into_iter().collect();
                counts.sort_unstable();
                counts
            }),
        })?
        .map_err(|error| InvalidSmiles::Unsupported { detail: format!("no fragments: {error}") })?;
        Ok(Fingerprint::new(definition, counts))
    }
}

impl Fingerprint {
    fn new(definition: Morgan, counts: Vec<(u32, u32)>) -> Self {
        let total = counts.iter().map(|(_, count)| u64::from(*count)).sum();
        Self { definition, counts, total }
    }

    /// Returns the Tanimoto similarity, from 0 to 1, defined as in RDKit's `TanimotoSimilarity`:
    /// the sum of the smaller counts, divided by the sum of the larger ones.
    ///
    /// # Panics
    /// Panics if the fingerprints have different definitions.
    pub fn tanimoto(&self, other: &Self) -> f64 {
        assert_eq!(self.definition, other.definition, "fingerprints with different definitions");
        let (mut i, mut j, mut shared) = (0, 0, 0_u64);
        while let (Some((left, n)), Some((right, m))) = (self.counts.get(i), other.counts.get(j)) {
            match left.cmp(right) {
                Ordering::Less => i += 1,
                Ordering::Greater => j += 1,
                Ordering::Equal => {
                    shared += u64::from(*n.min(m));
                    i += 1;
                    j += 1;
                }
            }
        }
        let all = self.total + other.total - shared;
        if all == 0 { 0.0 } else { shared as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_the_share_of_common_counts() {
        let of = |counts: &[(u32, u32)]| {
            Fingerprint::new(Morgan::Counts(MorganRadius::Two), counts.to_vec())
        };
        let (a, b) = (of(&[(1, 3), (5, 1), (9, 2)]), of(&[(1, 1), (4, 2), (9, 4)]));
        // min: 1 + 2; max: 3 + 1 + 2 + 4.
        assert_eq!(a.tanimoto(&b), 3.0 / 10.0);
        assert_eq!(b.tanimoto(&a), a.tanimoto(&b));
        assert_eq!(a.tanimoto(&a), 1.0);
        assert_eq!(of(&[]).tanimoto(&a), 0.0);
    }
}

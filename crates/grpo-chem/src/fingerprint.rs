//! Morgan fingerprints and their similarity.

use std::cmp::Ordering;

use chematic::fp::{
    BitVec2048, RdkitMorganConfig, RdkitMorganFpSize, RdkitMorganRadius, rdkit_morgan_bitvec,
    rdkit_morgan_fingerprint, rdkit_rdk_fp,
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
    /// Counts of environments or bits.
    counts: Counts,
}

/// How often each identifier occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pairs of identifier and count, ordered by identifier.
    counts: Vec<(u32, u32)>,
    /// Sum of all counts.
    total: u64,
}

/// A fingerprint of the paths in a molecule, with 2048 bits, like RDKit's `RDKFingerprint`.
#[derive(Clone)]
pub struct PathFingerprint(BitVec2048);

impl PathFingerprint {
    /// Returns the Tanimoto similarity, from 0 to 1.
    pub fn tanimoto(&self, other: &Self) -> f64 {
        self.0.tanimoto(&other.0)
    }
}

impl Molecule {
    /// Computes the fingerprint of branched paths with 1 to 7 bonds.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn path_fingerprint(&self) -> Result<PathFingerprint, InvalidSmiles> {
        guarded(|| PathFingerprint(rdkit_rdk_fp(self.model())))
    }

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
        Ok(Fingerprint { definition, counts: Counts::new(counts) })
    }
}

impl Fingerprint {
    /// Returns the identifiers of the environments (or the bits) in ascending order.
    pub fn environments(&self) -> impl Iterator<Item = u32> + '_ {
        self.counts.counts.iter().map(|(environment, _)| *environment)
    }

    /// Returns the Tanimoto similarity, from 0 to 1, defined as in RDKit's `TanimotoSimilarity`:
    /// the sum of the smaller counts, divided by the sum of the larger ones.
    ///
    /// # Panics
    /// Panics if the fingerprints have different definitions.
    pub fn tanimoto(&self, other: &Self) -> f64 {
        assert_eq!(self.definition, other.definition, "fingerprints with different definitions");
        self.counts.tanimoto(&other.counts)
    }
}

impl From<Fingerprint> for Counts {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.counts
    }
}

impl Counts {
    /// Creates counts from pairs of identifier and count, ordered by identifier.
    pub(crate) fn new(counts: Vec<(u32, u32)>) -> Self {
        debug_assert!(counts.is_sorted_by(|(one, _), (other, _)| one < other));
        let total = counts.iter().map(|(_, count)| u64::from(*count)).sum();
        Self { counts, total }
    }

    /// Counts identifiers.
    pub(crate) fn of(mut ids: Vec<u32>) -> Self {
        ids.sort_unstable();
        Self::new(ids.chunk_by(u32::eq).map(|same| (same[0], same.len() as u32)).collect())
    }

    /// Returns the sum of the smaller counts, divided by the sum of the larger ones. 0 if both are
    /// empty.
    pub(crate) fn tanimoto(&self, other: &Self) -> f64 {
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

    /// Computed with RDKit 2026.09: `TanimotoSimilarity` of `RDKFingerprint`.
    #[test]
    fn similarities_of_paths_are_those_of_rdkit() {
        let pairs = [
            ("c1ccccc1", "c1ccncc1", 0.228_571_428_6),
            ("O=C(Cc1ccccc1)NCc1ccccc1", "O=C(NCc1ccccc1)c1ccccc1", 0.361_774_744_0),
            ("c1cnc2[nH]ccc2c1", "c1ccc2[nH]ccc2c1", 0.334_677_419_4),
            ("c1ccc(-n2cnc3ccccc32)cc1", "c1ccc(-c2ccnnc2)cc1", 0.089_160_839_2),
            (
                "O=C(c1cc[nH]c1)N1CCN(c2ccccc2)CC1",
                "O=C(c1ccc[nH]1)N1CCN(c2ccccc2)CC1",
                0.599_353_796_4,
            ),
            ("C1CC1", "C1CCC1", 0.4),
        ];
        for (one, other, expected) in pairs {
            let of = |smiles| Molecule::parse(smiles).unwrap().path_fingerprint().unwrap();
            let found = of(one).tanimoto(&of(other));
            assert!((found - expected).abs() < 1e-9, "{one} {other}: {found}, not {expected}");
        }
    }

    #[test]
    fn similarity_is_the_share_of_common_counts() {
        let of = |counts: &[(u32, u32)]| Counts::new(counts.to_vec());
        let (a, b) = (of(&[(1, 3), (5, 1), (9, 2)]), of(&[(1, 1), (4, 2), (9, 4)]));
        // min: 1 + 2; max: 3 + 1 + 2 + 4.
        assert_eq!(a.tanimoto(&b), 3.0 / 10.0);
        assert_eq!(b.tanimoto(&a), a.tanimoto(&b));
        assert_eq!(a.tanimoto(&a), 1.0);
        assert_eq!(of(&[]).tanimoto(&a), 0.0);
        assert_eq!(of(&[]).tanimoto(&of(&[])), 0.0);
        assert_eq!(Counts::of(vec![9, 1, 5, 1, 9, 1]), a);
    }
}

//! Similarities of folded Morgan fingerprints within a set and between two sets.
//!
//! A drug-like molecule has about 45 bits out of 1024, and two of them share about ten. An inverted
//! index, which lists the molecules of each bit, only visits the shared bits. It needs a fraction of
//! the operations of comparing whole bit vectors.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::error::{MeasureError, at_least};

/// The bits of a folded fingerprint that are set, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnBits(Vec<u16>);

impl OnBits {
    /// Folds the identifiers of environments into `width` bits, like RDKit's
    /// `GetMorganFingerprintAsBitVect(molecule, radius, nBits=width)`.
    ///
    /// # Panics
    /// Panics if `width` is 0 or exceeds 65536.
    pub fn folded(environments: impl IntoIterator<Item = u32>, width: u32) -> Self {
        assert!((1..=1 << 16).contains(&width), "{width} bits, expected 1 to 65536");
        let mut bits: Vec<u16> =
            environments.into_iter().map(|environment| (environment % width) as u16).collect();
        bits.sort_unstable();
        bits.dedup();
        Self(bits)
    }

    /// Returns the Tanimoto similarity, from 0 to 1. It is 1 if both fingerprints are empty.
    pub fn tanimoto(&self, other: &Self) -> f64 {
        let (mut i, mut j, mut shared) = (0, 0, 0);
        while let (Some(left), Some(right)) = (self.0.get(i), other.0.get(j)) {
            let order = left.cmp(right);
            i += usize::from(order != Ordering::Greater);
            j += usize::from(order != Ordering::Less);
            shared += usize::from(order == Ordering::Equal);
        }
        ratio(shared, self.0.len() + other.0.len())
    }
}

/// Returns the Tanimoto similarity of fingerprints with `shared` common bits and `total` bits
/// altogether.
fn ratio(shared: usize, total: usize) -> f64 {
    if total == 0 { 1.0 } else { shared as f64 / (total - shared) as f64 }
}

/// The molecules of each bit.
struct Index {
    molecules: Vec<Vec<u32>>,
    sizes: Vec<usize>,
}

impl Index {
    fn new(fingerprints: &[&OnBits]) -> Self {
        let width = fingerprints.iter().filter_map(|bits| bits.0.last()).max();
        let mut molecules = vec![Vec::new(); width.map_or(0, |last| usize::from(*last) + 1)];
        for (molecule, bits) in fingerprints.iter().enumerate() {
            for bit in &bits.0 {
                molecules[usize::from(*bit)].push(molecule as u32);
            }
        }
        Self { molecules, sizes: fingerprints.iter().map(|bits| bits.0.len()).collect() }
    }

    /// Returns the similarities of a fingerprint to all molecules, in their order. `shared` is a
    /// buffer.
    fn similarities<'a>(
        &'a self,
        bits: &'a OnBits,
        shared: &'a mut Vec<u32>,
    ) -> impl Iterator<Item = f64> + 'a {
        shared.clear();
        shared.resize(self.sizes.len(), 0);
        for bit in &bits.0 {
            for molecule in self.molecules.get(usize::from(*bit)).into_iter().flatten() {
                shared[*molecule as usize] += 1;
            }
        }
        let similarity =
            |(shared, size): (&u32, &usize)| ratio(*shared as usize, size + bits.0.len());
        shared.iter().zip(&self.sizes).map(similarity)
    }
}

/// Number of molecules that are compared with each other or with a reference set, at most. It is the
/// size of MOSES's sets. The time of comparing all pairs of 200,000 molecules would be minutes.
pub const MOST_COMPARED: usize = 30_000;

/// Returns at most `most` evenly spaced elements.
fn evenly_spaced<T>(all: &[T], most: usize) -> impl ExactSizeIterator<Item = &T> {
    let count = all.len().min(most);
    (0..count).map(move |place| &all[place * all.len() / count])
}

/// Returns MOSES's internal diversity with p = 1 and p = 2: 1 − meanᵢ (meanⱼ Tᵢⱼᵖ)^(1/p), where Tᵢⱼ
/// is the similarity of two molecules. Pairs of a molecule with itself are included, so the
/// diversity of a single molecule is 0. Of larger sets, [`MOST_COMPARED`] evenly spaced molecules are
/// compared.
///
/// # Errors
/// Returns an error if the set is empty.
pub fn internal_diversity(fingerprints: &[&OnBits]) -> Result<[f64; 2], MeasureError> {
    at_least("generated molecules", 1, fingerprints.len())?;
    let fingerprints: Vec<&OnBits> = evenly_spaced(fingerprints, MOST_COMPARED).copied().collect();
    let count = fingerprints.len() as f64;
    let index = Index::new(&fingerprints);
    let means: Vec<[f64; 2]> = fingerprints
        .par_iter()
        .map_init(Vec::new, |shared, bits| {
            let mut sums = [0.0, 0.0];
            for similarity in index.similarities(bits, shared) {
                sums[0] += similarity;
                sums[1] += similarity * similarity;
            }
            [sums[0] / count, (sums[1] / count).sqrt()]
        })
        .collect();
    let diversity = |p: usize| 1.0 - means.iter().map(|mean| mean[p]).sum::<f64>() / count;
    Ok([diversity(0), diversity(1)])
}

/// Returns MOSES's similarity to a nearest neighbor (SNN): the mean, over the generated molecules, of
/// the largest similarity to a molecule of the reference set. Of more than [`MOST_COMPARED`] generated
/// molecules, as many are used, evenly spaced.
///
/// # Errors
/// Returns an error if a set is empty.
pub fn nearest_neighbor_similarity(
    generated: &[&OnBits],
    reference: &[&OnBits],
) -> Result<f64, MeasureError> {
    at_least("generated molecules", 1, generated.len())?;
    at_least("reference molecules", 1, reference.len())?;
    let index = Index::new(reference);
    let generated: Vec<&OnBits> = evenly_spaced(generated, MOST_COMPARED).copied().collect();
    let nearest: Vec<f64> = generated
        .par_iter()
        .map_init(Vec::new, |shared, bits| index.similarities(bits, shared).fold(0.0, f64::max))
        .collect();
    Ok(nearest.iter().sum::<f64>() / nearest.len() as f64)
}

/// Returns the largest similarity of each molecule to another molecule of the same set. It is 0 for
/// a single molecule, like in GuacaMol. Of larger sets, [`MOST_COMPARED`] evenly spaced molecules are
/// compared.
pub fn nearest_in_set(fingerprints: &[&OnBits]) -> Vec<f64> {
    let fingerprints: Vec<&OnBits> = evenly_spaced(fingerprints, MOST_COMPARED).copied().collect();
    let index = Index::new(&fingerprints);
    fingerprints
        .par_iter()
        .enumerate()
        .map_init(Vec::new, |shared, (own, bits)| {
            let all = index.similarities(bits, shared).enumerate();
            all.filter(|(other, _)| *other != own).fold(0.0, |most, (_, next)| f64::max(most, next))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fingerprints with pseudorandom bits. The last one is empty.
    fn some(count: u64, seed: u64) -> Vec<OnBits> {
        let environment = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let bits = |m: u64| OnBits::folded((0..m % 7).map(|i| environment(m * m + i) as u32), 40);
        (0..count).map(bits).chain([OnBits::folded([], 40)]).collect()
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-13, "{found}, not {expected}");
    }

    #[test]
    fn similarity_is_the_share_of_common_bits() {
        let of = |bits: &[u32]| OnBits::folded(bits.iter().copied(), 1024);
        // 1025 and 1 fold into the same bit.
        assert_eq!(of(&[1, 5, 1025]), of(&[5, 1]));
        assert_eq!(of(&[1, 5, 7]).tanimoto(&of(&[5, 7, 9, 10])), 2.0 / 5.0);
        assert_eq!(of(&[]).tanimoto(&of(&[])), 1.0);
        assert_eq!(of(&[]).tanimoto(&of(&[3])), 0.0);
    }

    #[test]
    fn measures_equal_plain_loops() {
        let (ours, theirs) = (some(23, 1), some(31, 900));
        let (a, b): (Vec<_>, Vec<_>) = (ours.iter().collect(), theirs.iter().collect());
        let (mut first, mut second, mut snn) = (0.0, 0.0, 0.0);
        for (i, x) in ours.iter().enumerate() {
            let (mut sum, mut squares, mut most, mut nearest) = (0.0, 0.0, 0.0, 0.0);
            for (j, y) in ours.iter().enumerate() {
                sum += x.tanimoto(y);
                squares += x.tanimoto(y).powi(2);
                nearest = if i == j { nearest } else { f64::max(nearest, x.tanimoto(y)) };
            }
            theirs.iter().for_each(|y| most = f64::max(most, x.tanimoto(y)));
            assert_eq!(nearest_in_set(&a)[i], nearest);
            first += sum / 24.0;
            second += (squares / 24.0).sqrt();
            snn += most / 24.0;
        }
        let [one, two] = internal_diversity(&a).unwrap();
        close(one, 1.0 - first / 24.0);
        close(two, 1.0 - second / 24.0);
        close(nearest_neighbor_similarity(&a, &b).unwrap(), snn);
        close(nearest_neighbor_similarity(&a, &a).unwrap(), 1.0);
    }

    #[test]
    fn large_sets_are_represented_by_evenly_spaced_molecules() {
        let all: Vec<usize> = (0..10).collect();
        for (most, expected) in [(3, vec![0, 3, 6]), (4, vec![0, 2, 5, 7]), (10, all.clone())] {
            assert_eq!(evenly_spaced(&all, most).copied().collect::<Vec<_>>(), expected);
        }
        assert_eq!(evenly_spaced::<u8>(&[], 3).len(), 0);
    }

    #[test]
    fn small_sets_have_values_or_errors() {
        let bits = OnBits::folded([1, 2], 1024);
        assert_eq!(internal_diversity(&[&bits]), Ok([0.0, 0.0]));
        assert_eq!(nearest_in_set(&[&bits]), [0.0]);
        assert!(nearest_in_set(&[]).is_empty());
        for error in [
            internal_diversity(&[]).unwrap_err(),
            nearest_neighbor_similarity(&[], &[&bits]).unwrap_err(),
            nearest_neighbor_similarity(&[&bits], &[]).unwrap_err(),
        ] {
            assert!(matches!(error, MeasureError::TooFew { found: 0, needed: 1, .. }), "{error}");
        }
    }
}

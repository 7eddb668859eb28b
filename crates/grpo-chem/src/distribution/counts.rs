//! Measures of sets of strings: uniqueness, novelty and the similarity of counts.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{MeasureError, at_least};

/// Counts how often each string occurs.
pub fn count<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts
}

/// Returns the cosine similarity of two sets of counts, from 0 to 1. It is MOSES's fragment
/// similarity if the strings are BRICS fragments, and its scaffold similarity if they are scaffolds.
///
/// # Errors
/// Returns an error if a set is empty.
pub fn cosine_similarity(
    generated: &BTreeMap<&str, u64>,
    reference: &BTreeMap<&str, u64>,
) -> Result<f64, MeasureError> {
    at_least("generated molecules", 1, generated.len())?;
    at_least("reference molecules", 1, reference.len())?;
    let square = |counts: &BTreeMap<&str, u64>| -> f64 {
        counts.values().map(|count| (*count as f64).powi(2)).sum()
    };
    let shared = generated
        .iter()
        .filter_map(|(text, count)| reference.get(text).map(|other| *count as f64 * *other as f64));
    let product: f64 = shared.sum();
    Ok((product / (square(generated).sqrt() * square(reference).sqrt())).min(1.0))
}

/// Returns the fraction of canonical SMILES that are distinct (uniqueness).
///
/// # Errors
/// Returns an error if there are none.
pub fn distinct_fraction<'a>(
    canonical: impl IntoIterator<Item = &'a str>,
) -> Result<f64, MeasureError> {
    let (mut distinct, mut total) = (BTreeSet::new(), 0);
    for text in canonical {
        distinct.insert(text);
        total += 1;
    }
    at_least("generated molecules", 1, total)?;
    Ok(distinct.len() as f64 / total as f64)
}

/// Returns the fraction of distinct canonical SMILES that are not in a training set (novelty).
///
/// # Errors
/// Returns an error if there are no generated molecules.
pub fn novel_fraction<'a>(
    canonical: impl IntoIterator<Item = &'a str>,
    training: &BTreeSet<&str>,
) -> Result<f64, MeasureError> {
    let distinct: BTreeSet<&str> = canonical.into_iter().collect();
    at_least("generated molecules", 1, distinct.len())?;
    let new = distinct.iter().filter(|text| !training.contains(**text)).count();
    Ok(new as f64 / distinct.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_by_hand() {
        assert_eq!(distinct_fraction(["C", "CC", "C", "CCC"]), Ok(0.75));
        let training = BTreeSet::from(["CC", "N"]);
        assert_eq!(novel_fraction(["C", "CC", "C", "CCC"], &training), Ok(2.0 / 3.0));
        let empty = MeasureError::TooFew { set: "generated molecules", found: 0, needed: 1 };
        assert_eq!(distinct_fraction([]), Err(empty.clone()));
        assert_eq!(novel_fraction([], &training), Err(empty));
    }

    #[test]
    fn similarity_by_hand() {
        let (a, b) = (count(["x", "x", "x", "y", "z"]), count(["x", "y", "y", "v"]));
        // (3·1 + 1·2) / (√11 · √6)
        let expected = 5.0 / (11_f64.sqrt() * 6_f64.sqrt());
        assert!((cosine_similarity(&a, &b).unwrap() - expected).abs() < 1e-15);
        assert!((cosine_similarity(&a, &a).unwrap() - 1.0).abs() < 1e-15);
        assert_eq!(cosine_similarity(&a, &count(["v"])), Ok(0.0));
        assert!(cosine_similarity(&a, &count([])).is_err());
        assert!(cosine_similarity(&count([]), &a).is_err());
    }
}

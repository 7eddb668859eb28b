//! Similarity of completions as defined by a task.

use rayon::prelude::*;

/// A collection of texts to compare other texts with, for example by the Tanimoto similarity of
/// molecular fingerprints.
pub trait SimilarTexts: Send + Sync {
    /// Adds texts.
    fn extend(&mut self, texts: &[&str]);

    /// Returns the similarity of a text to each text in the collection, from 0 to 1, in the order
    /// in which they were added. `None` if one of the two cannot be compared, for example because
    /// it is not a molecule.
    fn similarities(&self, text: &str) -> Vec<Option<f64>>;
}

/// Creates an empty collection.
pub type NewSimilarTexts = fn() -> Box<dyn SimilarTexts>;

/// Returns 1 minus the mean similarity of each text to the others. Texts that cannot be compared
/// are left out of the means. A text has a distance of 0 if there is nothing to compare it with.
pub(crate) fn mean_distances(new: NewSimilarTexts, texts: &[&str]) -> Vec<f64> {
    let mut all = new();
    all.extend(texts);
    let distance = |(index, text): (usize, &&str)| {
        let similarities = all.similarities(text).into_iter().enumerate();
        let others = similarities.filter(|(other, _)| *other != index);
        let (sum, count) = others
            .filter_map(|(_, similarity)| similarity)
            .fold((0.0, 0), |(sum, count), similarity| (sum + (1.0 - similarity), count + 1));
        if count == 0 { 0.0 } else { sum / f64::from(count) }
    };
    texts.par_iter().enumerate().map(distance).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Compares numbers: the similarity is 1 minus their distance, but at least 0.
    #[derive(Default)]
    pub(crate) struct Numbers(Vec<Option<f64>>);

    impl Numbers {
        pub(crate) fn empty() -> Box<dyn SimilarTexts> {
            Box::new(Self::default())
        }
    }

    impl SimilarTexts for Numbers {
        fn extend(&mut self, texts: &[&str]) {
            self.0.extend(texts.iter().map(|text| text.parse().ok()));
        }

        fn similarities(&self, text: &str) -> Vec<Option<f64>> {
            let own: Option<f64> = text.parse().ok();
            let similarity = |other: &Option<f64>| {
                Some((1.0 - (own.as_ref()? - other.as_ref()?).abs()).max(0.0))
            };
            self.0.iter().map(similarity).collect()
        }
    }

    #[test]
    fn distances_are_means_over_the_texts_that_can_be_compared() {
        let found = mean_distances(Numbers::empty, &["0", "0.25", "x", "1"]);
        assert_eq!(found, [0.625, 0.5, 0.0, 0.875]);
        assert_eq!(mean_distances(Numbers::empty, &["0", "x"]), [0.0, 0.0]);
        assert_eq!(mean_distances(Numbers::empty, &["0.5", "0.5"]), [0.0, 0.0]);
        assert_eq!(mean_distances(Numbers::empty, &["0.5"]), [0.0]);
    }
}

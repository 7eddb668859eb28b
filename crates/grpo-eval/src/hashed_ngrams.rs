//! Embeddings based on hashed words and character n-grams. No model is needed.

use crate::{EmbedError, Embedder};

/// Embeds texts as hashed counts of words and character n-grams (Weinberger et al. 2009, "Feature
/// Hashing for Large Scale Multitask Learning").
///
/// Texts are converted to lower case and split into words, i.e. runs of letters and digits. The
/// features are whole words and their n-grams of 3 to 5 characters, with `<` and `>` marking the
/// ends of a word (Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information"). A
/// hash determines the index and sign of each feature. The vector of counts is normalised to length
/// 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedNgrams {
    width: usize,
}

impl Default for HashedNgrams {
    /// Creates the embedder that measures texts if no other one is configured: 512 numbers.
    fn default() -> Self {
        Self::new(512)
    }
}

impl HashedNgrams {
    /// Creates an embedder for vectors of length `width`.
    ///
    /// # Panics
    /// Panics if `width` is zero.
    pub fn new(width: usize) -> Self {
        assert!(width > 0, "a vector is not empty");
        Self { width }
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut counts = vec![0.0_f64; self.width];
        let lower = text.to_lowercase();
        for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            self.count(&mut counts, word, WHOLE);
            let marked: Vec<char> = format!("<{word}>").chars().collect();
            for length in 3..=5 {
                for piece in marked.windows(length) {
                    self.count(&mut counts, &piece.iter().collect::<String>(), PIECE);
                }
            }
        }
        let length = counts.iter().map(|count| count * count).sum::<f64>().sqrt();
        // Empty texts have no counts, and counts may cancel out.
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        counts.into_iter().map(|count| (count * scale) as f32).collect()
    }

    fn count(&self, counts: &mut [f64], feature: &str, kind: u8) {
        let hash = fnv1a(feature.as_bytes(), kind);
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        counts[(hash % self.width as u64) as usize] += sign;
    }
}

/// Distinguishes the word `the` from the n-gram `the`.
const WHOLE: u8 = 0;
const PIECE: u8 = 1;

/// 64-bit FNV-1a followed by the SplitMix64 finalizer. The upper bits of FNV-1a alone are too weak.
fn fnv1a(bytes: &[u8], kind: u8) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in [kind].iter().chain(bytes) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Embedder for HashedNgrams {
    fn width(&self) -> usize {
        self.width
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| self.vector(text)).collect())
    }

    fn identity(&self) -> String {
        format!("hashed_ngrams:{}", self.width)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cosine;

    fn vector(text: &str) -> Vec<f32> {
        HashedNgrams::new(512).vector(text)
    }

    #[test]
    fn texts_that_share_words_are_nearer() {
        let tweet = vector("My tomatoes are red at last, the garden pays off.");
        let near = vector("Fresh tomatoes from the own garden taste best!");
        let far = vector("Which train do you take on Mondays?");
        assert!(cosine(&tweet, &near) > cosine(&tweet, &far) + 0.1);
        // `tomato` and `tomatoes` have common n-grams but no common word.
        assert!(cosine(&vector("tomato"), &vector("tomatoes")) > 0.4);
    }

    #[test]
    fn case_and_marks_do_not_count_and_nothing_is_nothing() {
        assert_eq!(vector("Red, red WINE!"), vector("red red wine"));
        assert_eq!(vector("... !"), vec![0.0; 512]);
        assert_ne!(vector("red wine"), vector("red red wine"));
    }

    proptest! {
        #[test]
        fn a_vector_has_length_one_and_is_of_its_text_alone(text in "[a-z ]{0,40}[a-z]", other in ".{0,20}") {
            let embedder = HashedNgrams::new(384);
            let both = embedder.embed(&[&other, &text]).unwrap();
            prop_assert_eq!(&both[1], &embedder.embed(&[&text]).unwrap()[0]);
            let length = cosine(&both[1], &both[1]);
            prop_assert!((length - 1.0).abs() < 1e-6, "{}", length);
        }
    }
}

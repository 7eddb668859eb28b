//! Words and lengths of texts, and the entropy of tokens.

use std::collections::{BTreeMap, HashSet};

use grpo_data::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::words;

/// The vocabulary of texts. All values are 0 if there are no words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// Number of distinct [`words`].
    pub unique_words: usize,
    /// Number of words.
    pub total_words: usize,
    /// Distinct words / words. It decreases with the amount of text, so compare equal amounts.
    pub type_token_ratio: f64,
    /// Mean number of characters per word, over all words.
    pub avg_word_length: f64,
}

impl Vocabulary {
    /// Counts the words across all texts.
    pub fn new(texts: &[&str]) -> Self {
        let all: Vec<String> = texts.iter().flat_map(|text| words(text)).collect();
        if all.is_empty() {
            return Self::default();
        }
        let characters: usize = all.iter().map(|word| word.chars().count()).sum();
        let unique_words = all.iter().collect::<HashSet<_>>().len();
        Self {
            unique_words,
            total_words: all.len(),
            type_token_ratio: unique_words as f64 / all.len() as f64,
            avg_word_length: characters as f64 / all.len() as f64,
        }
    }
}

/// The lengths of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextLengths {
    /// Characters per text.
    pub characters: Spread,
    /// [`words`] per text.
    pub words: Spread,
}

impl TextLengths {
    /// Measures all texts. All values are 0 if there are no texts.
    pub fn new(texts: &[&str]) -> Self {
        let spread = |length: &dyn Fn(&str) -> usize| {
            let lengths: Vec<f64> = texts.iter().map(|text| length(text) as f64).collect();
            Spread::new(&lengths)
        };
        Self {
            characters: spread(&|text| text.chars().count()),
            words: spread(&|text| words(text).count()),
        }
    }
}

/// Returns the entropy of the token frequencies in nats, or 0 if there are no tokens.
pub fn token_entropy(tokens: impl IntoIterator<Item = u32>) -> f64 {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    let all = counts.values().sum::<usize>() as f64;
    let shares = counts.values().map(|count| *count as f64 / all);
    shares.map(|share| -share * share.ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabulary_by_hand() {
        let found = Vocabulary::new(&["The red car.", "the RED bike!", "..."]);
        assert_eq!((found.unique_words, found.total_words), (4, 6));
        assert_eq!(found.type_token_ratio, 4.0 / 6.0);
        assert_eq!(found.avg_word_length, 19.0 / 6.0);
        assert_eq!(Vocabulary::new(&["...", ""]), Vocabulary::default());
        let lengths = TextLengths::new(&["red car", "\u{fc}ber", ""]);
        assert_eq!((lengths.characters.mean, lengths.characters.max), (11.0 / 3.0, 7.0));
        assert_eq!((lengths.words.mean, lengths.words.median), (1.0, 1.0));
        assert_eq!(TextLengths::new(&[]), TextLengths::default());
    }

    #[test]
    fn entropy_by_hand() {
        // Shares 1/2, 1/4, 1/4.
        assert!((token_entropy([7, 7, 1, 3]) - 1.5 * 2.0_f64.ln()).abs() < 1e-15);
        assert_eq!(token_entropy([]), 0.0);
        assert_eq!(token_entropy([5, 5]), 0.0);
    }
}

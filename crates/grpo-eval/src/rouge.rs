//! ROUGE: n-grams and subsequences that a text shares with a reference.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count};
use crate::porter::porter_stem;

/// Precision, recall and their harmonic mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RougeScore {
    /// Fraction of the text that is in the reference.
    pub precision: f64,
    /// Fraction of the reference that is in the text.
    pub recall: f64,
    /// Harmonic mean of both, or 0 if both are 0.
    pub f: f64,
}

/// ROUGE scores of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rouge {
    /// Words.
    pub rouge_1: RougeScore,
    /// Bigrams of words.
    pub rouge_2: RougeScore,
    /// The longest common subsequence of words.
    pub rouge_l: RougeScore,
}

impl Rouge {
    /// Compares a text with a reference (Lin 2004, "ROUGE: A Package for Automatic Evaluation of
    /// Summaries"), as `rouge-score` 0.1.2 from Google does.
    ///
    /// Unlike in other measures, words are runs of the letters a to z and digits in lower case. With
    /// `stem`, words of more than three characters are replaced by their Porter stems.
    pub fn new(reference: &str, text: &str, stem: bool) -> Self {
        let (reference, text) = (rouge_words(reference, stem), rouge_words(text, stem));
        let lengths = (reference.len(), text.len());
        Self {
            rouge_1: shared_ngrams(&reference, &text, 1),
            rouge_2: shared_ngrams(&reference, &text, 2),
            rouge_l: RougeScore::new(common_subsequence(&reference, &text), lengths),
        }
    }

    /// Compares a text with several references. Each score is the one with the highest F.
    ///
    /// # Errors
    /// Returns an error if there are no references.
    pub fn best(references: &[&str], text: &str, stem: bool) -> Result<Self, MeasureError> {
        check_count("references of ROUGE", references.len(), 1)?;
        let each = references.iter().map(|reference| Self::new(reference, text, stem));
        // Of equal scores, the first one is kept.
        let better = |a: RougeScore, b: RougeScore| if b.f > a.f { b } else { a };
        let best = each.reduce(|best, other| Self {
            rouge_1: better(best.rouge_1, other.rouge_1),
            rouge_2: better(best.rouge_2, other.rouge_2),
            rouge_l: better(best.rouge_l, other.rouge_l),
        });
        Ok(best.unwrap_or_default())
    }
}

impl RougeScore {
    /// Computes the scores from the number of shared units and the units of reference and text.
    fn new(shared: usize, (reference, text): (usize, usize)) -> Self {
        let precision = shared as f64 / text.max(1) as f64;
        let recall = shared as f64 / reference.max(1) as f64;
        let sum = precision + recall;
        let f = if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 };
        Self { precision, recall, f }
    }
}

fn rouge_words(text: &str, stem: bool) -> Vec<String> {
    let lower = text.to_lowercase();
    let runs = lower.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()));
    let runs = runs.filter(|run| !run.is_empty());
    runs.map(|run| if stem && run.len() > 3 { porter_stem(run) } else { run.to_owned() }).collect()
}

fn shared_ngrams(reference: &[String], text: &[String], n: usize) -> RougeScore {
    let mut counts: HashMap<&[String], usize> = HashMap::new();
    for gram in reference.windows(n) {
        *counts.entry(gram).or_default() += 1;
    }
    let mut shared = 0;
    for gram in text.windows(n) {
        if let Some(count) = counts.get_mut(gram).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    RougeScore::new(shared, (reference.windows(n).len(), text.windows(n).len()))
}

/// Returns the length of the longest common subsequence.
fn common_subsequence(one: &[String], other: &[String]) -> usize {
    // The lengths for all prefixes of `other`, of the current prefix of `one`.
    let mut lengths = vec![0; other.len() + 1];
    for word in one {
        let mut diagonal = 0;
        for (index, another) in other.iter().enumerate() {
            let above = lengths[index + 1];
            lengths[index + 1] =
                if word == another { diagonal + 1 } else { above.max(lengths[index]) };
            diagonal = above;
        }
    }
    lengths[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first example in the documentation of `rouge-score`: 9 and 8 words, of which 6 are shared
    /// after stemming (the twice, quick, brown, dog, jump) and 5 in order.
    #[test]
    fn rouge_by_hand() {
        let reference = "The quick brown fox jumps over the lazy dog";
        let found = Rouge::new(reference, "The quick brown dog jumps on the log.", true);
        assert_eq!(found.rouge_1, RougeScore::new(6, (9, 8)));
        assert_eq!(found.rouge_2, RougeScore::new(2, (8, 7)));
        assert_eq!(found.rouge_l, RougeScore::new(5, (9, 8)));
        assert_eq!((found.rouge_1.precision, found.rouge_1.recall), (0.75, 6.0 / 9.0));
        let stemmed = Rouge::new("Jumping cars", "jumps car", true);
        assert_eq!((stemmed.rouge_1.f, stemmed.rouge_2.f), (1.0, 1.0));
        assert_eq!(Rouge::new("Jumping cars", "jumps car", false), Rouge::default());
    }

    #[test]
    fn the_best_reference_counts() {
        let found = Rouge::best(&["a b c", "x", "c b a"], "c b a", false).unwrap();
        assert_eq!((found.rouge_1.f, found.rouge_l.f), (1.0, 1.0));
        assert!(Rouge::best(&[], "a", false).is_err());
        assert_eq!(Rouge::new("", "", true), Rouge::default());
        assert_eq!(Rouge::new("🎉", "a b", true), Rouge::default());
    }

    fn plain_subsequence(one: &[String], other: &[String]) -> usize {
        match (one, other) {
            ([], _) | (_, []) => 0,
            ([a, one_rest @ ..], [b, other_rest @ ..]) if a == b => {
                1 + plain_subsequence(one_rest, other_rest)
            }
            ([_, one_rest @ ..], [_, other_rest @ ..]) => {
                plain_subsequence(one_rest, other).max(plain_subsequence(one, other_rest))
            }
        }
    }

    proptest! {
        #[test]
        fn swapping_the_texts_swaps_precision_and_recall(
            one in "[ab ]{0,12}", other in "[abc ]{0,12}",
        ) {
            let (found, swapped) = (Rouge::new(&one, &other, true), Rouge::new(&other, &one, true));
            for (a, b) in [
                (found.rouge_1, swapped.rouge_1),
                (found.rouge_2, swapped.rouge_2),
                (found.rouge_l, swapped.rouge_l),
            ] {
                prop_assert_eq!((a.precision, a.recall), (b.recall, b.precision));
                prop_assert!((0.0..=1.0).contains(&a.f));
            }
            let [one, other] = [one, other].map(|text| rouge_words(&text, false));
            prop_assert_eq!(common_subsequence(&one, &other), plain_subsequence(&one, &other));
        }
    }
}

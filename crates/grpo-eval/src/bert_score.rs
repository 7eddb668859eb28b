//! BERTScore (Zhang, Kishore, Wu, Weinberger, Artzi, "BERTScore: evaluating text generation with
//! BERT", ICLR 2020), without weights for rare words and without rescaling.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Vectors of the tokens of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenVectors {
    /// A vector of length 1 for each token, including special tokens.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens of the text itself. Special tokens can be matched, but are not averaged over.
    pub own: Range<usize>,
}

/// How well the tokens of a text and of a reference match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BertScore {
    /// Mean over the tokens of the text of the cosine similarity to the most similar token of the
    /// reference.
    pub precision: f64,
    /// The same with text and reference exchanged.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
}

impl BertScore {
    /// Compares a text with a reference, whose vectors have the same width. A text or reference
    /// without tokens scores 0, like in the authors' program.
    pub fn new(text: &TokenVectors, reference: &TokenVectors) -> Self {
        if text.own.is_empty() || reference.own.is_empty() {
            return Self::default();
        }
        let precision = mean_of_best(text, reference);
        let recall = mean_of_best(reference, text);
        let f1 = 2.0 * precision * recall / (precision + recall);
        Self { precision, recall, f1: if f1.is_finite() { f1 } else { 0.0 } }
    }
}

fn mean_of_best(of: &TokenVectors, among: &TokenVectors) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    let best = |vector: &Vec<f32>| {
        among.vectors.iter().map(|other| dot(vector, other)).fold(f64::NEG_INFINITY, f64::max)
    };
    of.vectors[of.own.clone()].iter().map(best).sum::<f64>() / of.own.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_by_hand() {
        // Special tokens point along the third axis; the words along the first two.
        let mark = vec![0.0, 0.0, 1.0];
        let words = |words: &[[f32; 2]]| TokenVectors {
            vectors: std::iter::once(mark.clone())
                .chain(words.iter().map(|word| vec![word[0], word[1], 0.0]))
                .chain([mark.clone()])
                .collect(),
            own: 1..words.len() + 1,
        };
        let text = words(&[[1.0, 0.0], [0.6, 0.8]]);
        let reference = words(&[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]);
        let found = BertScore::new(&text, &reference);
        // The second word is most similar to the second one of the reference.
        assert!((found.precision - (1.0 + 0.8) / 2.0).abs() < 1e-7);
        // The third word of the reference is closest to a special token.
        assert!((found.recall - (1.0 + 0.8 + 0.0) / 3.0).abs() < 1e-7);
        let f1 = 2.0 * found.precision * found.recall / (found.precision + found.recall);
        assert_eq!(found.f1, f1);
        assert_eq!(BertScore::new(&text, &words(&[])), BertScore::default());
    }
}

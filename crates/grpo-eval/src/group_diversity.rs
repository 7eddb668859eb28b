//! Diversity of the completions of many prompts: within prompts, and of all texts together.

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count};
use crate::ngrams::Numbered;
use crate::semantic::mean_cosine_distance;

/// N-gram measures of a set of texts. `None` where a measure is not defined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NgramDiversity {
    /// Distinct-1. `None` without words.
    pub distinct_1: Option<f64>,
    /// Distinct-2. `None` without bigrams.
    pub distinct_2: Option<f64>,
    /// Distinct-3. `None` without trigrams.
    pub distinct_3: Option<f64>,
    /// Self-BLEU with up to 4-grams, see [`crate::self_bleu`]. `None` for fewer than two texts.
    pub self_bleu: Option<f64>,
}

impl NgramDiversity {
    fn new(texts: &Numbered) -> Self {
        Self {
            distinct_1: texts.distinct(1),
            distinct_2: texts.distinct(2),
            distinct_3: texts.distinct(3),
            self_bleu: texts.self_bleu(4),
        }
    }
}

/// Diversity of the completions of several prompts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupDiversity {
    /// Mean over the prompts for which a measure is defined. It tells how much the completions of a
    /// prompt differ.
    pub per_prompt: NgramDiversity,
    /// All texts together. It also includes how much the prompts differ.
    pub pooled: NgramDiversity,
}

impl GroupDiversity {
    /// Measures groups of texts, one per prompt. The order of prompts and texts doesn't matter.
    ///
    /// The time is proportional to the number of n-grams: BLEU against all other texts only needs
    /// the two highest counts of each n-gram.
    ///
    /// # Errors
    /// Returns an error if there are no texts.
    pub fn new(groups: &[Vec<&str>]) -> Result<Self, MeasureError> {
        let texts: Vec<&str> = groups.iter().flatten().copied().collect();
        check_count("texts", texts.len(), 1)?;
        let pooled = NgramDiversity::new(&Numbered::of(&texts));
        let each: Vec<NgramDiversity> =
            groups.iter().map(|group| NgramDiversity::new(&Numbered::of(group))).collect();
        let mean = |of: fn(&NgramDiversity) -> Option<f64>| mean_of_defined(each.iter().map(of));
        let per_prompt = NgramDiversity {
            distinct_1: mean(|group| group.distinct_1),
            distinct_2: mean(|group| group.distinct_2),
            distinct_3: mean(|group| group.distinct_3),
            self_bleu: mean(|group| group.self_bleu),
        };
        Ok(Self { per_prompt, pooled })
    }
}

/// Semantic diversity of the completions of several prompts, i.e. the mean cosine distance of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SemanticDiversity {
    /// Mean over the prompts with at least two vectors. `None` if there are none.
    pub per_prompt: Option<f64>,
    /// All vectors together.
    pub pooled: f64,
}

impl SemanticDiversity {
    /// Measures groups of vectors from an [`crate::Embedder`], one group per prompt.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two vectors, if their widths differ, or if a number
    /// is not finite.
    pub fn new(groups: &[Vec<Vec<f32>>]) -> Result<Self, MeasureError> {
        let all: Vec<&[f32]> = groups.iter().flatten().map(Vec::as_slice).collect();
        let compared = groups.iter().filter(|group| group.len() > 1);
        let distance = |group: &Vec<Vec<f32>>| {
            mean_cosine_distance(&group.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let each = compared.map(distance).collect::<Result<Vec<f64>, _>>()?;
        Ok(Self {
            per_prompt: mean_of_defined(each.into_iter().map(Some)),
            pooled: mean_cosine_distance(&all)?,
        })
    }
}

fn mean_of_defined(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let defined: Vec<f64> = values.flatten().collect();
    (!defined.is_empty()).then(|| defined.iter().sum::<f64>() / defined.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{distinct, self_bleu};

    #[test]
    fn prompts_are_averaged_and_pooled() {
        let groups = [vec!["the red car", "the red bike"], vec!["one"], vec!["one", "two"]];
        let found = GroupDiversity::new(&groups).unwrap();
        let all = ["the red car", "the red bike", "one", "one", "two"];
        assert_eq!(found.pooled.distinct_2, Some(distinct(&all, 2)));
        assert_eq!(found.pooled.self_bleu, Some(self_bleu(&all, 4)));
        // (4/6 + 1 + 1) / 3. Only the first prompt has bigrams.
        assert!((found.per_prompt.distinct_1.unwrap() - 8.0 / 9.0).abs() < 1e-15);
        assert_eq!(found.per_prompt.distinct_2, Some(0.75));
        // A single text has no self-BLEU.
        let expected = (self_bleu(&groups[0], 4) + self_bleu(&groups[2], 4)) / 2.0;
        assert_eq!(found.per_prompt.self_bleu, Some(expected));
        let single = GroupDiversity::new(&[vec!["one two"]]).unwrap();
        assert_eq!((single.pooled.self_bleu, single.per_prompt.distinct_3), (None, None));
        assert!(GroupDiversity::new(&[vec![]]).is_err());
    }

    #[test]
    fn vectors_are_averaged_and_pooled() {
        let (x, y) = (vec![1.0, 0.0], vec![0.0, 1.0]);
        let groups = [vec![x.clone(), y.clone()], vec![y.clone(), y.clone()], vec![x.clone()]];
        let found = SemanticDiversity::new(&groups).unwrap();
        // 2 · 3 of the 10 pairs differ.
        assert_eq!((found.per_prompt, found.pooled), (Some(0.5), 0.6));
        assert_eq!(SemanticDiversity::new(&[vec![x], vec![y]]).unwrap().per_prompt, None);
        assert!(SemanticDiversity::new(&[]).is_err());
    }
}

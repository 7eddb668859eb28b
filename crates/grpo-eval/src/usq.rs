//! USQ: the quality of the completion that a selector picks.

use std::collections::HashSet;

use grpo_data::statistics::mean;
use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite, check_lengths};
use crate::words;

/// Picks one of several completions. The first one is picked if several are equally good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// The first completion.
    First,
    /// The completion with the most characters.
    Longest,
    /// The completion with the most distinct [`words`].
    MostUniqueWords,
    /// The completion with the highest score, for example from a reward model.
    Score,
}

impl Selector {
    /// Returns the index of the selected completion. `scores` are only used by [`Selector::Score`].
    ///
    /// # Errors
    /// Returns an error if there are no completions, or if scores are needed and their number differs
    /// or one is not finite.
    pub fn select(self, texts: &[&str], scores: &[f64]) -> Result<usize, MeasureError> {
        check_count("completions to select from", texts.len(), 1)?;
        let unique = |text: &str| words(text).collect::<HashSet<_>>().len();
        let value = |index: usize| match self {
            Self::First => 0.0,
            Self::Longest => texts[index].chars().count() as f64,
            Self::MostUniqueWords => unique(texts[index]) as f64,
            Self::Score => scores[index],
        };
        if self == Self::Score {
            check_lengths("completions and scores", texts.len(), scores.len())?;
            check_finite("scores", scores)?;
        }
        let mut best = (0, value(0));
        for index in 1..texts.len() {
            let value = value(index);
            if value > best.1 {
                best = (index, value);
            }
        }
        Ok(best.0)
    }
}

/// The completions of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidates<'a> {
    /// The completions.
    pub texts: &'a [&'a str],
    /// A score of each completion for [`Selector::Score`]; otherwise empty.
    pub scores: &'a [f64],
}

/// Quality of selected completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectedQuality {
    /// Mean over prompts.
    pub mean: f64,
    /// Index of the selected completion of each prompt.
    pub selected: Vec<usize>,
    /// Its quality.
    pub quality: Vec<f64>,
}

/// Returns USQ, the mean quality of the selected completions. `quality` gets the index of a prompt
/// and the selected text, and returns for example ROUGE-L against the reference of the prompt.
///
/// # Errors
/// Returns an error if there are no prompts, if nothing can be selected, or if a quality is not
/// finite.
pub fn selected_quality(
    prompts: &[Candidates<'_>],
    selector: Selector,
    quality: impl Fn(usize, &str) -> f64,
) -> Result<SelectedQuality, MeasureError> {
    check_count("prompts", prompts.len(), 1)?;
    let select = |prompt: &Candidates<'_>| selector.select(prompt.texts, prompt.scores);
    let selected = prompts.iter().map(select).collect::<Result<Vec<usize>, _>>()?;
    let each = prompts.iter().zip(&selected).enumerate();
    let quality: Vec<f64> =
        each.map(|(index, (prompt, selected))| quality(index, prompt.texts[*selected])).collect();
    check_finite("quality", &quality)?;
    Ok(SelectedQuality { mean: mean(&quality), selected, quality })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_by_hand() {
        let texts = ["a b b b b b", "a b c", "a b c d", "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}"];
        let select = |selector: Selector| selector.select(&texts, &[0.1, 0.9, 0.9, 0.2]).unwrap();
        assert_eq!(select(Selector::First), 0);
        assert_eq!(select(Selector::Longest), 0);
        assert_eq!(select(Selector::MostUniqueWords), 2);
        assert_eq!(select(Selector::Score), 1);
        assert!(Selector::First.select(&[], &[]).is_err());
        assert!(Selector::Score.select(&texts, &[0.1]).is_err());
        assert!(Selector::Score.select(&texts[..1], &[f64::NAN]).is_err());
    }

    #[test]
    fn quality_is_that_of_the_selected_texts() {
        let prompts = [
            Candidates { texts: &["a", "abc"], scores: &[] },
            Candidates { texts: &["abcde", "ab"], scores: &[] },
        ];
        let found = selected_quality(&prompts, Selector::Longest, |index, text| {
            (10 * index + text.len()) as f64
        });
        let found = found.unwrap();
        assert_eq!((found.mean, found.selected), (9.0, vec![1, 0]));
        assert_eq!(found.quality, [3.0, 15.0]);
        assert!(selected_quality(&prompts, Selector::First, |_, _| f64::NAN).is_err());
        assert!(selected_quality(&[], Selector::First, |_, _| 0.0).is_err());
    }
}

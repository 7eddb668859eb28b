//! Mean scores from a judge.

use grpo_data::statistics::mean;
use serde::{Deserialize, Serialize};

use super::pairwise::by_prompt;
use super::parsed_answer::{JudgeAnswer, Missing, ParsedAnswer, parse_score};
use crate::error::MeasureError;
use crate::stats::{Bootstrap, Estimate};

/// A text and its score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoredText {
    /// Name of the text.
    pub id: String,
    /// The prompt.
    pub prompt: String,
    /// The text.
    pub text: String,
    /// The score from 1 to 10.
    pub score: ParsedAnswer<u8>,
    /// What the judge wrote.
    pub explanation: Option<String>,
}

impl ScoredText {
    /// Parses the answer to the question about a text.
    pub fn new(
        id: impl Into<String>,
        prompt: impl Into<String>,
        text: impl Into<String>,
        answer: Option<JudgeAnswer<'_>>,
    ) -> Self {
        Self {
            id: id.into(),
            prompt: prompt.into(),
            text: text.into(),
            score: ParsedAnswer::new(answer, parse_score),
            explanation: answer.map(|answer| answer.text.to_owned()),
        }
    }
}

/// Scores over texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreSummary {
    /// Number of texts.
    pub texts: usize,
    /// Number of texts with a score. Only they count below.
    pub scored: usize,
    /// Number of complete answers without a score in the form that was asked for.
    pub unparsable: usize,
    /// Number of answers that end at the token limit before a score.
    pub truncated: usize,
    /// Number of questions without an answer.
    pub unanswered: usize,
    /// Mean score. `None` if no text has one.
    pub mean: Option<f64>,
    /// The mean with its bootstrap interval, for which prompts are drawn. `None` for fewer than two
    /// prompts.
    pub interval: Option<Estimate>,
    /// Number of texts with each score from 1 to 10.
    pub counts: [usize; 10],
}

impl ScoreSummary {
    /// Summarises texts. Their order doesn't matter.
    ///
    /// # Errors
    /// Returns an error if a score is not between 1 and 10, or if the settings of the bootstrap are out
    /// of range.
    pub fn new(texts: &[ScoredText], bootstrap: &Bootstrap) -> Result<Self, MeasureError> {
        let given = || {
            let of = |text: &'_ ScoredText| text.score.given();
            texts.iter().filter_map(move |text| Some((text.prompt.as_str(), of(text)?)))
        };
        let mut counts = [0; 10];
        for (_, score) in given() {
            let index = usize::from(score).wrapping_sub(1);
            *counts.get_mut(index).ok_or_else(|| MeasureError::OutOfRange {
                what: "score".to_owned(),
                found: score.to_string(),
                expected: "1 to 10",
            })? += 1;
        }
        let scores: Vec<f64> = given().map(|(_, score)| f64::from(score)).collect();
        let missing = Missing::new(texts.iter().map(|text| &text.score));
        let values = given().map(|(prompt, score)| (prompt, f64::from(score)));
        Ok(Self {
            texts: texts.len(),
            scored: scores.len(),
            unparsable: missing.unparsable,
            truncated: missing.truncated,
            unanswered: missing.unanswered,
            mean: (!scores.is_empty()).then(|| mean(&scores)),
            interval: by_prompt(values, bootstrap)?,
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_by_hand() {
        let bootstrap = Bootstrap { draws: 100, ..Bootstrap::default() };
        let answers = [
            ("p", Some("SCORE: 3")),
            ("q", Some("SCORE: 10")),
            ("p", Some("SCORE: 8")),
            ("q", Some("10")),
            ("r", None),
            ("r", Some("It is …")),
        ];
        let texts = answers.map(|(prompt, text)| {
            let of = |text: &'static str| JudgeAnswer { text, is_truncated: text.ends_with('…') };
            ScoredText::new("1", prompt, "rated", text.map(of))
        });
        let found = ScoreSummary::new(&texts, &bootstrap).unwrap();
        assert_eq!((found.texts, found.scored), (6, 3));
        assert_eq!((found.unparsable, found.truncated, found.unanswered), (1, 1, 1));
        assert_eq!(texts[5].explanation.as_deref(), Some("It is …"));
        assert_eq!(found.mean, Some(7.0));
        assert_eq!(found.counts, [0, 0, 1, 0, 0, 0, 0, 1, 0, 1]);
        let expect = bootstrap.clustered_mean(&[vec![3.0, 8.0], vec![10.0]]).unwrap();
        assert_eq!(found.interval, Some(expect));
        let found = ScoreSummary::new(&texts[3..], &bootstrap).unwrap();
        assert_eq!((found.scored, found.mean, found.interval), (0, None, None));
        for score in [0, 11] {
            let text = ScoredText { score: ParsedAnswer::Given(score), ..texts[0].clone() };
            assert!(ScoreSummary::new(&[text], &bootstrap).is_err());
        }
        let found = ScoreSummary::new(&[], &bootstrap).unwrap();
        assert_eq!((found.texts, found.mean), (0, None));
    }
}

//! Whether a completion passes: rules for its text and a threshold for its score.

use std::fmt;

use grpo_data::statistics::percentile;
use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite};
use crate::words;

/// Decides whether a completion passes, for example for Pass@k.
///
/// The rules for the text alone ignore the prompt, so nearly all completions of a working model pass
/// them. `min_score` compares models by the reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QualityChecker {
    /// Minimum number of characters, without surrounding whitespace.
    pub min_characters: usize,
    /// Maximum number of characters, without surrounding whitespace.
    pub max_characters: usize,
    /// Maximum of 1 − distinct words / words.
    pub max_repetition: f64,
    /// Texts that begin with one of these words fail, regardless of case.
    pub error_words: Vec<String>,
    /// Minimum score. It should be the same for all models of a report.
    pub min_score: Option<f64>,
}

impl Default for QualityChecker {
    fn default() -> Self {
        Self {
            min_characters: 10,
            max_characters: 300,
            max_repetition: 0.5,
            error_words: ["error", "exception", "traceback"].map(str::to_owned).to_vec(),
            min_score: None,
        }
    }
}

/// Why a completion fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QualityFault {
    /// The text has no words, for example only whitespace or punctuation.
    NoWords,
    /// The text is too short.
    TooShort,
    /// The text is too long.
    TooLong,
    /// The text begins with `[` or with an error word.
    ErrorMessage,
    /// The text repeats its words.
    Repetitive,
    /// The score is below the threshold.
    LowScore,
}

impl fmt::Display for QualityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWords => "no words",
            Self::TooShort => "too short",
            Self::TooLong => "too long",
            Self::ErrorMessage => "error message",
            Self::Repetitive => "repetitive",
            Self::LowScore => "low score",
        })
    }
}

impl QualityChecker {
    /// Returns a checker whose threshold is a percentile of the scores of reference completions.
    /// `share` is between 0 and 1.
    ///
    /// # Errors
    /// Returns an error if there are no scores, if a score is not finite, or if `share` is out of
    /// range.
    pub fn with_percentile(self, scores: &[f64], share: f64) -> Result<Self, MeasureError> {
        check_count("reference scores", scores.len(), 1)?;
        check_finite("reference scores", scores)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(MeasureError::OutOfRange {
                what: "percentile of the reference scores".to_owned(),
                found: share.to_string(),
                expected: "0 to 1",
            });
        }
        Ok(Self { min_score: Some(percentile(scores, share)), ..self })
    }

    /// Returns why a completion fails, or `None` if it passes.
    ///
    /// # Errors
    /// Returns an error if there is a threshold but no finite score.
    pub fn fault(
        &self,
        text: &str,
        score: Option<f64>,
    ) -> Result<Option<QualityFault>, MeasureError> {
        if let (Some(_), None) = (self.min_score, score) {
            return Err(MeasureError::TooFew {
                what: "scores of a completion",
                found: 0,
                needed: 1,
            });
        }
        if let Some(score) = score {
            check_finite("scores of a completion", &[score])?;
        }
        let of_text = self.fault_of_text(text);
        let is_low = self.min_score.zip(score).is_some_and(|(minimum, score)| score < minimum);
        Ok(of_text.or(is_low.then_some(QualityFault::LowScore)))
    }

    fn fault_of_text(&self, text: &str) -> Option<QualityFault> {
        let text = text.trim();
        let mut all: Vec<String> = words(text).collect();
        let total = all.len();
        let Some(first) = all.first().cloned() else {
            return Some(QualityFault::NoWords);
        };
        let is_error = self.error_words.iter().any(|word| word.to_lowercase() == first);
        all.sort_unstable();
        all.dedup();
        let repetition = 1.0 - all.len() as f64 / total as f64;
        match text.chars().count() {
            count if count < self.min_characters => Some(QualityFault::TooShort),
            count if count > self.max_characters => Some(QualityFault::TooLong),
            _ if text.starts_with('[') || is_error => Some(QualityFault::ErrorMessage),
            _ if repetition > self.max_repetition => Some(QualityFault::Repetitive),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_by_hand() {
        let checker = QualityChecker::default();
        let long = "The red car is late. ".repeat(20);
        for (text, expected) in [
            ("The garden is green.", None),
            ("  \n ", Some(QualityFault::NoWords)),
            ("... !!! ... !!!", Some(QualityFault::NoWords)),
            ("Great!   ", Some(QualityFault::TooShort)),
            (&long, Some(QualityFault::TooLong)),
            ("[deleted by the author]", Some(QualityFault::ErrorMessage)),
            ("ERROR: out of memory", Some(QualityFault::ErrorMessage)),
            ("Errors are how we learn.", None),
            // 2 of 4 words are distinct, then 2 of 5.
            ("Good morning, good morning", None),
            ("Good morning, good morning, good", Some(QualityFault::Repetitive)),
        ] {
            assert_eq!(checker.fault(text, None).unwrap(), expected, "{text:?}");
        }
        assert_eq!(QualityFault::ErrorMessage.to_string(), "error message");
    }

    #[test]
    fn scores_have_a_threshold() {
        let checker =
            QualityChecker::default().with_percentile(&[4.0, 1.0, 3.0, 2.0], 0.5).unwrap();
        assert_eq!(checker.min_score, Some(2.5));
        let text = "The garden is green.";
        assert_eq!(checker.fault(text, Some(2.5)), Ok(None));
        assert_eq!(checker.fault(text, Some(2.4)), Ok(Some(QualityFault::LowScore)));
        assert_eq!(checker.fault("short", Some(9.0)), Ok(Some(QualityFault::TooShort)));
        assert!(checker.fault(text, None).is_err());
        assert!(checker.fault(text, Some(f64::NAN)).is_err());
        assert!(checker.clone().with_percentile(&[], 0.5).is_err());
        assert!(checker.with_percentile(&[1.0], 50.0).is_err());
    }
}

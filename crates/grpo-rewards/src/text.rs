//! Rewards for text with a verifiable answer or format.

use regex::Regex;
use serde_json::{Map, Value};

use crate::{Outcome, PartName, Reward, RewardInput, Scored};

/// Scores 1 if the completion contains the correct answer, otherwise 0.
///
/// The correct answer is read from the fields of the prompt. Whitespace around answers is ignored.
/// If both answers are numbers, they are compared numerically, e.g. `0.50` equals `.5`. Scoring
/// fails if the prompt has no answer.
#[derive(Clone, Debug)]
pub struct AnswerReward {
    /// The field that contains the correct answer.
    pub field: String,
    /// Extracts the answer from the completion. The answer is the first capture group of the last
    /// match or, if the expression has no groups, the entire match.
    pub extract: Option<Regex>,
}

impl Reward for AnswerReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        samples.iter().map(|sample| self.score_one(sample)).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["answered".into(), "correct".into()]
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        self.right(fields).map(|_| ())
    }
}

impl AnswerReward {
    fn score_one(&self, sample: &RewardInput) -> Outcome {
        let right = match self.right(&sample.fields) {
            Ok(right) => right,
            Err(reason) => return Outcome::Failed { reason },
        };
        let given = self.given(&sample.text);
        let correct = given.is_some_and(|given| is_same(given, &right));
        let found = f64::from(u8::from(given.is_some()));
        verdict(correct, vec![("answered".into(), found)])
    }

    /// Returns the correct answer for a prompt.
    fn right(&self, fields: &Map<String, Value>) -> Result<String, String> {
        match fields.get(&self.field) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            Some(_) => {
                Err(format!("field '{}' of the prompt's record is not an answer", self.field))
            }
            None => Err(format!("the prompt's record is missing field '{}'", self.field)),
        }
    }

    /// Extracts the answer from a completion, if present.
    fn given<'a>(&self, text: &'a str) -> Option<&'a str> {
        let Some(extract) = &self.extract else { return Some(text) };
        let last = extract.captures_iter(text).last()?;
        last.get(1).or_else(|| last.get(0)).map(|found| found.as_str())
    }
}

fn is_same(given: &str, right: &str) -> bool {
    let (given, right) = (given.trim(), right.trim());
    let numbers = (given.parse::<f64>(), right.parse::<f64>());
    given == right || matches!(numbers, (Ok(given), Ok(right)) if given == right)
}

/// Scores 1 if the completion matches a regular expression, otherwise 0.
#[derive(Clone, Debug)]
pub struct PatternReward {
    /// The regular expression.
    pub pattern: Regex,
}

impl Reward for PatternReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let score = |sample: &RewardInput| verdict(self.pattern.is_match(&sample.text), Vec::new());
        samples.iter().map(score).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["correct".into()]
    }
}

fn verdict(correct: bool, mut parts: Vec<(PartName, f64)>) -> Outcome {
    let value = f64::from(u8::from(correct));
    parts.push(("correct".into(), value));
    Outcome::Scored(Scored::new(vec![(1.0, value)], parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str, answer: impl Into<Value>) -> RewardInput {
        RewardInput {
            text: text.to_owned(),
            fields: [("answer".to_owned(), answer.into())].into_iter().collect(),
            ..RewardInput::default()
        }
    }

    fn total(reward: &AnswerReward, text: &str, answer: impl Into<Value>) -> Option<f64> {
        reward.score(&[sample(text, answer)])[0].total()
    }

    #[test]
    fn the_last_answer_counts() {
        let extract = Some(Regex::new(r"#### *(-?[\d.]+)").unwrap());
        let reward = AnswerReward { field: "answer".to_owned(), extract };
        assert_eq!(total(&reward, "#### 3 or rather #### 4", "4"), Some(1.0));
        assert_eq!(total(&reward, "#### 4 or rather #### 3", "4"), Some(0.0));
        assert_eq!(total(&reward, "4", "4"), Some(0.0));
        assert_eq!(total(&reward, "#### 0.50", 0.5), Some(1.0));
        let outcomes = reward.score(&[sample("4", "4"), sample("#### 5", "4")]);
        assert_eq!(
            outcomes.iter().map(|o| o.part("answered")).collect::<Vec<_>>(),
            [Some(0.0), Some(1.0)]
        );
    }

    #[test]
    fn parts_are_those_that_outcomes_have() {
        let names = |outcome: &Outcome| match outcome {
            Outcome::Scored(scored) => {
                scored.parts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let answer = AnswerReward { field: "answer".to_owned(), extract: None };
        assert_eq!(names(&answer.score(&[sample("4", "4")])[0]), answer.parts());
        let pattern = PatternReward { pattern: Regex::new("4").unwrap() };
        assert_eq!(names(&pattern.score(&[sample("4", "4")])[0]), pattern.parts());
    }

    #[test]
    fn without_a_pattern_all_of_the_text_is_the_answer() {
        let reward = AnswerReward { field: "answer".to_owned(), extract: None };
        assert_eq!(total(&reward, " yes\n", "yes"), Some(1.0));
        assert_eq!(total(&reward, "yes!", "yes"), Some(0.0));
        assert_eq!(total(&reward, "true", true), Some(1.0));
    }

    #[test]
    fn a_prompt_without_an_answer_fails() {
        let reward = AnswerReward { field: "solution".to_owned(), extract: None };
        let outcome = &reward.score(&[sample("4", "4")])[0];
        assert_eq!(outcome.failure(), Some("the prompt's record is missing field 'solution'"));
        let reward = AnswerReward { field: "answer".to_owned(), extract: None };
        let outcome = &reward.score(&[sample("4", Value::Null)])[0];
        assert_eq!(
            outcome.failure(),
            Some("field 'answer' of the prompt's record is not an answer")
        );
    }

    #[test]
    fn a_pattern_may_match_anywhere() {
        let reward = PatternReward { pattern: Regex::new("b+").unwrap() };
        let outcomes = reward.score(&["abbc".into(), "ac".into()]);
        assert_eq!(outcomes.iter().map(Outcome::total).collect::<Vec<_>>(), [Some(1.0), Some(0.0)]);
    }
}

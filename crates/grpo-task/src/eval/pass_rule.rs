//! When a completion passes, for Pass@k.

use anyhow::Context;
use grpo_data::{AnswerForm, regex_reason};
use grpo_eval::{Embedder, HashedNgrams, QualityChecker, cosine};
use grpo_rewards::{AnswerReward, Reward, RewardInput};
use regex::Regex;
use serde_json::{Map, Value};

use super::{Generation, PromptGenerations};

/// A condition that a completion has to meet.
enum Condition {
    Quality(QualityChecker),
    Exact,
    Answer(AnswerReward),
    Score(f64),
    Relevance(f64, HashedNgrams),
    Pattern(Regex),
}

/// A rule that decides whether a completion passes. All its conditions must hold.
pub struct PassRule(Vec<Condition>);

impl PassRule {
    /// Parses the values of `--pass` and `--extract`.
    ///
    /// # Errors
    /// Returns an error if a condition is unknown or its value is out of range, or if `extract` is
    /// not used.
    pub fn parse(text: &str, extract: Option<&str>) -> anyhow::Result<Self> {
        // A pattern may contain commas, so it is the last condition.
        let (before, pattern) = match text.split_once("pattern:") {
            Some((before, pattern)) => (before.trim_end_matches(','), Some(pattern)),
            None => (text, None),
        };
        let mut conditions = Vec::new();
        for one in before.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let number = |value: &str| {
                let number: Option<f64> = value.parse().ok().filter(|v: &f64| v.is_finite());
                number.with_context(|| format!("--pass {one}: `{value}` is not a number"))
            };
            conditions.push(match one.split_once(':') {
                None if one == "quality" => Condition::Quality(QualityChecker::default()),
                None if one == "exact" => Condition::Exact,
                None if one == "answer" => {
                    let extract = extract.map(|text| {
                        let fault = |reason| anyhow::anyhow!("--extract {text}: {reason}");
                        AnswerForm::parse(text).map_err(fault)
                    });
                    let extract = extract.transpose()?;
                    Condition::Answer(AnswerReward { field: ANSWER.to_owned(), extract })
                }
                Some(("score", value)) => Condition::Score(number(value)?),
                Some(("relevance", value)) => {
                    Condition::Relevance(number(value)?, HashedNgrams::default())
                }
                _ => anyhow::bail!(
                    "--pass {one}: unknown condition; expected quality, exact, answer, score:X, relevance:X or pattern:REGEX"
                ),
            });
        }
        if let Some(pattern) = pattern {
            let regex = Regex::new(pattern).map_err(|error| {
                anyhow::anyhow!("--pass pattern:{pattern}: {}", regex_reason(&error))
            })?;
            conditions.push(Condition::Pattern(regex));
        }
        let uses_extract = conditions.iter().any(|one| matches!(one, Condition::Answer(_)));
        anyhow::ensure!(
            extract.is_none() || uses_extract,
            "--extract is only used by --pass answer; add it, or remove --extract"
        );
        anyhow::ensure!(!conditions.is_empty(), "--pass is empty; expected for example quality");
        Ok(Self(conditions))
    }

    /// Returns whether a completion of a prompt passes.
    ///
    /// # Errors
    /// Returns an error if a condition needs a score, a reference or a prompt that the file does not
    /// contain.
    pub fn passes(&self, prompt: &PromptGenerations, of: &Generation) -> anyhow::Result<bool> {
        let holds = |condition: &Condition| match condition {
            Condition::Quality(checker) => Ok(checker.fault(&of.text, None)?.is_none()),
            Condition::Exact => {
                anyhow::ensure!(
                    !prompt.references.is_empty(),
                    "--pass exact requires a reference for each prompt; add a `reference` to each record, or --references FILE"
                );
                Ok(prompt.references.iter().any(|reference| reference.trim() == of.text.trim()))
            }
            Condition::Answer(reward) => {
                anyhow::ensure!(
                    !prompt.references.is_empty(),
                    "--pass answer requires the correct answer of each prompt; add an `answer` to each record, name another key with --reference-column, or use --references FILE"
                );
                let is_correct = |reference: &String| {
                    let fields =
                        Map::from_iter([(ANSWER.to_owned(), Value::from(reference.as_str()))]);
                    let input =
                        RewardInput { text: of.text.clone(), fields, ..RewardInput::default() };
                    reward.score(&[input])[0].total() == Some(1.0)
                };
                Ok(prompt.references.iter().any(is_correct))
            }
            Condition::Score(minimum) => {
                let score = of.score.context(
                    "--pass score requires a score for each completion; add `reward` to each record, or name another key with --score-column",
                )?;
                Ok(score >= *minimum)
            }
            Condition::Relevance(minimum, embedder) => {
                anyhow::ensure!(
                    !prompt.prompt.is_empty(),
                    "--pass relevance requires a prompt for each completion; add `prompt` to each record"
                );
                let vectors = embedder.embed(&[&prompt.prompt, &of.text])?;
                Ok(cosine(&vectors[0], &vectors[1]) >= *minimum)
            }
            Condition::Pattern(pattern) => Ok(pattern.is_match(&of.text)),
        };
        for condition in &self.0 {
            if !holds(condition)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Field from which the reward reads the correct answer.
const ANSWER: &str = "answer";

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(rule: &str, text: &str, score: Option<f64>) -> anyhow::Result<bool> {
        passes_with(rule, None, text, score)
    }

    fn passes_with(
        rule: &str,
        extract: Option<&str>,
        text: &str,
        score: Option<f64>,
    ) -> anyhow::Result<bool> {
        let prompt = PromptGenerations {
            prompt: "What is 2 + 3?".to_owned(),
            references: vec!["5".to_owned()],
            generations: vec![],
        };
        let generation = Generation { text: text.to_owned(), score, ..Generation::default() };
        PassRule::parse(rule, extract)?.passes(&prompt, &generation)
    }

    #[test]
    fn all_conditions_must_hold() {
        assert!(passes("quality", "It is five, of course.", None).unwrap());
        assert!(!passes("quality", "Five.", None).unwrap());
        assert!(passes("exact", " 5\n", None).unwrap() && !passes("exact", "55", None).unwrap());
        assert!(passes("score:0.5", "x", Some(0.5)).unwrap());
        assert!(!passes("score:0.5", "x", Some(0.49)).unwrap());
        assert!(!passes("score:0.5,exact", "x", Some(0.9)).unwrap());
        assert!(passes("score:0.5,pattern:^a{1,2}$", "aa", Some(0.9)).unwrap());
        assert!(!passes("pattern:^a{1,2}$", "aaa", None).unwrap());
        assert!(passes("relevance:0.9", "What is 2 + 3?", None).unwrap());
        assert!(!passes("relevance:0.9", "A red car.", None).unwrap());
    }

    #[test]
    fn answers_are_compared_as_the_reward_does() {
        let answer = |extract, text| passes_with("answer", extract, text, None).unwrap();
        assert!(answer(None, " 5.0\n") && !answer(None, "It is 5."));
        let extract = Some("is (\\d+)");
        assert!(answer(extract, "It is 4, no, it is 5.") && !answer(extract, "It is 5 or is 4."));
        let fault = |rule, extract| passes_with(rule, extract, "", None).unwrap_err().to_string();
        assert!(fault("answer", Some("(")).starts_with("--extract (: "));
        assert_eq!(
            fault("exact", extract),
            "--extract is only used by --pass answer; add it, or remove --extract"
        );
    }

    #[test]
    fn rules_that_cannot_be_applied_are_refused() {
        let fault = |rule: &str| passes(rule, "x", None).unwrap_err().to_string();
        assert_eq!(
            fault("good"),
            "--pass good: unknown condition; expected quality, exact, answer, score:X, relevance:X or pattern:REGEX"
        );
        assert_eq!(fault("score:much"), "--pass score:much: `much` is not a number");
        assert!(fault("score:1").starts_with("--pass score requires a score for each completion"));
        assert!(fault("pattern:(").starts_with("--pass pattern:(: "));
        assert_eq!(fault(","), "--pass is empty; expected for example quality");
    }
}

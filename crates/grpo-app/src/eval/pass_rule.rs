//! When a completion passes, for Pass@k.

use anyhow::Context;
use grpo_eval::{Embedder, HashedNgrams, QualityChecker, cosine};
use regex::Regex;

use super::{Generation, PromptGenerations};

/// Number of dimensions of the vectors for `relevance`.
pub(super) const WIDTH: usize = 512;

/// A condition that a completion has to meet.
enum Condition {
    Quality(QualityChecker),
    Exact,
    Score(f64),
    Relevance(f64, HashedNgrams),
    Pattern(Regex),
}

/// A rule that decides whether a completion passes. All its conditions must hold.
pub(crate) struct PassRule(Vec<Condition>);

impl PassRule {
    /// Parses the value of `--pass`.
    ///
    /// # Errors
    /// Returns an error if a condition is unknown or its value is out of range.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
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
                Some(("score", value)) => Condition::Score(number(value)?),
                Some(("relevance", value)) => {
                    Condition::Relevance(number(value)?, HashedNgrams::new(WIDTH))
                }
                _ => anyhow::bail!(
                    "--pass {one}: unknown condition; expected quality, exact, score:X, relevance:X or pattern:REGEX"
                ),
            });
        }
        if let Some(pattern) = pattern {
            let pattern = Regex::new(pattern).map_err(|error| {
                // The last line contains the error. The preceding lines show its position.
                let fault = error.to_string();
                let fault = fault.lines().last().unwrap_or_default().trim_start_matches("error: ");
                anyhow::anyhow!("--pass pattern:{pattern}: {fault}")
            })?;
            conditions.push(Condition::Pattern(pattern));
        }
        anyhow::ensure!(!conditions.is_empty(), "--pass is empty; expected for example quality");
        Ok(Self(conditions))
    }

    /// Returns whether a completion of a prompt passes.
    ///
    /// # Errors
    /// Returns an error if a condition needs a score, a reference or a prompt that the file does not
    /// contain.
    pub(crate) fn passes(
        &self,
        prompt: &PromptGenerations,
        of: &Generation,
    ) -> anyhow::Result<bool> {
        let holds = |condition: &Condition| match condition {
            Condition::Quality(checker) => Ok(checker.fault(&of.text, None)?.is_none()),
            Condition::Exact => {
                anyhow::ensure!(
                    !prompt.references.is_empty(),
                    "--pass exact requires a reference for each prompt; add a `reference` to each record, or --references FILE"
                );
                Ok(prompt.references.iter().any(|reference| reference.trim() == of.text.trim()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(rule: &str, text: &str, score: Option<f64>) -> anyhow::Result<bool> {
        let prompt = PromptGenerations {
            prompt: "What is 2 + 3?".to_owned(),
            references: vec!["5".to_owned()],
            generations: vec![],
        };
        let generation = Generation { text: text.to_owned(), score, ..Generation::default() };
        PassRule::parse(rule)?.passes(&prompt, &generation)
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
    fn rules_that_cannot_be_applied_are_refused() {
        let fault = |rule: &str| passes(rule, "x", None).unwrap_err().to_string();
        assert_eq!(
            fault("good"),
            "--pass good: unknown condition; expected quality, exact, score:X, relevance:X or pattern:REGEX"
        );
        assert_eq!(fault("score:much"), "--pass score:much: `much` is not a number");
        assert!(fault("score:1").starts_with("--pass score requires a score for each completion"));
        assert!(fault("pattern:(").starts_with("--pass pattern:(: "));
        assert_eq!(fault(","), "--pass is empty; expected for example quality");
    }
}

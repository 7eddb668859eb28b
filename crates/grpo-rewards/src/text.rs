//! Rewards for text with a verifiable format.

use regex::Regex;

use crate::{Outcome, PartName, Reward, RewardInput, Scored};

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

/// Returns the outcome of a completion that is either correct or not.
pub(crate) fn verdict(correct: bool, mut parts: Vec<(PartName, f64)>) -> Outcome {
    let value = f64::from(u8::from(correct));
    parts.push(("correct".into(), value));
    Outcome::Scored(Scored::new(vec![(1.0, value)], parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_that_outcomes_have() {
        let pattern = PatternReward { pattern: Regex::new("4").unwrap() };
        let outcome = &pattern.score(&["4".into()])[0];
        let Outcome::Scored(scored) = outcome else { panic!("{outcome:?}") };
        let names: Vec<PartName> = scored.parts.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, pattern.parts());
    }

    #[test]
    fn a_pattern_may_match_anywhere() {
        let reward = PatternReward { pattern: Regex::new("b+").unwrap() };
        let outcomes = reward.score(&["abbc".into(), "ac".into()]);
        assert_eq!(outcomes.iter().map(Outcome::total).collect::<Vec<_>>(), [Some(1.0), Some(0.0)]);
    }
}

//! Samples: completions together with the data that a training step computes for them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Completion, Prompt, TokenColumns};

/// A prompt and its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The prompt.
    pub prompt: Prompt,
    /// The samples, sorted by [`crate::SampleKey::sample`].
    pub samples: Vec<Sample>,
}

/// A completion with its training data. Each stage of a step fills in its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The completion.
    pub completion: Completion,
    /// The text that the reward function scores.
    pub text: String,
    /// The result of the reward function. `None` until scored.
    pub outcome: Option<Outcome>,
    /// Additional information that an external reward provided about the completion.
    pub info: Option<String>,
    /// Bonus that is added to the reward before computing advantages.
    pub bonus: Option<Bonus>,
    /// The advantage. 0 until it is computed.
    pub advantage: f64,
    /// Per-token values, if recorded.
    pub trace: Option<TokenTrace>,
}

/// A term `weight · value` that is added to the reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bonus {
    /// The weight.
    pub weight: f64,
    /// The value.
    pub value: f64,
}

/// What a step computed for each token of a completion. Each list has one entry per action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenTrace {
    /// Numbers per token by name. Names are those of the columns in which they are recorded.
    pub numbers: TokenColumns<f64>,
    /// Whether the updates moved the token, and if not, why. A single word if all updates agree,
    /// otherwise one word per update, joined with `+`.
    pub outcomes: Vec<String>,
}

/// The name of a reward component or term.
pub type PartName = Cow<'static, str>;

/// The result of scoring a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The completion has a score.
    Scored(Scored),
    /// The reward function abstained. The completion is excluded from the group mean and has no
    /// advantage.
    Abstained {
        /// Whether the completion is valid, if the task knows.
        valid: Option<bool>,
        /// Whether the reward was not asked, because its budget of calls is used up.
        #[serde(default)]
        is_beyond_budget: bool,
    },
    /// The score could not be computed.
    Failed {
        /// The error message.
        reason: String,
        /// Whether the completion is valid, if the task knows.
        valid: Option<bool>,
    },
}

/// Largest absolute value of a reward, a weight or a term. It keeps sums of products finite in f64.
pub const LARGEST_REWARD: f64 = 1e100;

/// Name of the component that is 1 for valid and 0 for invalid completions.
pub const VALID: &str = "valid";

/// A reward with its components.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// The total reward: `Σ weight · value` over [`Self::terms`].
    pub total: f64,
    /// Weight and value of each reward function. The order is the same for all completions. Used by
    /// other aggregation methods (GDPO).
    pub terms: Vec<(f64, f64)>,
    /// Unweighted components by name. The set can differ between completions, e.g. an invalid
    /// molecule has no QED.
    pub parts: Vec<(PartName, f64)>,
    /// Whether the score took no call of an expensive reward, because a filter rejected the
    /// completion first. It does not count against a budget of calls.
    #[serde(default)]
    pub uncounted: bool,
}

impl Group {
    /// Creates a group from sampled completions.
    pub fn new(prompt: Prompt, completions: impl IntoIterator<Item = Completion>) -> Self {
        Self { prompt, samples: completions.into_iter().map(Sample::from).collect() }
    }

    /// Returns the completion of each sample.
    pub fn completions(&self) -> impl ExactSizeIterator<Item = &Completion> {
        self.samples.iter().map(|sample| &sample.completion)
    }
}

impl From<Completion> for Sample {
    /// Creates a sample that has not been scored.
    fn from(completion: Completion) -> Self {
        Self {
            completion,
            text: String::new(),
            outcome: None,
            info: None,
            bonus: None,
            advantage: 0.0,
            trace: None,
        }
    }
}

impl Sample {
    /// Returns the reward without the bonus, or `None` if there is no score.
    pub fn reward(&self) -> Option<f64> {
        self.outcome.as_ref()?.total()
    }

    /// Returns the score and its components, or `None` if there is no score.
    pub fn scored(&self) -> Option<&Scored> {
        self.outcome.as_ref()?.scored()
    }

    /// Returns the reason the reward could not be computed, if any.
    pub fn failure(&self) -> Option<&str> {
        self.outcome.as_ref()?.failure()
    }
}

impl Bonus {
    /// Returns `weight · value`.
    pub fn total(self) -> f64 {
        self.weight * self.value
    }
}

impl Scored {
    /// Creates a score whose total is the weighted sum of `terms`.
    pub fn new(terms: Vec<(f64, f64)>, parts: Vec<(PartName, f64)>) -> Self {
        let total = terms.iter().map(|(weight, value)| weight * value).sum();
        Self { total, terms, parts, uncounted: false }
    }
}

impl Outcome {
    /// Creates an outcome without a score, of a completion whose validity is not known.
    pub fn abstained() -> Self {
        Self::Abstained { valid: None, is_beyond_budget: false }
    }

    /// Creates an outcome without a score, because the budget of calls is used up. The
    /// validity of the completion is not known.
    pub fn beyond_budget() -> Self {
        Self::Abstained { valid: None, is_beyond_budget: true }
    }

    /// Creates an outcome without a score for this reason, of a completion whose validity is not known.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), valid: None }
    }

    /// Replaces a score with a total or term that cannot be compared by a failure.
    #[must_use]
    pub fn bounded(self) -> Self {
        let is_beyond = |value: &f64| value.is_nan() || value.abs() > LARGEST_REWARD;
        let beyond = self.scored().and_then(|Scored { total, terms, .. }| {
            let of_terms = terms.iter().flat_map(|(weight, value)| [*weight, *value]);
            std::iter::once(*total).chain(of_terms).find(is_beyond)
        });
        match beyond {
            None => self,
            Some(value) => Self::failed(format!(
                "the reward has the value {value:e}; expected finite numbers up to {LARGEST_REWARD:e} in magnitude"
            )),
        }
    }

    /// Sets the validity of a completion without a score. That of one with a score is a component.
    pub fn set_validity(&mut self, is_valid: bool) {
        match self {
            Self::Scored(_) => {}
            Self::Abstained { valid, .. } | Self::Failed { valid, .. } => *valid = Some(is_valid),
        }
    }

    /// Returns the total score, or `None` if there is no score.
    pub fn total(&self) -> Option<f64> {
        match self {
            Self::Scored(scored) => Some(scored.total),
            Self::Abstained { .. } | Self::Failed { .. } => None,
        }
    }

    /// Returns the score with its components, if there is one.
    pub fn scored(&self) -> Option<&Scored> {
        match self {
            Self::Scored(scored) => Some(scored),
            Self::Abstained { .. } | Self::Failed { .. } => None,
        }
    }

    /// Returns the reason if the score could not be computed.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { reason, .. } => Some(reason),
            Self::Scored(_) | Self::Abstained { .. } => None,
        }
    }

    /// Returns `true` if the completion has a score and its `valid` component is not 0.
    pub fn is_valid(&self) -> bool {
        self.total().is_some() && self.part(VALID) != Some(0.0)
    }

    /// Returns whether the reward had to score the completion: it passes the filters and is within the
    /// budget of calls, and is valid unless the reward `scores_invalid` ones too. All others have the same
    /// outcome whether the reward works or not.
    pub fn was_due(&self, scores_invalid: bool) -> bool {
        match self {
            Self::Scored(scored) => {
                !scored.uncounted && (scores_invalid || self.part(VALID) != Some(0.0))
            }
            Self::Abstained { is_beyond_budget, .. } => !is_beyond_budget,
            Self::Failed { .. } => true,
        }
    }

    /// Returns an iterator over the components. That of a completion without a score is its validity,
    /// if the task knows it.
    pub fn parts(&self) -> impl Iterator<Item = (&PartName, f64)> {
        const NAME: &PartName = &Cow::Borrowed(VALID);
        let scored = self.scored().into_iter().flat_map(|scored| &scored.parts);
        let valid = self.validity_without_score().map(|valid| (NAME, valid));
        scored.map(|(name, value)| (name, *value)).chain(valid)
    }

    fn validity_without_score(&self) -> Option<f64> {
        match self {
            Self::Scored(_) => None,
            Self::Abstained { valid, .. } | Self::Failed { valid, .. } => {
                valid.map(|valid| f64::from(u8::from(valid)))
            }
        }
    }

    /// Returns the value of a component.
    ///
    /// If there is no component with this exact name, the first component of a composite reward
    /// whose last segment matches is returned. For example, `qed` matches `looks.qed`.
    pub fn part(&self, name: &str) -> Option<f64> {
        let Self::Scored(scored) = self else {
            return self.validity_without_score().filter(|_| name == VALID);
        };
        let of = |is: &dyn Fn(&str) -> bool| {
            scored.parts.iter().find(|(part, _)| is(part)).map(|(_, value)| *value)
        };
        let is_inner = |part: &str| part.rsplit_once('.').is_some_and(|(_, inner)| inner == name);
        of(&|part| part == name).or_else(|| of(&is_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_completions_the_reward_had_to_score() {
        let scored = |valid: f64| Scored::new(vec![(1.0, 0.0)], vec![(VALID.into(), valid)]);
        let filtered = Scored { uncounted: true, ..scored(1.0) };
        for (outcome, due, due_if_scores_invalid) in [
            (Outcome::Scored(scored(1.0)), true, true),
            (Outcome::Scored(scored(0.0)), false, true),
            (Outcome::Scored(Scored::new(vec![(1.0, 0.0)], Vec::new())), true, true),
            (Outcome::Scored(filtered), false, false),
            (Outcome::abstained(), true, true),
            (Outcome::failed("boom"), true, true),
            (Outcome::beyond_budget(), false, false),
        ] {
            let found = [false, true].map(|scores_invalid| outcome.was_due(scores_invalid));
            assert_eq!(found, [due, due_if_scores_invalid], "{outcome:?}");
        }
    }

    #[test]
    fn outcomes_without_a_score_know_their_validity() {
        for mut outcome in [Outcome::abstained(), Outcome::failed("x"), Outcome::beyond_budget()] {
            assert_eq!(outcome.part(VALID), None);
            outcome.set_validity(true);
            assert_eq!((outcome.part(VALID), outcome.total()), (Some(1.0), None), "{outcome:?}");
        }
    }
}

//! Samples: completions with everything that a step computes for them.

use std::borrow::Cow;

use crate::{Completion, Prompt};

/// A prompt and its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The prompt.
    pub prompt: Prompt,
    /// Its samples, in the order of [`crate::SampleKey::sample`].
    pub samples: Vec<Sample>,
}

/// A completion and its data. Each stage of a step sets its own fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The completion.
    pub completion: Completion,
    /// The text that the reward function scores.
    pub text: String,
    /// The outcome of the reward function, once scored.
    pub outcome: Option<Outcome>,
    /// The bonus added to the reward before advantages are computed, if any.
    pub bonus: Option<Bonus>,
    /// The advantage; 0 until it is computed.
    pub advantage: f64,
    /// Terms of each token, if recorded.
    pub trace: Option<TokenTrace>,
}

/// A bonus: `weight · value` is added to a reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bonus {
    /// The weight.
    pub weight: f64,
    /// The value.
    pub value: f64,
}

/// Terms of the tokens of a completion; each list has one entry per action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenTrace {
    /// `log π_θ` in the first update, which is `log π_old`, in nats.
    pub logprobs: Vec<f64>,
    /// `log π_ref`, in nats.
    pub ref_logprobs: Vec<f64>,
    /// Entropy of the policy in the first update, in nats.
    pub entropies: Vec<f64>,
    /// ∂loss/∂log π_θ of the token, summed over the updates of the step; negative if the step makes
    /// the token more probable. Without the exact KL and the entropy bonus, which are functions of
    /// whole distributions.
    pub gradients: Vec<f64>,
    /// The same of the surrogate alone.
    pub surrogate_gradients: Vec<f64>,
    /// Whether the updates moved the token, or why not: one word if all updates agree, else one
    /// word per update, separated by `+`.
    pub outcomes: Vec<String>,
}

/// Name of a reward component or term.
pub type PartName = Cow<'static, str>;

/// The outcome of a reward function for a completion.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A score.
    Scored(Scored),
    /// The reward abstains: the completion is excluded from the group's mean and gets no advantage.
    Abstained,
    /// The score could not be computed.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// A score and its components.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The objective: `Σ weight · value` over [`Self::terms`].
    pub total: f64,
    /// Weight and value of each reward function, in the same order for every completion, for other
    /// aggregations (GDPO).
    pub terms: Vec<(f64, f64)>,
    /// Unweighted components by name. A completion may lack some: an invalid molecule has no QED.
    pub parts: Vec<(PartName, f64)>,
}

impl Group {
    /// Creates samples from completions.
    pub fn new(prompt: Prompt, completions: impl IntoIterator<Item = Completion>) -> Self {
        Self { prompt, samples: completions.into_iter().map(Sample::from).collect() }
    }

    /// Returns the completions of its samples.
    pub fn completions(&self) -> impl ExactSizeIterator<Item = &Completion> {
        self.samples.iter().map(|sample| &sample.completion)
    }
}

impl From<Completion> for Sample {
    /// Creates a sample from a completion.
    fn from(completion: Completion) -> Self {
        Self {
            completion,
            text: String::new(),
            outcome: None,
            bonus: None,
            advantage: 0.0,
            trace: None,
        }
    }
}

impl Sample {
    /// Returns the reward without a bonus, if scored.
    pub fn reward(&self) -> Option<f64> {
        self.outcome.as_ref()?.total()
    }

    /// Returns the score with its components, if scored.
    pub fn scored(&self) -> Option<&Scored> {
        match self.outcome.as_ref()? {
            Outcome::Scored(scored) => Some(scored),
            Outcome::Abstained | Outcome::Failed { .. } => None,
        }
    }

    /// Returns why the reward failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.outcome.as_ref()?.failure()
    }
}

impl Bonus {
    /// Returns the weighted bonus.
    pub fn total(self) -> f64 {
        self.weight * self.value
    }
}

impl Scored {
    /// Creates a score as the weighted sum of `terms`.
    pub fn new(terms: Vec<(f64, f64)>, parts: Vec<(PartName, f64)>) -> Self {
        Self { total: terms.iter().map(|(weight, value)| weight * value).sum(), terms, parts }
    }
}

impl Outcome {
    /// Returns the total score, if there is one.
    pub fn total(&self) -> Option<f64> {
        match self {
            Self::Scored(scored) => Some(scored.total),
            Self::Abstained | Self::Failed { .. } => None,
        }
    }

    /// Returns why the score could not be computed, if so.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { reason } => Some(reason),
            Self::Scored(_) | Self::Abstained => None,
        }
    }

    /// Returns whether the completion was scored and is valid.
    pub fn is_valid(&self) -> bool {
        self.total().is_some() && self.part("valid") != Some(0.0)
    }

    /// Returns the component of this name, or else the first one nested in a composite reward
    /// (`qed` finds `looks.qed`), so that components are found inside of other rewards too.
    pub fn part(&self, name: &str) -> Option<f64> {
        let Self::Scored(scored) = self else { return None };
        let of = |is: &dyn Fn(&str) -> bool| {
            scored.parts.iter().find(|(part, _)| is(part)).map(|(_, value)| *value)
        };
        let is_inner = |part: &str| part.rsplit_once('.').is_some_and(|(_, inner)| inner == name);
        of(&|part| part == name).or_else(|| of(&is_inner))
    }
}

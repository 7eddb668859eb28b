//! The one record of a sampled completion, from the rollout to the files of a run.

use std::borrow::Cow;

use crate::{Completion, Prompt};

/// A prompt and the samples that were drawn for it, which are compared with one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The prompt.
    pub prompt: Prompt,
    /// Its samples, in the order of [`crate::SampleKey::sample`].
    pub samples: Vec<Sample>,
}

/// A completion and what is known about it so far: each stage of a step fills in its own fields and changes no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What was sampled.
    pub completion: Completion,
    /// The completion as text, as the reward function sees it.
    pub text: String,
    /// The verdict of the reward function; `None` until it was asked.
    pub outcome: Option<Outcome>,
    /// What is added to the reward before advantages are computed, if there is such a bonus.
    pub bonus: Option<Bonus>,
    /// The advantage; 0 until it is computed.
    pub advantage: f64,
    /// What the updates computed for each token, if that is recorded.
    pub trace: Option<TokenTrace>,
}

/// A bonus: `weight · value` is added to a reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bonus {
    /// What a value of 1 is worth.
    pub weight: f64,
    /// The value.
    pub value: f64,
}

/// What a step computed for the tokens of a completion; each list has one entry per action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenTrace {
    /// `log π_θ` in the first update, which is `log π_old`, in nats.
    pub logprobs: Vec<f64>,
    /// `log π_ref`, in nats.
    pub ref_logprobs: Vec<f64>,
    /// Entropy of the policy's distribution in the first update, in nats.
    pub entropies: Vec<f64>,
    /// ∂loss/∂log π_θ of the token, summed over the updates of the step: below 0 where the step makes it likelier.
    /// The exact KL and the entropy bonus are functions of whole distributions and not part of it.
    pub gradients: Vec<f64>,
    /// The same of the surrogate alone, without a KL penalty.
    pub surrogate_gradients: Vec<f64>,
    /// Whether the updates moved the token, or why not: one word where all updates agree, else one word per update with
    /// `+` between them.
    pub outcomes: Vec<String>,
}

/// The name of a reward component or term: the reward's own, or one that a configuration gives it.
pub type PartName = Cow<'static, str>;

/// The verdict of a reward function on one completion.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A score.
    Scored(Scored),
    /// The reward has nothing to say of this completion: it leaves the group's mean and gets no advantage.
    Abstained,
    /// The score could not be computed.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
}

/// A score and its components.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// What is maximised: `Σ weight · value` over [`Self::terms`].
    pub total: f64,
    /// Weight and value of each reward function, the same functions in the same order for every completion,
    /// for who aggregates them otherwise (GDPO).
    pub terms: Vec<(f64, f64)>,
    /// Components by name, before weights. Not every completion has every one: an invalid molecule has no QED.
    pub parts: Vec<(PartName, f64)>,
}

impl Group {
    /// Samples of which nothing but the completion is known.
    pub fn new(prompt: Prompt, completions: impl IntoIterator<Item = Completion>) -> Self {
        Self { prompt, samples: completions.into_iter().map(Sample::from).collect() }
    }

    /// The completions of its samples.
    pub fn completions(&self) -> impl ExactSizeIterator<Item = &Completion> {
        self.samples.iter().map(|sample| &sample.completion)
    }
}

impl From<Completion> for Sample {
    /// A sample of which nothing else is known.
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
    /// The reward, without a bonus; `None` unless it was scored.
    pub fn reward(&self) -> Option<f64> {
        self.outcome.as_ref()?.total()
    }

    /// The score with its components; `None` unless it was scored.
    pub fn scored(&self) -> Option<&Scored> {
        match self.outcome.as_ref()? {
            Outcome::Scored(scored) => Some(scored),
            Outcome::Abstained | Outcome::Failed { .. } => None,
        }
    }

    /// Why the reward could not be computed, if it could not.
    pub fn failure(&self) -> Option<&str> {
        self.outcome.as_ref()?.failure()
    }
}

impl Bonus {
    /// What is added to the reward.
    pub fn total(self) -> f64 {
        self.weight * self.value
    }
}

impl Scored {
    /// The weighted sum of `terms`, made of `parts`.
    pub fn new(terms: Vec<(f64, f64)>, parts: Vec<(PartName, f64)>) -> Self {
        Self { total: terms.iter().map(|(weight, value)| weight * value).sum(), terms, parts }
    }
}

impl Outcome {
    /// The score, if there is one.
    pub fn total(&self) -> Option<f64> {
        match self {
            Self::Scored(scored) => Some(scored.total),
            Self::Abstained | Self::Failed { .. } => None,
        }
    }

    /// Why the score could not be computed, if it could not.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { reason } => Some(reason),
            Self::Scored(_) | Self::Abstained => None,
        }
    }

    /// Whether it is a score of something valid: not that of a string that is no molecule.
    pub fn is_valid(&self) -> bool {
        self.total().is_some() && self.part("valid") != Some(0.0)
    }

    /// The component of this name; or else the first that a part of a composite reward has by it (`qed` finds
    /// `looks.qed`), so that who knows a reward's components finds them inside of another as well.
    pub fn part(&self, name: &str) -> Option<f64> {
        let Self::Scored(scored) = self else { return None };
        let of = |is: &dyn Fn(&str) -> bool| {
            scored.parts.iter().find(|(part, _)| is(part)).map(|(_, value)| *value)
        };
        let is_inner = |part: &str| part.rsplit_once('.').is_some_and(|(_, inner)| inner == name);
        of(&|part| part == name).or_else(|| of(&is_inner))
    }
}

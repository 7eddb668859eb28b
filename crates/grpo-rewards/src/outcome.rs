//! What a reward sees of a completion, and what it says of it.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The name of a part or a term: the reward's own, or one that a configuration gives it.
pub type PartName = Cow<'static, str>;

/// A function from completions to scores.
pub trait Reward: Send + Sync {
    /// Scores a batch: one outcome for each completion, in their order, the same whether a completion comes
    /// alone or among others.
    fn score(&self, samples: &[Sample]) -> Vec<Outcome>;

    /// The names of all parts that an outcome of it can have, in the order in which they are shown: the columns of the
    /// files that completions are written to.
    fn parts(&self) -> Vec<PartName>;

    /// Names of [`Scored::terms`], in their order; for metrics of each, where there are several.
    fn term_names(&self) -> Vec<PartName> {
        Vec::new()
    }

    /// Whether completions of a prompt with this record can be scored at all, before any is drawn.
    ///
    /// # Errors
    /// What the record lacks.
    fn check(&self, _fields: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}

/// A completion as a reward sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The completion.
    pub text: String,
    /// What else the record of its prompt says (a right answer, the post that is replied to).
    pub fields: Map<String, Value>,
}

impl From<&str> for Sample {
    /// Of a prompt that says nothing else.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), fields: Map::new() }
    }
}

/// The verdict on one completion.
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

/// A score and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// What is maximised: `Σ weight · value` over [`Self::terms`].
    pub total: f64,
    /// Weight and value of each reward function, the same functions in the same order for every completion,
    /// for who aggregates them otherwise (GDPO).
    pub terms: Vec<(f64, f64)>,
    /// Parts by name, before weights. Not every completion has every part: an invalid molecule has no QED.
    pub parts: Vec<(PartName, f64)>,
}

impl Scored {
    /// The weighted sum of `terms`, made of `parts`.
    pub fn new(terms: Vec<(f64, f64)>, parts: Vec<(PartName, f64)>) -> Self {
        Self { total: terms.iter().map(|(weight, value)| weight * value).sum(), terms, parts }
    }
}

impl Outcome {
    /// The score, where there is one.
    pub fn total(&self) -> Option<f64> {
        match self {
            Self::Scored(scored) => Some(scored.total),
            Self::Abstained | Self::Failed { .. } => None,
        }
    }

    /// Why the score could not be computed, where it could not.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { reason } => Some(reason),
            Self::Scored(_) | Self::Abstained => None,
        }
    }

    /// The part of this name, where there is one; or else the first that a part of a composite reward has by it (`qed` finds
    /// `looks.qed`), so that who knows a reward's parts finds them inside of another as well.
    pub fn part(&self, name: &str) -> Option<f64> {
        let Self::Scored(scored) = self else { return None };
        let of = |is: &dyn Fn(&str) -> bool| {
            scored.parts.iter().find(|(part, _)| is(part)).map(|(_, value)| *value)
        };
        let is_inner = |part: &str| part.rsplit_once('.').is_some_and(|(_, inner)| inner == name);
        of(&|part| part == name).or_else(|| of(&is_inner))
    }
}

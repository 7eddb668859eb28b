//! Whether an update moved each token, and if not, why.

use std::fmt;
use std::str::FromStr;

use crate::LossTerms;
use crate::terms::{SequenceTerms, TokenTerms};

/// Whether the surrogate of a token moved the policy, or the first reason why not, in the order of the loss. The KL
/// penalty and the entropy bonus do not count: they pull at every token, as the masks do not touch them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenOutcome {
    /// Its log-probability has a gradient.
    Moved,
    /// Its completion has no reward: the reward function abstained or failed.
    NotScored,
    /// Its completion is worth exactly as much as its baseline, as all of a group with equal rewards are.
    ZeroAdvantage,
    /// The off-policy mask dropped its sequence.
    OffPolicy,
    /// The high-entropy mask dropped it.
    LowEntropy,
    /// The mismatch correction masked it: its sampler was too far from the trainer.
    Mismatch,
    /// The ratio is where the surrogate is flat; with VESPO, the weight of the sequence is 0.
    Clipped,
}

impl TokenOutcome {
    /// All of them, in the order in which they are tested.
    pub const ALL: [Self; 7] = [
        Self::Moved,
        Self::NotScored,
        Self::ZeroAdvantage,
        Self::OffPolicy,
        Self::LowEntropy,
        Self::Mismatch,
        Self::Clipped,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::NotScored => "not_scored",
            Self::ZeroAdvantage => "zero_advantage",
            Self::OffPolicy => "off_policy",
            Self::LowEntropy => "low_entropy",
            Self::Mismatch => "mismatch",
            Self::Clipped => "clipped",
        }
    }

    /// The outcomes of a token in the updates of a step: one word where all are equal, else one per update with `+`
    /// between them.
    pub fn join(outcomes: impl IntoIterator<Item = Self>) -> String {
        let mut names: Vec<&str> = outcomes.into_iter().map(Self::name).collect();
        if names.windows(2).all(|pair| pair[0] == pair[1]) {
            names.truncate(1);
        }
        names.join("+")
    }

    /// The outcomes that [`Self::join`] made `words` of; one stands for all updates.
    ///
    /// # Errors
    /// A word that is not an outcome.
    pub fn split(words: &str) -> Result<Vec<Self>, String> {
        words.split('+').map(str::parse).collect()
    }

    fn new(token: &TokenTerms, sequence: &SequenceTerms, is_scored: bool) -> Self {
        let is_masked = token.sampling.is_some_and(|sampling| sampling.weight == Some(0.0));
        if !is_scored {
            Self::NotScored
        } else if sequence.advantage == 0.0 {
            Self::ZeroAdvantage
        } else if token.surrogate_gradient != 0.0 {
            Self::Moved
        } else if sequence.is_off_policy == Some(true) {
            Self::OffPolicy
        } else if token.is_low_entropy {
            Self::LowEntropy
        } else if sequence.vespo_phi.is_none() && is_masked {
            Self::Mismatch
        } else {
            Self::Clipped
        }
    }
}

impl fmt::Display for TokenOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TokenOutcome {
    type Err = String;

    /// # Errors
    /// Another name.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|outcome| outcome.name() == text);
        found.ok_or_else(|| format!("`{text}` is not the outcome of a token"))
    }
}

impl LossTerms {
    /// The outcome of each token, `[n]`; `is_scored` says whether each sequence has a reward.
    ///
    /// Where it is not [`TokenOutcome::Moved`], the derivative of the surrogate by `log π_θ` of the token is exactly 0.
    pub fn outcomes(&self, is_scored: &[bool]) -> Vec<TokenOutcome> {
        let sequences = self.sequences.iter().zip(is_scored);
        sequences
            .flat_map(|(sequence, &is_scored)| {
                let tokens = sequence.tokens.iter();
                tokens.map(move |token| TokenOutcome::new(token, sequence, is_scored))
            })
            .collect()
    }
}

//! Token outcomes: whether an update affected a token and, if not, the reason.

use std::fmt;
use std::str::FromStr;

use crate::LossTerms;
use crate::terms::{SequenceTerms, TokenTerms};

/// Whether the surrogate has a gradient for a token. If it doesn't, the variant is the first reason
/// that applies, in the order in which the loss is computed. The KL penalty and the entropy bonus
/// are ignored, because masks do not affect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenOutcome {
    /// The token's log-probability has a gradient.
    Moved,
    /// The reward function abstained or failed on this completion.
    NotScored,
    /// The completion's reward equals its baseline.
    ZeroAdvantage,
    /// The off-policy mask dropped the sequence.
    OffPolicy,
    /// The high-entropy mask dropped the token.
    LowEntropy,
    /// The mismatch correction masked the token.
    Mismatch,
    /// The ratio is in a range where the surrogate is constant. For VESPO, the sequence weight is
    /// 0.
    Clipped,
}

impl TokenOutcome {
    /// All outcomes, in the order in which they are tested.
    pub const ALL: [Self; 7] = [
        Self::Moved,
        Self::NotScored,
        Self::ZeroAdvantage,
        Self::OffPolicy,
        Self::LowEntropy,
        Self::Mismatch,
        Self::Clipped,
    ];

    /// Returns the name used in output files.
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

    /// Joins the outcomes of one token across several updates. Returns a single name if all
    /// outcomes are equal, and otherwise one name per update, separated by `+`.
    pub fn join(outcomes: impl IntoIterator<Item = Self>) -> String {
        let mut names: Vec<&str> = outcomes.into_iter().map(Self::name).collect();
        if names.windows(2).all(|pair| pair[0] == pair[1]) {
            names.truncate(1);
        }
        names.join("+")
    }

    /// Parses a string written by [`Self::join`].
    ///
    /// # Errors
    /// Returns an error if an outcome is unknown.
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
    /// Returns an error if the name is unknown.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|outcome| outcome.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a token outcome"))
    }
}

impl LossTerms {
    /// Returns the outcome of each token, `[n]`. `is_scored` indicates which sequences have a
    /// reward.
    ///
    /// Unless the outcome is [`TokenOutcome::Moved`], the derivative of the surrogate with respect
    /// to the token's `log π_θ` is exactly 0.
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

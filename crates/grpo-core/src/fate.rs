//! What became of each token in an update: whether its surrogate moved the policy, and if not, what kept it.

use std::fmt;
use std::str::FromStr;

use crate::statistics::Sequence;
use crate::{BatchTotals, HostTokens, LossConfig, RatioLevel, Surrogate};

/// Whether the surrogate of a token moved the policy, or the first reason why not, in the order of the loss. The KL
/// penalty and the entropy bonus are not asked: they pull at every token, as the masks do not touch them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenFate {
    /// Its log-probability has a gradient.
    Moved,
    /// Nothing scored its completion: the reward abstained or failed.
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

impl TokenFate {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 7] = [
        Self::Moved,
        Self::NotScored,
        Self::ZeroAdvantage,
        Self::OffPolicy,
        Self::LowEntropy,
        Self::Mismatch,
        Self::Clipped,
    ];

    /// As it stands in files.
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
}

impl fmt::Display for TokenFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TokenFate {
    type Err = String;

    /// # Errors
    /// Another name.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fate| fate.name() == text);
        found.ok_or_else(|| format!("`{text}` is no fate of a token"))
    }
}

/// The fate of each token in the update that `tokens` were seen in.
///
/// Where it is not [`TokenFate::Moved`], the derivative of the surrogate by `log π_θ` of the token is exactly 0. The
/// reverse holds but for numbers too small for their precision, and for a ratio at a bound: the comparisons are made in
/// f64 here.
///
/// # Shapes
/// - is_scored: `[b]`
/// - result: `[b · t]`, `None` in places that are no actions
pub fn token_fates(
    tokens: &HostTokens<'_>,
    is_scored: &[bool],
    config: &LossConfig,
    totals: &BatchTotals,
) -> Vec<Option<TokenFate>> {
    let mut fates = vec![None; tokens.logprobs.len()];
    for (row, &is_scored) in is_scored.iter().enumerate() {
        let sequence = Sequence::of(tokens, row);
        if sequence.places.is_empty() {
            continue;
        }
        let of_row = of_sequence(&sequence, is_scored, config, totals);
        for (&place, fate) in sequence.places.iter().zip(of_row) {
            fates[place] = Some(fate);
        }
    }
    fates
}

fn of_sequence(
    sequence: &Sequence<'_>,
    is_scored: bool,
    config: &LossConfig,
    totals: &BatchTotals,
) -> Vec<TokenFate> {
    let all = |fate| vec![fate; sequence.places.len()];
    if !is_scored {
        return all(TokenFate::NotScored);
    }
    if sequence.advantage == 0.0 {
        return all(TokenFate::ZeroAdvantage);
    }
    let is_dropped = config.off_policy_threshold.is_some_and(|threshold| {
        sequence.advantage < 0.0 && sequence.mean_distance(config.mismatch.is_some()) > threshold
    });
    if is_dropped {
        return all(TokenFate::OffPolicy);
    }
    let weights = mismatch_weights(sequence, config);
    let is_flat = flat(sequence, config);
    let own: Vec<TokenFate> = (0..sequence.places.len())
        .map(|i| {
            let entropy = sequence.tokens.entropies[sequence.places[i]];
            if totals.high_entropy.is_some_and(|kept| entropy < kept.threshold) {
                TokenFate::LowEntropy
            } else if weights.as_ref().is_some_and(|weights| weights[i] == 0.0) {
                TokenFate::Mismatch
            } else if is_flat[i] {
                TokenFate::Clipped
            } else {
                TokenFate::Moved
            }
        })
        .collect();
    // The one ratio of a sequence is made of all its tokens: where the surrogate of one has a gradient, each of them has.
    let is_shared = config.ratio_level == RatioLevel::Sequence
        && matches!(config.surrogate, Surrogate::Clipped { .. } | Surrogate::Sapo { .. });
    if is_shared && own.contains(&TokenFate::Moved) { all(TokenFate::Moved) } else { own }
}

/// What the surrogate of each token is multiplied by, where it is.
fn mismatch_weights(sequence: &Sequence<'_>, config: &LossConfig) -> Option<Vec<f64>> {
    // VESPO has it in its weight of the sequence.
    let is_factor = !matches!(config.surrogate, Surrogate::Vespo { .. });
    let correction = config.mismatch.filter(|_| is_factor)?;
    let logs = sequence.log_mismatch(sequence.tokens.sampling_logprobs?);
    Some(match config.mismatch.map(|correction| correction.level)? {
        RatioLevel::Token => logs.iter().map(|log| correction.apply(log.exp())).collect(),
        RatioLevel::Sequence => {
            vec![correction.apply(logs.iter().sum::<f64>().exp()); logs.len()]
        }
    })
}

/// Whether the surrogate has no derivative at each token.
fn flat(sequence: &Sequence<'_>, config: &LossConfig) -> Vec<bool> {
    let advantage = sequence.advantage;
    match config.surrogate {
        Surrogate::Clipped { epsilon_low, epsilon_high, delta } => {
            let (low, high) = (1.0 - epsilon_low, 1.0 + epsilon_high);
            let delta = delta.unwrap_or(f64::INFINITY);
            let is_flat = |ratio: f64| {
                let (bounded, clipped) = (ratio.min(delta), ratio.clamp(low, high));
                // The smaller of the two products is the one that counts.
                match bounded * advantage <= clipped * advantage {
                    true => ratio > delta,
                    false => !(low..=high).contains(&ratio),
                }
            };
            sequence.ratios(config.ratio_level).into_iter().map(is_flat).collect()
        }
        Surrogate::Vespo { .. } => {
            vec![sequence.vespo_phi(config) == 0.0; sequence.places.len()]
        }
        Surrogate::Cispo { .. } | Surrogate::Sapo { .. } | Surrogate::Reinforce {} => {
            vec![false; sequence.places.len()]
        }
    }
}

#![doc = include_str!("../README.md")]

mod adaptive_kl;
mod advantages;
mod draws;
mod entropy;
mod frozen;
mod gradient;
mod kl;
mod loss;
mod metrics;
mod score;
mod score_case;

pub use adaptive_kl::adaptive_kl;
pub use advantages::advantages;
pub use draws::Draws;
pub use entropy::high_entropy;
pub use gradient::{Gradient, gradient, near_a_kink};
pub use kl::sequence_kl;
pub use loss::loss;
pub use metrics::metrics;
pub use score::{log_policy, score, score_gradients};
pub use score_case::{ScoreCase, Under};

use grpo_core::BatchTotals;

/// Values for each row and token, `[b][t]`.
pub type Rows = Vec<Vec<f64>>;

/// Loss inputs as plain numbers: `b` sequences with `t` positions each. Values at positions where
/// `mask` is false are never read.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCase {
    /// `log π_θ`, `[b][t]`.
    pub logprobs: Rows,
    /// `log π_old`, `[b][t]`. `None` if π_old equals π_θ and is held constant.
    pub old: Option<Rows>,
    /// `log π_ref`, `[b][t]`. Required for the `kl` metric.
    pub reference: Option<Rows>,
    /// Log-probabilities recorded by the sampler, `[b][t]`.
    pub sampling: Option<Rows>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[b][t]`.
    pub exact_kl: Option<Rows>,
    /// Entropy of π_θ in nats, `[b][t]`.
    pub entropies: Rows,
    /// Advantage for each sequence, `[b]`.
    pub advantages: Vec<f64>,
    /// True for action tokens, `[b][t]`.
    pub mask: Vec<Vec<bool>>,
    /// Entropy bonus coefficient.
    pub entropy_coef: f64,
}

impl LossCase {
    /// Returns the number of sequences.
    pub fn rows(&self) -> usize {
        self.mask.len()
    }

    /// Returns the number of positions per sequence.
    pub fn width(&self) -> usize {
        self.mask.first().map_or(0, Vec::len)
    }

    /// Returns the number of action tokens.
    pub fn tokens(&self) -> usize {
        self.mask.iter().flatten().filter(|&&active| active).count()
    }

    /// Returns the positions of action tokens in sequence `b`.
    pub fn active(&self, b: usize) -> Vec<usize> {
        (0..self.width()).filter(|&t| self.mask[b][t]).collect()
    }

    /// Returns the totals for an optimizer batch that consists of this case only. The maximum
    /// completion length is the width of the case. If `share` is set, only this fraction of the
    /// tokens is kept, selected by entropy.
    pub fn totals(&self, share: Option<f64>) -> BatchTotals {
        BatchTotals {
            sequences: self.rows(),
            tokens: self.tokens(),
            max_completion_length: self.width(),
            high_entropy: share.map(|share| high_entropy(&self.active_entropies(), share)),
        }
    }

    /// Returns the entropies of all action tokens.
    pub fn active_entropies(&self) -> Vec<f64> {
        let row = |b| self.active(b).into_iter().map(move |t| self.entropies[b][t]);
        (0..self.rows()).flat_map(row).collect()
    }
}

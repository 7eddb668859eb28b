//! Independent implementations in plain f64 loops written from the formulas: slow, and short enough
//! to check by reading. They share the configuration types with `grpo-core`, but no computation.

mod adaptive_kl;
mod advantages;
mod entropy;
mod frozen;
mod gradient;
mod kl;
mod loss;
mod metrics;
mod score;

pub use adaptive_kl::adaptive_kl;
pub use advantages::advantages;
pub use entropy::high_entropy;
pub use gradient::{Gradient, gradient, near_a_kink};
pub use kl::sequence_kl;
pub use loss::loss;
pub use metrics::metrics;
pub use score::{log_policy, score, score_gradients};

use grpo_core::BatchTotals;

/// Numbers by row and token, `[b][t]`.
pub type Rows = Vec<Vec<f64>>;

/// Inputs of a loss in plain numbers: `b` sequences of `t` positions. Values at positions with a
/// false `mask` are never read.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCase {
    /// `log π_θ`, `[b][t]`.
    pub logprobs: Rows,
    /// `log π_old`, `[b][t]`; `None` if π_old is the constant π_θ.
    pub old: Option<Rows>,
    /// `log π_ref`, `[b][t]`; needed for the metric `kl`.
    pub reference: Option<Rows>,
    /// Log-probabilities recorded by the sampler, `[b][t]`.
    pub sampling: Option<Rows>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[b][t]`.
    pub exact_kl: Option<Rows>,
    /// Entropy of π_θ in nats, `[b][t]`.
    pub entropies: Rows,
    /// Advantage of each sequence, `[b]`.
    pub advantages: Vec<f64>,
    /// True for action tokens, `[b][t]`.
    pub mask: Vec<Vec<bool>>,
    /// Weight of the entropy bonus.
    pub entropy_coef: f64,
}

impl LossCase {
    /// Sequences.
    pub fn rows(&self) -> usize {
        self.mask.len()
    }

    /// Returns the number of positions of each sequence.
    pub fn width(&self) -> usize {
        self.mask.first().map_or(0, Vec::len)
    }

    /// Action tokens.
    pub fn tokens(&self) -> usize {
        self.mask.iter().flatten().filter(|&&active| active).count()
    }

    /// Returns the action positions of sequence `b`.
    pub fn active(&self, b: usize) -> Vec<usize> {
        (0..self.width()).filter(|&t| self.mask[b][t]).collect()
    }

    /// Returns the totals of this case as a whole optimizer batch, with completions no longer than
    /// its width; `share` selects the tokens with the highest entropy.
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

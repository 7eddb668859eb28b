//! The mathematics once more, in plain f64 loops written from the formulas: slow, and short enough to be
//! checked by eye. It shares the configuration types with `grpo-core`, and no computation.

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

/// What a loss is computed from, in plain numbers: `b` sequences of `t` places each. What stands in places
/// where `mask` is false is never read.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCase {
    /// `log π_θ`, `[b][t]`.
    pub logprobs: Rows,
    /// `log π_old`, `[b][t]`; `None` where π_old is π_θ, held fast.
    pub old: Option<Rows>,
    /// `log π_ref`, `[b][t]`; metric `kl` exists only with it.
    pub reference: Option<Rows>,
    /// What the sampler recorded, `[b][t]`.
    pub sampling: Option<Rows>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[b][t]`.
    pub exact_kl: Option<Rows>,
    /// Entropy of π_θ in nats, `[b][t]`.
    pub entropies: Rows,
    /// Â of each sequence, `[b]`.
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

    /// Places of each sequence.
    pub fn width(&self) -> usize {
        self.mask.first().map_or(0, Vec::len)
    }

    /// Action tokens.
    pub fn tokens(&self) -> usize {
        self.mask.iter().flatten().filter(|&&active| active).count()
    }

    /// The places of sequence `b` that are actions.
    pub fn active(&self, b: usize) -> Vec<usize> {
        (0..self.width()).filter(|&t| self.mask[b][t]).collect()
    }

    /// Of this case as a whole optimizer batch, where no completion could be longer than it is wide; the
    /// tokens with the highest entropy are chosen where `share` is given.
    pub fn totals(&self, share: Option<f64>) -> BatchTotals {
        BatchTotals {
            sequences: self.rows(),
            tokens: self.tokens(),
            max_completion_length: self.width(),
            high_entropy: share.map(|share| high_entropy(&self.active_entropies(), share)),
        }
    }

    /// The entropies of all action tokens.
    pub fn active_entropies(&self) -> Vec<f64> {
        let row = |b| self.active(b).into_iter().map(move |t| self.entropies[b][t]);
        (0..self.rows()).flat_map(row).collect()
    }
}

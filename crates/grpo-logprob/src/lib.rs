//! The one path from logits to log-probabilities.
//!
//! A sampler and a trainer that disagree about a token's probability train on a wrong ratio, and nobody
//! notices. So both come here, and nothing else in the workspace takes a log-softmax: [`draw`] picks a
//! token from one row of logits and says its log-probability, [`score`] gives the differentiable
//! log-probabilities of tokens that were drawn. Both mean the distribution that
//! [`SamplingDistribution`](grpo_sampling::SamplingDistribution) describes.

mod draw;
mod score;
mod truncate;

pub use draw::{Draw, NotFinite, draw};
pub use score::{Scores, score};

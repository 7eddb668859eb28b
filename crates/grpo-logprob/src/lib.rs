//! The one path from logits to log-probabilities.
//!
//! A sampler and a trainer that disagree about a token's probability train on a wrong ratio, and nobody
//! notices. So both come here, and nothing else in the workspace takes a log-softmax: [`draw`] picks a
//! token from one row of logits and says its log-probability, [`score`] gives the differentiable
//! log-probabilities of tokens that were drawn. Both use the same [`SamplingDistribution`]: logits divided
//! by the temperature, forbidden ids left out, and, where sampling was truncated, a softmax over the ids
//! that were kept.

mod distribution;
mod draw;
mod score;

pub use distribution::{DistributionError, SamplingDistribution};
pub use draw::{Draw, NotFinite, draw};
pub use score::{Scores, score};

#![doc = include_str!("../README.md")]
//!
//! A sampler and a trainer that disagree about a token's probability train on a wrong ratio, and nobody
//! notices. So both come here, and nothing else in the workspace takes a log-softmax: [`draw`] picks a
//! token from one row of logits and says its log-probability; [`score`] gives the differentiable
//! log-probabilities and entropies of tokens that were drawn, from hidden states and the head's weights, and
//! never holds the logits of all positions; [`score_logits`] does the same from logits. All use the
//! distribution that [`SamplingSettings`] describe, checked into a [`SamplingDistribution`]: a repetition penalty, logits divided by the temperature,
//! forbidden ids left out, and, where sampling was truncated, a softmax over the ids that were kept.

mod backend;
mod distribution;
mod draw;
mod error;
mod fused;
mod head;
mod score;
mod settings;
mod targets;
mod tiles;
mod truncate;

pub use distribution::SamplingDistribution;
pub use draw::{Draw, NotFinite, draw, draw_rows};
pub use error::DistributionError;
pub use head::Head;
pub use score::{Scores, all_logprobs, exact_kl, score, score_logits};
pub use settings::SamplingSettings;
pub use targets::Targets;

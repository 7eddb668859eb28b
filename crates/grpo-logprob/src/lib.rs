#![doc = include_str!("../README.md")]
//!
//! A sampler and a trainer that disagree about a token's probability train on a wrong importance
//! ratio without any visible error. Both therefore use this crate, and no other crate of the
//! workspace computes a log-softmax. [`draw`] samples a token from a row of logits and returns its
//! log-probability. [`score`] computes differentiable log-probabilities and entropies of sampled
//! tokens from hidden states and the head's weights, without storing the logits of all positions;
//! [`score_logits`] computes them from logits. All of them use the distribution of
//! [`SamplingSettings`], checked into a
//! [`SamplingDistribution`]: a repetition penalty, logits divided by the temperature, forbidden ids removed and, if
//! sampling was truncated, a softmax over the kept ids.

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

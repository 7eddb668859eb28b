#![doc = include_str!("../README.md")]
//!
//! If a sampler and a trainer assign different probabilities to a token, importance ratios are
//! silently wrong. To avoid this, both use this crate. No other crate in the workspace computes a
//! log-softmax.
//!
//! [`draw`] samples a token from a row of logits and returns its log-probability. [`score`]
//! computes differentiable log-probabilities and entropies from hidden states and the head weights,
//! without storing the logits for all positions. [`score_logits`] does the same from logits.
//!
//! All functions use a [`SamplingDistribution`], which is created from [`SamplingSettings`]. It
//! consists of a repetition penalty, forbidden ids, a temperature and, if sampling is truncated, a
//! softmax over the ids that are kept.

mod backend;
mod distribution;
mod draw;
mod error;
mod fused;
mod head;
mod product;
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

//! What tokens are drawn from, as plain data.
//!
//! A sampler and a scorer have to mean the same distribution, so they share its description:
//! [`SamplingSettings`] as a user writes them, checked into a [`SamplingDistribution`]; and, for truncated
//! sampling, a [`TokenSet`] of the ids that could be drawn at one position. There are no tensors here and no
//! text, because tensors and stored completions both need the description
//! (docs/decisions/0007-sampling-distribution-crate.md).

mod distribution;
mod error;
mod settings;
mod token_set;
mod varint;

pub use distribution::SamplingDistribution;
pub use error::{DistributionError, TokenSetError};
pub use settings::SamplingSettings;
pub use token_set::{TokenSet, TokenSetIter};

#![doc = include_str!("../README.md")]
//!
//! - [`RewardSummary`] and [`RewardChange`] contain mean rewards with standard errors.
//! - [`Embedder`] computes vectors whose dot products are cosine similarities. [`HashedNgrams`] is
//!   an implementation that needs no model.
//! - [`words`] splits texts into words for all measures. [`self_bleu`] and [`distinct`] count
//!   n-grams.
//! - [`Diversity`] measures the diversity of texts and the contribution of each text.

mod diversity;
mod embedder;
mod hashed_ngrams;
mod ngrams;
mod rewards;
mod words;

pub use diversity::{Diversity, DiversityMeasure, NoEmbedder};
pub use embedder::{EmbedError, Embedder, cosine};
pub use hashed_ngrams::HashedNgrams;
pub use ngrams::{distinct, self_bleu};
pub use rewards::{Change, RewardChange, RewardSummary};
pub use words::{is_all_capitals, words};

#![doc = include_str!("../README.md")]
//!
//! - [`RewardSummary`] and [`RewardChange`] are means of rewards with their standard errors.
//! - [`Embedder`] makes vectors of texts, whose products are cosines; [`HashedNgrams`] is one without a model.
//! - [`words`] are the word tokens of every measure; [`self_bleu`] and [`distinct`] count runs of them.
//! - [`Diversity`] says how different texts are, and what each adds to it.

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

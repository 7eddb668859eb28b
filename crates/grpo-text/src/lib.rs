//! Measures of plain text: no tensors, no models, no files.
//!
//! - [`Embedder`] makes vectors of texts, whose products are cosines; [`HashedNgrams`] is one without a model.

mod embedder;
mod hashed_ngrams;

pub use embedder::{EmbedError, Embedder, cosine};
pub use hashed_ngrams::HashedNgrams;

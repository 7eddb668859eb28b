//! Embeddings of texts.

/// An embedder of texts.
pub trait Embedder: Send + Sync {
    /// Returns the length of a vector.
    fn width(&self) -> usize;

    /// Returns a vector of length 1 for each text, in order; all zeros for a text with nothing to
    /// compare. The vector of a text does not depend on other texts.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Returns an identifier of everything on which vectors depend; equal only for equal embedders.
    fn identity(&self) -> String;
}

/// Why a text cannot be embedded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot embed {text:?}: {fault}")]
pub struct EmbedError {
    /// Beginning of the text.
    pub text: String,
    /// The reason.
    pub fault: String,
}

/// Returns the cosine of two unit vectors, their product; 0 with a zero vector. Summed in f64 in
/// order.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

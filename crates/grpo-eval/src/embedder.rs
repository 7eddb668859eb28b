//! Text embeddings.

/// Computes embedding vectors of texts.
pub trait Embedder: Send + Sync {
    /// Returns the number of dimensions.
    fn width(&self) -> usize;

    /// Returns a unit vector for each text, in order. Texts without anything to compare get a zero
    /// vector. The vector of a text does not depend on the other texts.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Returns an identifier of everything that affects the vectors. Different embedders must
    /// return different identifiers.
    fn identity(&self) -> String;
}

/// Error for a text that cannot be embedded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot embed {text:?}: {fault}")]
pub struct EmbedError {
    /// First characters of the text.
    pub text: String,
    /// Reason for the failure.
    pub fault: String,
}

/// Returns the cosine similarity of two unit vectors, i.e. their dot product. It is 0 if one of
/// them is the zero vector. The sum is computed in f64 from first to last element.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

//! Texts as vectors.

/// What makes a vector of a text, so that texts can be compared.
pub trait Embedder: Send + Sync {
    /// Numbers of a vector.
    fn width(&self) -> usize;

    /// A vector of length 1 for each text, in their order; all zeros for a text that has nothing to compare. A text has
    /// the same vector whether it comes alone or among others.
    ///
    /// # Errors
    /// A text that no vector can be made of.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// What the vectors depend on, so that a file made of some can say which: equal for equal embedders only.
    fn identity(&self) -> String;
}

/// Why a text has no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no vector can be made of {text:?}: {fault}")]
pub struct EmbedError {
    /// Its beginning.
    pub text: String,
    /// Why.
    pub fault: String,
}

/// The cosine of two vectors of length 1, which is their product; 0 with one of zeros. It is summed in f64 from the
/// first number to the last.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

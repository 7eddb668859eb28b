//! How attention turns products of queries and keys into weights.

/// Attention weights are `softmax(cap · tanh(scale · Q Kᵀ / cap))` over the visible keys.
///
/// A number is the scale of a model without a window and a cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    /// Factor of the products of queries and keys.
    pub scale: f64,
    /// Number of keys that a query sees, including its own, if it does not see all before it (sliding
    /// window; Beltagy et al. 2020). At least 1, and only with causal attention.
    pub window: Option<usize>,
    /// Bound of the scores, which a hyperbolic tangent approaches (Gemma 2; Gemma Team 2024).
    pub cap: Option<f64>,
}

impl From<f64> for Scoring {
    fn from(scale: f64) -> Self {
        Self { scale, window: None, cap: None }
    }
}

impl Scoring {
    /// Returns the first of the positions that the query at `position` sees.
    pub(crate) fn first_visible(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Returns whether the kernels of GPUs can compute the weights.
    #[cfg(feature = "gpu")]
    pub(crate) fn is_plain(&self) -> bool {
        self.window.is_none() && self.cap.is_none()
    }

    /// Checks a window.
    ///
    /// # Panics
    /// Panics if a window is empty, or if attention is not causal.
    pub(crate) fn assert_fits(&self, causal: bool) {
        let is_fit = self.window.is_none_or(|window| window > 0 && causal);
        assert!(is_fit, "a window of {:?} keys, causal: {causal}", self.window);
    }
}

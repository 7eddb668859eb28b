//! Candidates for draws from truncated distributions.

/// The minimum that a truncated distribution keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truncation {
    /// Number of ids (top-k).
    pub ids: Option<usize>,
    /// Fraction of the total weight (top-p).
    pub mass: Option<f32>,
    /// Difference to the largest scaled logit, in nats (min-p).
    pub gap: Option<f32>,
}

/// Ids of a row that a truncated distribution may keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Likely {
    /// Ids in ascending order, and their logits after a penalty. All other ids have smaller logits.
    pub candidates: Vec<(u32, f32)>,
    /// `Σ exp(scaled logit − largest scaled logit)` over all ids that are not forbidden.
    pub total: f64,
}

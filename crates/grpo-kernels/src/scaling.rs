//! How logits are changed before a draw.

/// Changes to logits before a draw, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Scaling<'a> {
    /// Penalty for ids that a row has seen.
    pub penalty: Option<Penalty<'a>>,
    /// Ids that are never drawn, without duplicates.
    pub forbidden: &'a [u32],
    /// All logits are divided by it.
    pub temperature: f32,
}

/// A repetition penalty (Keskar et al. 2019, arXiv:1909.05858, as in transformers). The logit of an id
/// that a row has seen is divided by `factor` if positive and multiplied by it otherwise, once, no matter
/// how often the id occurs.
#[derive(Clone, Copy, Debug)]
pub struct Penalty<'a> {
    /// Seen ids of each row, in any order.
    pub seen: &'a [&'a [u32]],
    /// Greater than 0.
    pub factor: f32,
}

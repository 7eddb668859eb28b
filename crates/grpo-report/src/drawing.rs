//! Drawings of samples.

/// How to draw samples of a task, and how to tell which are equivalent.
#[derive(Clone, Copy, Debug)]
pub struct Drawing {
    /// Draws a sample as an `<svg>` element. Returns `None` if the sample cannot be drawn.
    pub draw: fn(&str) -> Option<String>,
    /// Returns the canonical form of a sample, if it has one.
    pub canonical: fn(&str) -> Option<String>,
}

//! Drawings of samples.

/// Draws a sample as an `<svg>` element. Returns `None` if the sample cannot be drawn.
pub type Drawing = fn(&str) -> Option<String>;

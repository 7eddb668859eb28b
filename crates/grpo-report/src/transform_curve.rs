//! Reward transforms that a report draws.

/// A function that maps a property to a score between 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformCurve {
    /// Name of the component.
    pub name: String,
    /// Name of the function.
    pub kind: String,
    /// Properties and scores, sorted by property. There are at least two points.
    pub points: Vec<(f64, f64)>,
}

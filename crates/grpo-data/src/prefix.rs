//! Conditions that a model reads before a sequence.

use serde::{Deserialize, Serialize};

/// Conditions that a model reads before a sequence: token ids, followed by numbers. They have no
/// position and are not part of the sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prefix {
    /// Token ids, e.g. of a scaffold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u32>,
    /// One number per quantity that the model can be conditioned on, or `None` for a quantity that
    /// is left open. Empty if all of them are left open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Option<f32>>,
}

impl Prefix {
    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.values.is_empty()
    }
}

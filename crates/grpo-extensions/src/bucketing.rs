//! Ways to assign completions to buckets, which tasks define.

use std::fmt;

use grpo_rewards::Identify;

use crate::similar_texts::NewSimilarTexts;

/// Returns the bucket of each text, or `None` for texts that belong to no bucket.
pub type BucketFn = fn(&[&str]) -> Vec<Option<String>>;

/// A way to assign completions to buckets.
#[derive(Clone, Copy)]
pub struct Bucketing {
    /// Name in configurations, e.g. `scaffold`.
    pub name: &'static str,
    /// Assigns texts to buckets.
    pub buckets: BucketFn,
    /// Compares buckets, if they can be compared.
    pub similarity: Option<NewSimilarTexts>,
    /// Whether all completions in a bucket are copies of each other.
    pub holds_copies: bool,
    /// Recognizes copies, if buckets also hold other completions.
    pub identify: Option<Identify>,
}

impl Bucketing {
    /// One bucket per distinct text.
    pub const TEXT: Self = Self {
        name: "text",
        buckets: |texts| texts.iter().map(|text| Some((*text).to_owned())).collect(),
        similarity: None,
        holds_copies: true,
        identify: None,
    };
}

impl fmt::Debug for Bucketing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucketing").field("name", &self.name).finish_non_exhaustive()
    }
}

//! What one forward pass carries through the blocks.

use std::sync::Arc;

use grpo_kernels::Packing;

use crate::Dropout;
use crate::cache::CachePlan;
use crate::lora::Adapter;
use crate::rotary::Rotary;

/// What one forward pass carries through the blocks.
pub(crate) struct Pass<'a> {
    pub(crate) context: PassContext,
    /// What is added to the linear layers.
    pub(crate) adapter: Option<&'a Adapter>,
    pub(crate) dropout: &'a mut Dropout,
}

/// What the tokens of a pass see, and how they are turned: the same in every block.
#[derive(Clone, Debug)]
pub(crate) struct PassContext {
    pub(crate) visibility: Visibility,
    /// Turns of queries and keys, where positions are rotary.
    pub(crate) rotary: Option<Rotary>,
}

/// What the tokens of a pass see.
#[derive(Clone, Debug)]
pub(crate) enum Visibility {
    /// Each other.
    Packed(Packing),
    /// What is in the cache, which they enter. No token's result then depends on the tokens of other sequences.
    Cached(Arc<CachePlan>),
}

impl PassContext {
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.visibility, Visibility::Cached(_))
    }
}

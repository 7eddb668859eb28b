//! State of a forward pass through the blocks.

use std::sync::Arc;

use grpo_kernels::Packing;

use crate::Dropout;
use crate::cache::CachePlan;
use crate::lora::Adapter;
use crate::rotary::Rotary;

/// State of a forward pass through the blocks.
pub(crate) struct Pass<'a> {
    pub(crate) context: PassContext,
    /// The adapter, if any.
    pub(crate) adapter: Option<&'a Adapter>,
    pub(crate) dropout: &'a mut Dropout,
}

/// Visibility and rotation of tokens, equal in every block.
#[derive(Clone, Debug)]
pub(crate) struct PassContext {
    pub(crate) visibility: Visibility,
    /// Rotary angles, if positions are rotary.
    pub(crate) rotary: Option<Rotary>,
}

/// What the tokens of a pass see.
#[derive(Clone, Debug)]
pub(crate) enum Visibility {
    /// Each other.
    Packed(Packing),
    /// The cache, to which they are added. Results do not depend on other sequences.
    Cached(Arc<CachePlan>),
}

impl PassContext {
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.visibility, Visibility::Cached(_))
    }
}

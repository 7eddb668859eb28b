//! State shared by the blocks during a forward pass.

use std::sync::Arc;

use burn::tensor::Tensor;
use grpo_kernels::{Packing, PagePlan};

use crate::Dropout;
use crate::lora::Adapter;
use crate::rollout_activations::{KnownActivations, Recorder};
use crate::rotary::Rotary;

/// State of a single forward pass.
pub(crate) struct Pass<'a> {
    pub(crate) context: PassContext,
    /// Adapter applied to the linear layers.
    pub(crate) adapter: Option<&'a Adapter>,
    pub(crate) dropout: &'a mut Dropout,
    /// Collects the attention weights of each block, `[1, heads, queries, keys]`, if they are asked
    /// for.
    pub(crate) attention: Option<Vec<Tensor<4>>>,
    pub(crate) outputs: Outputs,
}

/// Where the outputs of the linear layers come from.
pub(crate) enum Outputs {
    Computed,
    /// They are computed and recorded.
    Recorded(Recorder),
    /// Another pass has computed them, apart from those of layers that were not kept.
    Known(KnownActivations),
}

impl<'a> Pass<'a> {
    /// Creates the state of a pass that computes everything and does not collect attention weights.
    pub(crate) fn new(
        context: PassContext,
        adapter: Option<&'a Adapter>,
        dropout: &'a mut Dropout,
    ) -> Self {
        Self { context, adapter, dropout, attention: None, outputs: Outputs::Computed }
    }
}

/// Token visibility and rotary angles, which are the same in every block.
#[derive(Clone, Debug)]
pub(crate) struct PassContext {
    pub(crate) visibility: Visibility,
    /// Rotary angles, if the model uses rotary positions.
    pub(crate) rotary: Option<Rotary>,
    /// Those of layers with a window, if they differ.
    pub(crate) window_rotary: Option<Rotary>,
    /// Rows of the tokens, if there are also rows of conditions.
    pub(crate) token_rows: Option<Arc<[usize]>>,
}

/// The positions that each token can attend to.
#[derive(Clone, Debug)]
pub(crate) enum Visibility {
    /// Tokens of the same pass.
    Packed(Packing),
    /// The KV cache, to which the new tokens are appended. Results are independent of other
    /// sequences.
    Cached(Arc<PagePlan>),
}

impl PassContext {
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.visibility, Visibility::Cached(_))
    }
}

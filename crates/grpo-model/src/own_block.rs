//! Transformer blocks that a model family computes in its own way.

use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::Tensor;

/// A block that no combination of the options of a [`crate::Description`] describes, for example with norms
/// around each sublayer, with attention and MLP side by side, or with an activation of its own.
///
/// Attention belongs to this crate, with its cache, packing and rotary positions. The other layers are
/// those that [`Self::layers`] lists. Everything else follows: their weights are loaded and written
/// under the names of the family, adapters can change them, and blocks are recomputed and sampled like
/// all others.
pub trait BlockForm: Debug + Send + Sync {
    /// Returns the layers of a block in addition to its attention.
    fn layers(&self) -> OwnLayers;

    /// Computes `[tokens, width]` → `[tokens, width]`, including residual connections.
    ///
    /// The result for a token must not depend on the other rows of `x`, bit for bit, except through
    /// attention: sampling and training divide tokens into batches differently.
    fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2>;
}

/// Layers of a block in addition to its attention.
#[derive(Clone, Debug, Default)]
pub struct OwnLayers {
    /// Linear layers. Their paths in [`crate::Names::inside`] are `linears.0`, `linears.1`, …
    pub linears: Vec<LinearLayer>,
    /// Widths of norms of the model's kind. Their paths are `norms.0`, `norms.1`, …
    pub norms: Vec<usize>,
    /// Whether the block has the MLP that the description describes.
    pub has_mlp: bool,
}

/// The shape of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearLayer {
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// Whether it has a bias.
    pub bias: bool,
}

/// A shared [`BlockForm`].
#[derive(Clone, Debug)]
pub struct OwnBlock(Arc<dyn BlockForm>);

impl OwnBlock {
    /// Creates a block from what computes it.
    pub fn new(form: impl BlockForm + 'static) -> Self {
        Self(Arc::new(form))
    }

    /// Returns what computes the block.
    pub fn form(&self) -> &dyn BlockForm {
        self.0.as_ref()
    }
}

impl PartialEq for OwnBlock {
    /// Blocks are plain data, so they are equal if they are shown in the same way.
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// The layers of a block during a forward pass.
pub trait BlockLayers {
    /// Computes attention, `[tokens, width]` → `[tokens, width]`. Must be called once.
    fn attention(&mut self, x: Tensor<2>) -> Tensor<2>;

    /// Computes the MLP of the description, `[tokens, width]` → `[tokens, width]`. Must be called once.
    ///
    /// # Panics
    /// Panics if the block has none.
    fn mlp(&mut self, x: Tensor<2>) -> Tensor<2>;

    /// Computes a linear layer, `[tokens, inputs]` → `[tokens, outputs]`, with the adapter if there is
    /// one. Must be called once for each layer, with one row per token in their order, because its
    /// outputs may be kept for the update.
    fn linear(&mut self, index: usize, x: Tensor<2>) -> Tensor<2>;

    /// Computes a norm of each row, `[n, width]` → `[n, width]`.
    fn norm(&self, index: usize, x: Tensor<2>) -> Tensor<2>;

    /// Applies dropout in supervised training, and nothing elsewhere. To be called for the output of
    /// each sublayer.
    fn dropout(&mut self, x: Tensor<2>) -> Tensor<2>;
}

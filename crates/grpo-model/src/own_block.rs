//! Transformer blocks that a model family computes in its own way.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use crate::ModelError;

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
    /// When a model is built, the block is computed once for rows of zeros, to check how it uses its layers.
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

    /// Checks how the block uses its layers, by computing two rows of zeros: attention, the MLP and each linear
    /// layer once, and each norm at least once, with inputs and outputs of the right widths.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] that names the first layer that it uses in another way.
    pub(crate) fn check(&self, width: usize, device: &Device) -> Result<(), ModelError> {
        let layers = self.form().layers();
        let mut probe = Probe { layers, width, used: RefCell::default() };
        let x = Tensor::zeros([ROWS, width], device);
        let found = self.form().forward(x, &mut probe).dims();
        let fault = probe.fault().or_else(|| {
            (found != [ROWS, width])
                .then(|| format!("returns {found:?} for an input of {:?}", [ROWS, width]))
        });
        match fault {
            None => Ok(()),
            Some(fault) => {
                let block = self.form();
                Err(ModelError::Unfit(format!("the block {block:?} {fault}")))
            }
        }
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

/// Number of rows with which a block is checked.
const ROWS: usize = 2;

/// Layers that compute nothing and remember how they are used.
struct Probe {
    layers: OwnLayers,
    width: usize,
    used: RefCell<Vec<Use>>,
}

/// A use of a layer.
struct Use {
    layer: String,
    /// Shape of the input.
    found: [usize; 2],
    /// Width of the inputs of the layer, or `None` if there is no such layer.
    inputs: Option<usize>,
}

impl Probe {
    fn used(&self, layer: String, x: &Tensor<2>, inputs: Option<usize>) {
        self.used.borrow_mut().push(Use { layer, found: x.dims(), inputs });
    }

    /// Describes the first layer that is not used as it must be.
    fn fault(&self) -> Option<String> {
        let used = self.used.borrow();
        for Use { layer, found, inputs } in used.iter() {
            let Some(inputs) = *inputs else {
                return Some(format!("uses {layer}, which BlockForm::layers does not list"));
            };
            let is_norm = layer.starts_with("norms");
            if found[1] != inputs || (!is_norm && found[0] != ROWS) {
                return Some(format!(
                    "calls {layer} with an input of {found:?} for {ROWS} tokens; expected {:?}",
                    [ROWS, inputs]
                ));
            }
        }
        let linears = (0..self.layers.linears.len()).map(|index| format!("linears.{index}"));
        let mlp = self.layers.has_mlp.then(|| "mlp".to_owned());
        for layer in ["attention".to_owned()].into_iter().chain(mlp).chain(linears) {
            let times = used.iter().filter(|of| of.layer == layer).count();
            if times != 1 {
                let how_often =
                    if times == 0 { "never".to_owned() } else { format!("{times} times") };
                return Some(format!(
                    "calls {layer} {how_often}; BlockForm::forward must call each layer once"
                ));
            }
        }
        let mut norms = (0..self.layers.norms.len()).map(|index| format!("norms.{index}"));
        let unused = norms.find(|norm| used.iter().all(|of| of.layer != *norm));
        unused.map(|norm| format!("never calls {norm}; call it, or remove it from its layers"))
    }

    fn zeros(&self, like: &Tensor<2>, width: usize) -> Tensor<2> {
        Tensor::zeros([like.dims()[0], width], &like.device())
    }
}

impl BlockLayers for Probe {
    fn attention(&mut self, x: Tensor<2>) -> Tensor<2> {
        self.used("attention".to_owned(), &x, Some(self.width));
        self.zeros(&x, self.width)
    }

    fn mlp(&mut self, x: Tensor<2>) -> Tensor<2> {
        self.used("mlp".to_owned(), &x, self.layers.has_mlp.then_some(self.width));
        self.zeros(&x, self.width)
    }

    fn linear(&mut self, index: usize, x: Tensor<2>) -> Tensor<2> {
        let layer = self.layers.linears.get(index).copied();
        self.used(format!("linears.{index}"), &x, layer.map(|layer| layer.inputs));
        self.zeros(&x, layer.map_or(self.width, |layer| layer.outputs))
    }

    fn norm(&self, index: usize, x: Tensor<2>) -> Tensor<2> {
        self.used(format!("norms.{index}"), &x, self.layers.norms.get(index).copied());
        x
    }

    fn dropout(&mut self, x: Tensor<2>) -> Tensor<2> {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a block does wrong.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        NoAttention,
        LinearTwice,
        LinearUnlisted,
        NoNorm,
        Mlp,
        Rows,
        Result,
    }

    /// Attention, a norm and two linear layers.
    #[derive(Debug)]
    struct Own(Fault);

    impl BlockForm for Own {
        fn layers(&self) -> OwnLayers {
            let linear = |inputs, outputs| LinearLayer { inputs, outputs, bias: false };
            let linears = vec![linear(4, 6), linear(6, 4)];
            OwnLayers { linears, norms: vec![4], has_mlp: false }
        }

        fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2> {
            let Self(fault) = self;
            let attended = match fault {
                Fault::NoAttention => x.clone(),
                _ => layers.attention(x.clone()),
            };
            let normal = if *fault == Fault::NoNorm { attended } else { layers.norm(0, attended) };
            let wide = layers.linear(0, normal.clone());
            let wide = match fault {
                Fault::LinearTwice => wide + layers.linear(0, normal),
                Fault::LinearUnlisted => {
                    wide + layers.linear(2, normal).repeat_dim(1, 2).narrow(1, 0, 6)
                }
                Fault::Rows => wide.narrow(0, 0, 1),
                _ => wide,
            };
            let narrow = layers.linear(1, wide);
            match fault {
                Fault::Mlp => layers.mlp(x),
                Fault::Rows => x,
                Fault::Result => narrow.narrow(1, 0, 2),
                _ => x + layers.dropout(narrow),
            }
        }
    }

    #[test]
    fn a_block_uses_each_of_its_layers() {
        let check = |fault| OwnBlock::new(Own(fault)).check(4, &Device::flex());
        check(Fault::None).unwrap();
        let once = "BlockForm::forward must call each layer once";
        for (fault, expected) in [
            (Fault::NoAttention, format!("calls attention never; {once}")),
            (Fault::LinearTwice, format!("calls linears.0 2 times; {once}")),
            (
                Fault::LinearUnlisted,
                "uses linears.2, which BlockForm::layers does not list".to_owned(),
            ),
            (
                Fault::NoNorm,
                "never calls norms.0; call it, or remove it from its layers".to_owned(),
            ),
            (Fault::Mlp, "uses mlp, which BlockForm::layers does not list".to_owned()),
            (
                Fault::Rows,
                "calls linears.1 with an input of [1, 6] for 2 tokens; expected [2, 6]".to_owned(),
            ),
            (Fault::Result, "returns [2, 2] for an input of [2, 4]".to_owned()),
        ] {
            let error = check(fault).unwrap_err().to_string();
            assert_eq!(error, format!("the block Own({fault:?}) {expected}"));
        }
    }
}

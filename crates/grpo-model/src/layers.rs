//! Layers shared by all model families.
//!
//! Sequences are packed, so the residual stream is a matrix of shape `[tokens, width]`. If it had a
//! batch axis, Burn's backward pass would compute a separate weight gradient for each batch row and
//! add them up.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use grpo_kernels::{
    PackedWeight, add_layer_norm, add_rms_norm, batch_invariant_linear, gather_rows, half_linear,
    known_half_linear, known_linear, layer_norm, linear, rms_norm, unpacked_shape,
};
use grpo_logprob::Head;

use crate::description::NormKind;
use crate::dora::scaled_output;
use crate::lora::LoraPair;
use crate::parameters::Parameters;
use crate::pass::{Outputs, Pass};
use crate::precision::{dense, on_tape_of, operand};
use crate::{ModelError, ProductPrecision};

/// Multiplies by a constant factor. A factor of 1 computes nothing.
pub(crate) fn scaled(x: Tensor<2>, factor: f64) -> Tensor<2> {
    if factor == 1.0 { x } else { x * factor }
}

/// A linear layer `x · W + b`, plus the output of an adapter if one is attached. The weight has
/// shape `[in, out]`.
#[derive(Module, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
    /// Index of the layer in the model. An adapter uses it to look up its matrices.
    #[module(skip)]
    pub(crate) number: usize,
    /// Path of the layer in this crate's naming scheme.
    #[module(skip)]
    pub(crate) path: String,
    /// The weight, prepared for sampling. Only in models that cannot be changed, see
    /// [`crate::Prepared`].
    #[module(skip)]
    packed: Option<Arc<PackedWeight>>,
    #[module(skip)]
    products: ProductPrecision,
}

impl Linear {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        [input, output]: [usize; 2],
        bias: bool,
    ) -> Result<Self, ModelError> {
        let number = parameters.next_linear();
        let weight = parameters.linear_weight(&format!("{name}.weight"), [input, output])?;
        let bias = match bias {
            true => Some(parameters.zeros(&format!("{name}.bias"), [output])?),
            false => None,
        };
        Ok(Self::from_parts(number, name, weight, bias))
    }

    /// Creates a layer from a weight matrix `[in, out]` and a bias `[out]`.
    pub(crate) fn of(number: usize, name: &str, weight: Tensor<2>, bias: Tensor<1>) -> Self {
        let (weight, bias) = (Param::from_tensor(weight), Some(Param::from_tensor(bias)));
        Self::from_parts(number, name, weight, bias)
    }

    /// Creates a layer without a bias that no adapter finds.
    pub(crate) fn without_number(name: &str, weight: Tensor<2>) -> Self {
        Self::from_parts(usize::MAX, name, Param::from_tensor(weight), None)
    }

    fn from_parts(
        number: usize,
        name: &str,
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
    ) -> Self {
        let products = ProductPrecision::default();
        Self { weight, bias, number, path: name.to_owned(), packed: None, products }
    }

    /// Computes `[n, in]` → `[n, out]`.
    pub(crate) fn forward(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let Some(pair) = pass.adapter.and_then(|adapter| adapter.pair(self.number)) else {
            return self.output(x, pass);
        };
        let dropped = pass.dropout.apply_at(pair.dropout, x.clone());
        let added = match pass.context.is_cached() {
            true => pair.forward_invariant(dropped.clone()),
            false => pair.forward(dropped.clone()),
        };
        let y = self.output(x, pass);
        let Some(gain) = pair.gain(self.weight.val()) else { return y + added };
        // As in PEFT, DoRA scales the product with what dropout left.
        let product = match pass.dropout.drops(pair.dropout) {
            true => self.product(dropped),
            false => y.clone(),
        };
        let product = match &self.bias {
            Some(bias) => product - operand(bias.val(), &y).unsqueeze(),
            None => product,
        };
        scaled_output(y, product, added, gain)
    }

    /// Computes `[n, in]` → `[n, out]` without the adapter, unless the result is known.
    fn output(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        match &mut pass.outputs {
            Outputs::Computed => self.product_of_rows(x, pass.context.is_cached()),
            Outputs::Recorded(recorder) => {
                let y = self.product_of_rows(x, true);
                recorder.record(self.number, self.shape()[0], &y);
                y
            }
            Outputs::Known(known) => {
                let known = known.output(self.number, &x.device().inner());
                self.product_or(known, x)
            }
        }
    }

    /// Computes `[n, in]` → `[n, out]` without the adapter.
    pub(crate) fn product(&self, x: Tensor<2>) -> Tensor<2> {
        self.product_or(None, x)
    }

    /// Same as [`Self::product`] with its result, if it is known.
    fn product_or(&self, known: Option<Tensor<2>>, x: Tensor<2>) -> Tensor<2> {
        let bias = self.bias.as_ref().map(|bias| operand(bias.val(), &x));
        let format = self.products.half();
        let weight = match format {
            None => operand(self.weight.val(), &x),
            Some(format) => on_tape_of(&x, format.factor(self.weight.val())),
        };
        match (format, known) {
            (None, None) => linear(x, weight, bias),
            (None, Some(y)) => known_linear(y, x, weight, bias),
            (Some(format), None) => half_linear(x, weight, bias, format),
            (Some(format), Some(y)) => known_half_linear(y, x, weight, bias, format),
        }
    }

    /// Like [`Self::product`], without autodiff if `invariant` is set. Narrow weights are then read
    /// as they are, and a GPU computes few rows at a time in its own way.
    pub(crate) fn product_of_rows(&self, x: Tensor<2>, invariant: bool) -> Tensor<2> {
        match invariant {
            true => {
                let bias = self.bias.as_ref().map(|bias| dense(bias.val()));
                match (&self.packed, self.products.half()) {
                    (Some(packed), _) => packed.linear(x, bias),
                    (None, None) => batch_invariant_linear(x, self.weight.val(), bias),
                    (None, Some(format)) => {
                        PackedWeight::rounded(self.weight.val(), format).linear(x, bias)
                    }
                }
            }
            false => self.product(x),
        }
    }

    /// Returns the weight and the bias if the layer can share a launch with other operations of a GPU.
    /// Only sampling does so, and only in layers without an adapter.
    pub(crate) fn for_one_launch(
        &self,
        pass: &Pass<'_>,
    ) -> Option<(&PackedWeight, Option<Tensor<1>>)> {
        let is_adapted = pass.adapter.is_some_and(|adapter| adapter.pair(self.number).is_some());
        if is_adapted || !pass.context.is_cached() || !matches!(pass.outputs, Outputs::Computed) {
            return None;
        }
        let packed = self.packed.as_deref()?;
        Some((packed, self.bias.as_ref().map(|bias| dense(bias.val()))))
    }

    /// Prepares the weight for many products whose rows are independent, unless it is prepared.
    pub(crate) fn pack(&mut self) {
        if self.packed.is_some() {
            return;
        }
        let weight = self.weight.val();
        self.packed = Some(Arc::new(match self.products.half() {
            None => PackedWeight::new(weight),
            Some(format) => PackedWeight::rounded(weight, format),
        }));
    }

    /// Adds the update of an adapter to the weight, which can then only sample. A rounded weight is
    /// rounded before, so the update is not.
    pub(crate) fn merge_for_sampling(&mut self, pair: &LoraPair) {
        let weight = self.weight.val();
        match self.products.half() {
            None => self.weight = Param::from_tensor(pair.changed(weight)),
            Some(format) => {
                let update = match pair.magnitude {
                    None => pair.product(),
                    Some(_) => pair.changed(weight.clone()) - dense(weight.clone()),
                };
                let packed = PackedWeight::rounded_with_update(weight, update, format);
                self.packed = Some(Arc::new(packed));
            }
        }
    }

    pub(crate) fn has_f32_products(&self) -> bool {
        self.products.is_f32()
    }

    /// Sets the precision of products with the weight.
    pub(crate) fn set_product_precision(&mut self, precision: ProductPrecision) {
        self.products = precision;
    }

    /// Returns the layer as a language model head.
    pub(crate) fn as_head(&self) -> Head {
        Head { weight: self.weight.val(), bias: self.bias.as_ref().map(Param::val) }
    }

    /// Returns the shape `[in, out]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        unpacked_shape(&self.weight.val())
    }
}

/// An embedding table.
#[derive(Module, Debug)]
pub(crate) struct Embedding {
    weight: Param<Tensor<2>>,
    /// The transposed table, prepared for sampling if it is the output layer.
    #[module(skip)]
    packed_head: Option<Arc<PackedWeight>>,
}

impl Embedding {
    /// Creates a table with normally distributed initial values.
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self::from_weight(parameters.normal(&format!("{name}.weight"), shape)?))
    }

    /// Creates a table filled with zeros.
    pub(crate) fn zeros(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self::from_weight(parameters.zeros(&format!("{name}.weight"), shape)?))
    }

    fn from_weight(weight: Param<Tensor<2>>) -> Self {
        Self { weight, packed_head: None }
    }

    /// Looks up `[n]` IDs and returns `[n, width]`.
    pub(crate) fn forward(&self, ids: Tensor<1, Int>) -> Tensor<2> {
        gather_rows(self.weight.val(), ids)
    }

    /// Returns the table, `[rows, width]`.
    pub(crate) fn table(&self) -> Tensor<2> {
        self.weight.val()
    }

    /// Replaces the table.
    pub(crate) fn set_table(&mut self, table: Tensor<2>) {
        *self = Self::from_weight(Param::from_tensor(table));
    }

    /// Returns the row at `index`. The shape is `[width]`.
    pub(crate) fn row(&self, index: usize) -> Tensor<1> {
        self.weight.val().narrow(0, index, 1).squeeze_dim(0)
    }

    /// Returns a transposed view of the table as an output layer.
    pub(crate) fn as_head(&self) -> Head {
        Head::new(self.weight.val().transpose())
    }

    /// Prepares the table for many products as an output layer.
    pub(crate) fn pack_head(&mut self) {
        self.packed_head = Some(Arc::new(PackedWeight::new(self.as_head().weight)));
    }

    /// Computes logits without autodiff. Each row is independent of the others.
    pub(crate) fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.packed_head {
            Some(packed) => packed.linear(hidden, None),
            None => self.as_head().invariant_logits(hidden),
        }
    }

    /// Returns the device that holds the table.
    pub(crate) fn device(&self) -> burn::tensor::Device {
        self.weight.lazy_device()
    }
}

/// Layer norm or RMS norm; see [`grpo_kernels`].
#[derive(Module, Debug)]
pub(crate) struct Norm {
    weight: Param<Tensor<1>>,
    /// `None` for RMS norm.
    bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    epsilon: f64,
    /// What is added to the weight of an RMS norm.
    #[module(skip)]
    base: f64,
}

impl Norm {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        kind: NormKind,
    ) -> Result<Self, ModelError> {
        let path = format!("{name}.weight");
        let (weight, epsilon, base) = match kind {
            NormKind::Rms { epsilon } | NormKind::Layer { epsilon } => {
                (parameters.ones(&path, [width])?, epsilon, 0.0)
            }
            NormKind::RmsAroundOne { epsilon } => (parameters.zeros(&path, [width])?, epsilon, 1.0),
        };
        let bias = match kind {
            NormKind::Layer { .. } => Some(parameters.zeros(&format!("{name}.bias"), [width])?),
            NormKind::Rms { .. } | NormKind::RmsAroundOne { .. } => None,
        };
        Ok(Self { weight, bias, epsilon, base })
    }

    /// Returns the width of the rows.
    pub(crate) fn width(&self) -> usize {
        self.weight.dims()[0]
    }

    /// Returns the scale of an RMS norm.
    fn scale(&self, weight: Tensor<1>) -> Tensor<1> {
        if self.base == 0.0 { weight } else { weight + self.base }
    }

    /// Returns `x + y` and its norm.
    pub(crate) fn forward_sum(&self, x: Tensor<2>, y: Tensor<2>) -> [Tensor<2>; 2] {
        let weight = operand(self.weight.val(), &x);
        match &self.bias {
            Some(bias) => {
                let bias = operand(bias.val(), &x);
                add_layer_norm(x, y, weight, bias, self.epsilon)
            }
            None => add_rms_norm(x, y, self.scale(weight), self.epsilon),
        }
    }

    /// Returns scale and ε of an RMS norm without autodiff.
    pub(crate) fn as_rms_norm(&self) -> Option<(Tensor<1>, f64)> {
        self.bias.is_none().then(|| (self.scale(dense(self.weight.val())), self.epsilon))
    }

    /// Computes `[n, width]` → `[n, width]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let weight = operand(self.weight.val(), &x);
        match &self.bias {
            Some(bias) => {
                let bias = operand(bias.val(), &x);
                layer_norm(x, weight, bias, self.epsilon)
            }
            None => rms_norm(x, self.scale(weight), self.epsilon),
        }
    }
}

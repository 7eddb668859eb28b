//! A transformer block: attention and an MLP, each with a residual connection.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_kernels::{PackedWeight, add, gelu, gelu_tanh, swiglu};

use crate::attention::Attention;
use crate::description::{Activation, Description, NormOrder};
use crate::layers::{Linear, Norm, scaled};
use crate::parameters::Parameters;
use crate::pass::Pass;
use crate::residual::Residual;
use crate::{BlockLayers, KvCache, ModelError, OwnBlock, OwnLayers};

/// A transformer block. Its norms and its MLP are those of the description, or those of the family's
/// own block.
#[derive(Module, Debug)]
pub(crate) struct Block {
    attention_norm: Option<Norm>,
    attention: Attention,
    mlp_norm: Option<Norm>,
    mlp: Option<Mlp>,
    linears: Vec<Linear>,
    norms: Vec<Norm>,
    #[module(skip)]
    order: NormOrder,
    #[module(skip)]
    own: Option<OwnBlock>,
    /// Factor of what is added to the residual stream.
    #[module(skip)]
    scale: f64,
}

impl Block {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        of: &Description,
        layer: usize,
    ) -> Result<Self, ModelError> {
        let own = of.block.as_ref().map(|own| own.form().layers());
        let is_described = own.is_none();
        let mut norm = |part: &str| match is_described {
            true => Norm::new(parameters, &format!("{name}.{part}"), of.width, of.norm).map(Some),
            false => Ok(None),
        };
        let (attention_norm, mlp_norm) = (norm("attention_norm")?, norm("mlp_norm")?);
        let attention = Attention::new(parameters, &format!("{name}.attention"), of, layer)?;
        let OwnLayers { linears, norms, has_mlp } = own.unwrap_or_default();
        let mlp = match is_described || has_mlp {
            true => Some(Mlp::new(parameters, &format!("{name}.mlp"), of)?),
            false => None,
        };
        let mut own_linears = Vec::new();
        for (i, linear) in linears.into_iter().enumerate() {
            let (name, sizes) = (format!("{name}.linears.{i}"), [linear.inputs, linear.outputs]);
            own_linears.push(Linear::new(parameters, &name, sizes, linear.bias)?);
        }
        let mut own_norms = Vec::new();
        for (i, width) in norms.into_iter().enumerate() {
            own_norms.push(Norm::new(parameters, &format!("{name}.norms.{i}"), width, of.norm)?);
        }
        Ok(Self {
            attention_norm,
            attention,
            mlp_norm,
            mlp,
            linears: own_linears,
            norms: own_norms,
            order: of.order,
            own: of.block.clone(),
            scale: of.scales.residual,
        })
    }

    /// Computes `[tokens, width]` → `[tokens, width]`. When decoding with a KV cache, `cache` holds
    /// the cache and the index of this layer.
    pub(crate) fn forward(
        &self,
        x: Residual,
        cache: Option<(&mut KvCache, usize)>,
        pass: &mut Pass<'_>,
    ) -> Residual {
        let (norms, mlp) = match (&self.own, &self.attention_norm, &self.mlp_norm, &self.mlp) {
            (Some(own), ..) => {
                let mut layers = Running { block: self, cache, pass };
                return Residual::new(own.form().forward(x.into_sum(), &mut layers));
            }
            (None, Some(attention), Some(mlp_norm), Some(mlp)) => ([attention, mlp_norm], mlp),
            (None, ..) => unreachable!("a block that is described has two norms and an MLP"),
        };
        match self.order {
            NormOrder::Pre => {
                let (normal, x) = x.normalised(norms[0]);
                let attended = scaled(self.attention.forward(normal, cache, pass), self.scale);
                let x = x.plus(pass.dropout.apply(attended));
                let (normal, x) = x.normalised(norms[1]);
                let widened = scaled(mlp.forward(normal, pass), self.scale);
                x.plus(pass.dropout.apply(widened))
            }
            NormOrder::Post => {
                let x = x.into_sum();
                let attended = scaled(self.attention.forward(x.clone(), cache, pass), self.scale);
                let x = norms[0].forward(add(pass.dropout.apply(attended), x));
                let widened = scaled(mlp.forward(x.clone(), pass), self.scale);
                Residual::new(norms[1].forward(add(pass.dropout.apply(widened), x)))
            }
        }
    }

    pub(crate) fn linears(&self) -> Vec<&Linear> {
        let mlp = self.mlp.iter().flat_map(Mlp::linears);
        self.attention.linears().into_iter().chain(mlp).chain(&self.linears).collect()
    }

    pub(crate) fn linears_mut(&mut self) -> Vec<&mut Linear> {
        let mlp = self.mlp.iter_mut().flat_map(Mlp::linears_mut);
        self.attention.linears_mut().into_iter().chain(mlp).chain(&mut self.linears).collect()
    }
}

/// The layers of a family's own block during a forward pass.
struct Running<'a, 'p> {
    block: &'a Block,
    /// When decoding with a KV cache, the cache and the index of the block.
    cache: Option<(&'a mut KvCache, usize)>,
    pass: &'a mut Pass<'p>,
}

impl BlockLayers for Running<'_, '_> {
    fn attention(&mut self, x: Tensor<2>) -> Tensor<2> {
        let cache = self.cache.as_mut().map(|(cache, layer)| (&mut **cache, *layer));
        self.block.attention.forward(x, cache, self.pass)
    }

    fn mlp(&mut self, x: Tensor<2>) -> Tensor<2> {
        let mlp = self.block.mlp.as_ref().expect("the block has an MLP");
        mlp.forward(x, self.pass)
    }

    fn linear(&mut self, index: usize, x: Tensor<2>) -> Tensor<2> {
        self.block.linears[index].forward(x, self.pass)
    }

    fn norm(&self, index: usize, x: Tensor<2>) -> Tensor<2> {
        self.block.norms[index].forward(x)
    }

    fn dropout(&mut self, x: Tensor<2>) -> Tensor<2> {
        self.pass.dropout.apply(x)
    }
}

#[derive(Module, Debug)]
struct Mlp {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    #[module(skip)]
    activation: Activation,
}

impl Mlp {
    fn new(parameters: &mut Parameters, name: &str, of: &Description) -> Result<Self, ModelError> {
        let mut linear = |part: &str, sizes| {
            Linear::new(parameters, &format!("{name}.{part}"), sizes, of.biases.mlp)
        };
        let (wide, narrow) = ([of.width, of.mlp_width], [of.mlp_width, of.width]);
        let gate = match of.activation {
            Activation::SwiGlu | Activation::GeGluTanh => Some(linear("gate", wide)?),
            Activation::Gelu | Activation::GeluTanh => None,
        };
        Ok(Self {
            gate,
            up: linear("up", wide)?,
            down: linear("down", narrow)?,
            activation: of.activation,
        })
    }

    fn linears(&self) -> impl Iterator<Item = &Linear> {
        self.gate.iter().chain([&self.up, &self.down])
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.gate.iter_mut().chain([&mut self.up, &mut self.down])
    }

    fn forward(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let active = match self.active_in_one_launch(&x, pass) {
            Some(active) => active,
            None => {
                let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone(), pass));
                let up = self.up.forward(x, pass);
                match (gate, self.activation) {
                    (Some(gate), Activation::GeGluTanh) => gelu_tanh(gate) * up,
                    (Some(gate), _) => swiglu(gate, up),
                    (None, Activation::GeluTanh) => gelu_tanh(up),
                    (None, _) => gelu(up),
                }
            }
        };
        self.down.forward(active, pass)
    }

    /// Computes the input of the last layer, where a GPU can do so while sampling.
    fn active_in_one_launch(&self, x: &Tensor<2>, pass: &Pass<'_>) -> Option<Tensor<2>> {
        let (up, bias) = self.up.for_one_launch(pass)?;
        match &self.gate {
            // The launch computes SwiGLU.
            Some(_) if self.activation == Activation::GeGluTanh => None,
            Some(gate) => PackedWeight::gated_linear(x, [gate.for_one_launch(pass)?, (up, bias)]),
            None => up.linear_gelu(x, bias, self.activation == Activation::GeluTanh),
        }
    }
}

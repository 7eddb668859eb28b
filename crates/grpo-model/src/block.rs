//! A transformer block: attention and an MLP, each with a residual connection.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_kernels::{PackedWeight, add, gelu, gelu_tanh, swiglu};

use crate::attention::Attention;
use crate::description::{Activation, Description, NormOrder};
use crate::layers::{Linear, Norm};
use crate::parameters::Parameters;
use crate::pass::Pass;
use crate::residual::Residual;
use crate::{KvCache, ModelError};

/// The transformer block used by every model family.
#[derive(Module, Debug)]
pub(crate) struct Block {
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
    #[module(skip)]
    order: NormOrder,
}

impl Block {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        of: &Description,
    ) -> Result<Self, ModelError> {
        let mut norm =
            |part: &str| Norm::new(parameters, &format!("{name}.{part}"), of.width, of.norm);
        let (attention_norm, mlp_norm) = (norm("attention_norm")?, norm("mlp_norm")?);
        Ok(Self {
            attention_norm,
            mlp_norm,
            attention: Attention::new(parameters, &format!("{name}.attention"), of)?,
            mlp: Mlp::new(parameters, &format!("{name}.mlp"), of)?,
            order: of.order,
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
        match self.order {
            NormOrder::Pre => {
                let (normal, x) = x.normalised(&self.attention_norm);
                let attended = self.attention.forward(normal, cache, pass);
                let x = x.plus(pass.dropout.apply(attended));
                let (normal, x) = x.normalised(&self.mlp_norm);
                let widened = self.mlp.forward(normal, pass);
                x.plus(pass.dropout.apply(widened))
            }
            NormOrder::Post => {
                let x = x.into_sum();
                let attended = self.attention.forward(x.clone(), cache, pass);
                let x = self.attention_norm.forward(add(pass.dropout.apply(attended), x));
                let widened = self.mlp.forward(x.clone(), pass);
                Residual::new(self.mlp_norm.forward(add(pass.dropout.apply(widened), x)))
            }
        }
    }

    pub(crate) fn linears(&self) -> Vec<&Linear> {
        let mlp = [self.mlp.gate.as_ref(), Some(&self.mlp.up), Some(&self.mlp.down)];
        self.attention.linears().into_iter().chain(mlp.into_iter().flatten()).collect()
    }

    pub(crate) fn linears_mut(&mut self) -> Vec<&mut Linear> {
        let mlp = [self.mlp.gate.as_mut(), Some(&mut self.mlp.up), Some(&mut self.mlp.down)];
        self.attention.linears_mut().into_iter().chain(mlp.into_iter().flatten()).collect()
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
            Activation::SwiGlu => Some(linear("gate", wide)?),
            Activation::Gelu | Activation::GeluTanh => None,
        };
        Ok(Self {
            gate,
            up: linear("up", wide)?,
            down: linear("down", narrow)?,
            activation: of.activation,
        })
    }

    fn forward(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let active = match self.active_in_one_launch(&x, pass) {
            Some(active) => active,
            None => {
                let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone(), pass));
                let up = self.up.forward(x, pass);
                match (gate, self.activation) {
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
            Some(gate) => PackedWeight::gated_linear(x, [gate.for_one_launch(pass)?, (up, bias)]),
            None => up.linear_gelu(x, bias, self.activation == Activation::GeluTanh),
        }
    }
}

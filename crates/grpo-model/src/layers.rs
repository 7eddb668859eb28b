//! The layers that families are made of.
//!
//! The residual stream is flat, `[tokens, width]`, since sequences are packed. With a third axis Burn's backward would
//! also build one weight gradient for each row of the batch and add them up.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use grpo_kernels::{add_bias, batch_invariant_linear, gather_rows, layer_norm, matmul, rms_norm};
use grpo_logprob::Head;

use crate::ModelError;
use crate::description::NormKind;
use crate::parameters::Parameters;
use crate::pass::Pass;
use crate::precision::{dense, operand};

/// `x · W + b`, and what an adapter adds to it. The weight is held `[in, out]`.
#[derive(Module, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
    /// Which linear layer of the model it is: where an adapter keeps its pair.
    #[module(skip)]
    pub(crate) number: usize,
    /// Its path in our names.
    #[module(skip)]
    pub(crate) path: String,
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
        Ok(Self { weight, bias, number, path: name.to_owned() })
    }

    /// Of values that are there: `weight` is `[in, out]`, `bias` `[out]`.
    pub(crate) fn of(number: usize, name: &str, weight: Tensor<2>, bias: Tensor<1>) -> Self {
        let (weight, bias) = (Param::from_tensor(weight), Some(Param::from_tensor(bias)));
        Self { weight, bias, number, path: name.to_owned() }
    }

    /// `[n, in]` → `[n, out]`
    pub(crate) fn forward(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let added = pass.adapter.and_then(|adapter| adapter.pair(self.number)).map(|pair| {
            let dropped = pass.dropout.apply_at(pair.dropout, x.clone());
            match pass.context.is_cached() {
                true => pair.forward_invariant(dropped),
                false => pair.forward(dropped),
            }
        });
        let y = match pass.context.is_cached() {
            true => {
                let bias = self.bias.as_ref().map(|bias| dense(bias.val()));
                batch_invariant_linear(x, self.weight.val(), bias)
            }
            false => self.product(x),
        };
        match added {
            Some(added) => y + added,
            None => y,
        }
    }

    /// `[n, in]` → `[n, out]`, without an adapter.
    pub(crate) fn product(&self, x: Tensor<2>) -> Tensor<2> {
        let bias = self.bias.as_ref().map(|bias| operand(bias.val(), &x));
        let weight = operand(self.weight.val(), &x);
        let y = matmul(x, weight);
        match bias {
            Some(bias) => add_bias(y, bias),
            None => y,
        }
    }

    /// As the last layer of a language model.
    pub(crate) fn as_head(&self) -> Head {
        Head { weight: self.weight.val(), bias: self.bias.as_ref().map(Param::val) }
    }

    /// `[in, out]`
    pub(crate) fn shape(&self) -> [usize; 2] {
        let shape = self.weight.lazy_shape();
        [shape[0], shape[1]]
    }
}

/// A table of vectors.
#[derive(Module, Debug)]
pub(crate) struct Embedding {
    weight: Param<Tensor<2>>,
}

impl Embedding {
    /// First values from a normal distribution.
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self { weight: parameters.normal(&format!("{name}.weight"), shape)? })
    }

    /// First values of 0.
    pub(crate) fn zeros(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self { weight: parameters.zeros(&format!("{name}.weight"), shape)? })
    }

    /// `[n]` → `[n, width]`
    pub(crate) fn forward(&self, ids: Tensor<1, Int>) -> Tensor<2> {
        gather_rows(self.weight.val(), ids)
    }

    /// Row `index`, `[width]`.
    pub(crate) fn row(&self, index: usize) -> Tensor<1> {
        self.weight.val().narrow(0, index, 1).squeeze_dim(0)
    }

    /// As the last layer of a language model: a view of the table, transposed.
    pub(crate) fn as_head(&self) -> Head {
        Head::new(self.weight.val().transpose())
    }

    /// Where the table lives.
    pub(crate) fn device(&self) -> burn::tensor::Device {
        self.weight.lazy_device()
    }
}

/// Layer norm or RMS norm; see [`grpo_kernels`].
#[derive(Module, Debug)]
pub(crate) struct Norm {
    weight: Param<Tensor<1>>,
    /// Layer norm alone has one.
    bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    epsilon: f64,
}

impl Norm {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        kind: NormKind,
    ) -> Result<Self, ModelError> {
        let weight = parameters.ones(&format!("{name}.weight"), [width])?;
        Ok(match kind {
            NormKind::Rms { epsilon } => Self { weight, bias: None, epsilon },
            NormKind::Layer { epsilon } => {
                let bias = parameters.zeros(&format!("{name}.bias"), [width])?;
                Self { weight, bias: Some(bias), epsilon }
            }
        })
    }

    /// `[n, width]` → `[n, width]`
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let weight = operand(self.weight.val(), &x);
        match &self.bias {
            Some(bias) => {
                let bias = operand(bias.val(), &x);
                layer_norm(x, weight, bias, self.epsilon)
            }
            None => rms_norm(x, weight, self.epsilon),
        }
    }
}

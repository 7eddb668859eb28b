//! Layers of all families.
//!
//! The residual stream is flat, `[tokens, width]`, because sequences are packed. With a third axis,
//! Burn's backward pass would compute and add a weight gradient per row of the batch.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use grpo_kernels::{add_bias, batch_invariant_linear, gather_rows, layer_norm, matmul, rms_norm};
use grpo_logprob::Head;

use crate::ModelError;
use crate::description::NormKind;
use crate::parameters::Parameters;
use crate::pass::Pass;
use crate::precision::{dense, operand};

/// `x · W + b` and the contribution of an adapter. The weight has the shape `[in, out]`.
#[derive(Module, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
    /// Number of the layer in the model, by which an adapter finds its pair.
    #[module(skip)]
    pub(crate) number: usize,
    /// Path in our names.
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

    /// Creates a layer from `weight` `[in, out]` and `bias` `[out]`.
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

    /// Returns the layer as an output layer.
    pub(crate) fn as_head(&self) -> Head {
        Head { weight: self.weight.val(), bias: self.bias.as_ref().map(Param::val) }
    }

    /// `[in, out]`
    pub(crate) fn shape(&self) -> [usize; 2] {
        let shape = self.weight.lazy_shape();
        [shape[0], shape[1]]
    }
}

/// An embedding table.
#[derive(Module, Debug)]
pub(crate) struct Embedding {
    weight: Param<Tensor<2>>,
}

impl Embedding {
    /// Creates a table with normal initial values.
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self { weight: parameters.normal(&format!("{name}.weight"), shape)? })
    }

    /// Creates a table of zeros.
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

    /// Returns row `index`, `[width]`.
    pub(crate) fn row(&self, index: usize) -> Tensor<1> {
        self.weight.val().narrow(0, index, 1).squeeze_dim(0)
    }

    /// Returns the transposed table, a view, as an output layer.
    pub(crate) fn as_head(&self) -> Head {
        Head::new(self.weight.val().transpose())
    }

    /// Returns the device of the table.
    pub(crate) fn device(&self) -> burn::tensor::Device {
        self.weight.lazy_device()
    }
}

/// Layer norm or RMS norm; see [`grpo_kernels`].
#[derive(Module, Debug)]
pub(crate) struct Norm {
    weight: Param<Tensor<1>>,
    /// Present only in layer norm.
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

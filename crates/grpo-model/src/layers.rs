//! The layers that families are made of.
//!
//! The residual stream is flat, `[batch · tokens, width]`: with a third axis Burn's backward would build one
//! weight gradient for each row of the batch and add them up.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use grpo_kernels::{Visible, attention_softmax, layer_norm};
use grpo_logprob::Head;

use crate::weights::Parameters;
use crate::{Dropout, KvCache, ModelError};

/// `x · W + b`. The weight is held `[in, out]` and stored `[out, in]`, as PyTorch stores it.
#[derive(Module, Debug)]
pub(crate) struct Linear {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        [input, output]: [usize; 2],
        bias: bool,
    ) -> Result<Self, ModelError> {
        let weight = parameters.transposed(&format!("{name}.weight"), [input, output])?;
        let bias = match bias {
            true => Some(parameters.zeros(&format!("{name}.bias"), [output])?),
            false => None,
        };
        Ok(Self { weight, bias })
    }

    /// `[n, in]` → `[n, out]`
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let product = x.matmul(self.weight.val());
        match &self.bias {
            Some(bias) => product + bias.val().unsqueeze(),
            None => product,
        }
    }

    /// As the last layer of a language model.
    pub(crate) fn as_head(&self) -> Head {
        Head { weight: self.weight.val(), bias: self.bias.as_ref().map(Param::val) }
    }

    pub(crate) fn output_size(&self) -> usize {
        self.weight.lazy_shape()[1]
    }
}

/// A table of vectors.
#[derive(Module, Debug)]
pub(crate) struct Embedding {
    weight: Param<Tensor<2>>,
}

impl Embedding {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self { weight: parameters.normal(&format!("{name}.weight"), shape)? })
    }

    /// `[n]` → `[n, width]`
    pub(crate) fn forward(&self, ids: Tensor<1, Int>) -> Tensor<2> {
        self.weight.val().select(0, ids)
    }

    /// Row `index`, `[width]`.
    pub(crate) fn row(&self, index: usize) -> Tensor<1> {
        self.weight.val().narrow(0, index, 1).squeeze_dim(0)
    }
}

/// See [`grpo_kernels::layer_norm`].
#[derive(Module, Debug)]
pub(crate) struct LayerNorm {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
}

impl LayerNorm {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        epsilon: f64,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            weight: parameters.ones(&format!("{name}.weight"), [width])?,
            bias: parameters.zeros(&format!("{name}.bias"), [width])?,
            epsilon,
        })
    }

    /// `[n, width]` → `[n, width]`
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        layer_norm(x, self.weight.val(), self.bias.val(), self.epsilon)
    }
}

/// Multi-head self-attention in which no position sees a later one.
#[derive(Module, Debug)]
pub(crate) struct CausalAttention {
    key: Linear,
    query: Linear,
    value: Linear,
    proj: Linear,
    #[module(skip)]
    heads: usize,
}

impl CausalAttention {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        heads: usize,
    ) -> Result<Self, ModelError> {
        let mut linear =
            |part: &str| Linear::new(parameters, &format!("{name}.{part}"), [width, width], true);
        Ok(Self {
            key: linear("key")?,
            query: linear("query")?,
            value: linear("value")?,
            proj: linear("proj")?,
            heads,
        })
    }

    /// `[batch · tokens, width]` → the same; `cache` with the layer's index where earlier positions count.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        batch: usize,
        cache: Option<(&mut KvCache, usize)>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        let [rows, width] = x.dims();
        let (tokens, head_width) = (rows / batch, width / self.heads);
        let split = |x: Tensor<2>| -> Tensor<4> {
            x.reshape([batch, tokens, self.heads, head_width]).swap_dims(1, 2)
        };
        let query = split(self.query.forward(x.clone())); // [b, h, t, w]
        let mut keys = split(self.key.forward(x.clone()));
        let mut values = split(self.value.forward(x));
        if let Some((cache, layer)) = cache {
            (keys, values) = cache.append(layer, keys, values); // [b, h, all, w]
        }
        let scores = query.matmul(keys.swap_dims(2, 3)); // [b, h, t, all]
        let scale = (head_width as f64).powf(-0.5);
        let weights = attention_softmax(scores, scale, &Visible::causal());
        let mixed = dropout.apply(weights).matmul(values); // [b, h, t, w]
        self.proj.forward(mixed.swap_dims(1, 2).reshape([rows, width]))
    }
}

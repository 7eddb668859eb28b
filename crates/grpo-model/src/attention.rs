//! Multi-head self-attention, with heads that may share keys and values.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_kernels::attention_softmax;

use crate::description::Description;
use crate::layers::{Linear, Norm};
use crate::parameters::Parameters;
use crate::pass::Pass;
use crate::{KvCache, ModelError};

/// Attention of every family: causal or not, with joint or separate inputs, grouped or not, rotary or not.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    /// Queries, keys and values: one layer for all three, or one for each.
    inputs: Vec<Linear>,
    output: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    #[module(skip)]
    shape: HeadShape,
}

#[derive(Clone, Copy, Debug)]
struct HeadShape {
    heads: usize,
    kv_heads: usize,
    width: usize,
}

impl Attention {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        of: &Description,
    ) -> Result<Self, ModelError> {
        let (queries, keys) = (of.heads * of.head_width, of.kv_heads * of.head_width);
        let outputs: &[usize] =
            if of.joint_inputs { &[queries + 2 * keys] } else { &[queries, keys, keys] };
        let mut inputs = Vec::new();
        for (i, &output) in outputs.iter().enumerate() {
            let name = format!("{name}.inputs.{i}");
            let bias = of.biases.attention_inputs;
            inputs.push(Linear::new(parameters, &name, [of.width, output], bias)?);
        }
        let mut norm = |part: &str| match of.query_key_norm {
            true => {
                Norm::new(parameters, &format!("{name}.{part}"), of.head_width, of.norm).map(Some)
            }
            false => Ok(None),
        };
        let (query_norm, key_norm) = (norm("query_norm")?, norm("key_norm")?);
        let output = Linear::new(
            parameters,
            &format!("{name}.output"),
            [queries, of.width],
            of.biases.attention_output,
        )?;
        let shape = HeadShape { heads: of.heads, kv_heads: of.kv_heads, width: of.head_width };
        Ok(Self { inputs, output, query_norm, key_norm, shape })
    }

    /// `[batch · tokens, width]` → the same; `cache` with the layer's index where earlier positions count.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        cache: Option<(&mut KvCache, usize)>,
        pass: &mut Pass<'_>,
    ) -> Tensor<2> {
        let HeadShape { heads, kv_heads, width } = self.shape;
        let batch = pass.frame.batch;
        let tokens = x.dims()[0] / batch;
        let [query, keys, values] = self.query_key_value(x, pass);
        let split = |x: Tensor<2>, heads: usize| -> Tensor<4> {
            x.reshape([batch, tokens, heads, width]).swap_dims(1, 2)
        };
        let place = |x: Tensor<2>, heads: usize, norm: &Option<Norm>| -> Tensor<4> {
            let x = match norm {
                Some(norm) => norm.forward(x.reshape([batch * tokens * heads, width])),
                None => x,
            };
            let x = split(x.reshape([batch * tokens, heads * width]), heads);
            match &pass.frame.rotary {
                Some(rotary) => rotary.turn(x),
                None => x,
            }
        };
        let query = place(query, heads, &self.query_norm); // [b, h, t, w]
        let mut keys = place(keys, kv_heads, &self.key_norm); // [b, kv, t, w]
        let mut values = split(values, kv_heads);
        if let Some((cache, layer)) = cache {
            (keys, values) = cache.append(layer, keys, values); // [b, kv, all, w]
        }
        let all = keys.dims()[2];
        // The heads that share keys are neighbours: as more rows of one product, keys need no copies.
        let grouped = query.reshape([batch, kv_heads, heads / kv_heads * tokens, width]);
        let scores = grouped.matmul(keys.swap_dims(2, 3)).reshape([batch, heads, tokens, all]);
        let weights = attention_softmax(scores, (width as f64).powf(-0.5), &pass.frame.visible);
        let weights = pass.dropout.apply(weights);
        let grouped = weights.reshape([batch, kv_heads, heads / kv_heads * tokens, all]);
        let mixed = grouped.matmul(values).reshape([batch, heads, tokens, width]);
        self.output.forward(mixed.swap_dims(1, 2).reshape([batch * tokens, heads * width]), pass)
    }

    pub(crate) fn linears(&self) -> Vec<&Linear> {
        self.inputs.iter().chain([&self.output]).collect()
    }

    pub(crate) fn linears_mut(&mut self) -> Vec<&mut Linear> {
        self.inputs.iter_mut().chain([&mut self.output]).collect()
    }

    /// `[n, heads · width]` of queries, `[n, kv heads · width]` of keys and of values.
    fn query_key_value(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> [Tensor<2>; 3] {
        let HeadShape { heads, kv_heads, width } = self.shape;
        match self.inputs.as_slice() {
            [joint] => {
                let all = joint.forward(x, pass);
                let (queries, keys) = (heads * width, kv_heads * width);
                let part = |start: usize, length: usize| all.clone().narrow(1, start, length);
                [part(0, queries), part(queries, keys), part(queries + keys, keys)]
            }
            [query, key, value] => {
                let mut forward = |layer: &Linear| layer.forward(x.clone(), pass);
                [forward(query), forward(key), forward(value)]
            }
            other => unreachable!("attention has one input layer or three, not {}", other.len()),
        }
    }
}

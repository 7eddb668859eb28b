//! Multi-head self-attention, optionally with grouped queries.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_kernels::{
    HeadNorms, HeadPreparation, Heads, KvPages, PackedWeight, PagePlan, Scoring, attention,
    joint_attention, padded_attention,
};

use crate::description::{Description, LayerAttention, QueryKeyNorm};
use crate::layers::{Linear, Norm};
use crate::parameters::Parameters;
use crate::pass::{Pass, PassContext, Visibility};
use crate::rotary::Rotary;
use crate::{KvCache, ModelError};

/// Self-attention for every model family.
///
/// The description decides whether it is causal, whether the input projections are fused, whether
/// query heads share key/value heads, and whether positions are rotary.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    /// Input projections: either one fused layer for queries, keys and values, or three separate
    /// layers.
    inputs: Vec<Linear>,
    output: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    #[module(skip)]
    heads: Heads,
    /// How products of queries and keys become weights.
    #[module(skip)]
    scoring: Scoring,
    /// Whether queries and keys are rotated, if the model has rotary positions.
    #[module(skip)]
    is_rotated: bool,
}

impl Attention {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        of: &Description,
        layer: usize,
    ) -> Result<Self, ModelError> {
        let heads = of.head_shape();
        let (queries, keys) = (heads.query_columns(), heads.key_columns());
        let outputs: &[usize] =
            if of.joint_inputs { &[queries + 2 * keys] } else { &[queries, keys, keys] };
        let mut inputs = Vec::new();
        for (i, &output) in outputs.iter().enumerate() {
            let name = format!("{name}.inputs.{i}");
            let bias = of.biases.attention_inputs;
            inputs.push(Linear::new(parameters, &name, [of.width, output], bias)?);
        }
        let mut norm = |part: &str, columns: usize| {
            let width = match of.query_key_norm {
                QueryKeyNorm::None => return Ok(None),
                QueryKeyNorm::EachHead => of.head_width,
                QueryKeyNorm::AllHeads => columns,
            };
            Norm::new(parameters, &format!("{name}.{part}"), width, of.norm).map(Some)
        };
        let (query_norm, key_norm) = (norm("query_norm", queries)?, norm("key_norm", keys)?);
        let output = Linear::new(
            parameters,
            &format!("{name}.output"),
            [queries, of.width],
            of.biases.attention_output,
        )?;
        let scale = of.scales.attention.unwrap_or((heads.width as f64).powf(-0.5));
        let LayerAttention { rotated: is_rotated, window } = of.attention_of(layer);
        let scoring = Scoring { window, cap: of.scales.attention_cap, ..scale.into() };
        Ok(Self { inputs, output, query_norm, key_norm, heads, scoring, is_rotated })
    }

    /// Computes `[tokens, width]` → `[tokens, width]`. When decoding with a KV cache, `cache` holds
    /// the cache and the index of this layer.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        cache: Option<(&mut KvCache, usize)>,
        pass: &mut Pass<'_>,
    ) -> Tensor<2> {
        let scoring = self.scoring;
        let mixed = match (&pass.context.visibility, cache) {
            (Visibility::Cached(plan), Some((cache, layer))) => {
                let (plan, pages) = (plan.clone(), cache.layer(layer));
                let query = match self.write_heads(&x, pages, &plan, pass) {
                    Some(query) => query,
                    None => {
                        let [query, keys, values] = self.query_key_value(x, pass);
                        pages.write(keys, values, &plan);
                        query
                    }
                };
                pages.attend(query, &plan, scoring)
            }
            (Visibility::Packed(packing), _) => {
                let packing = packing.clone();
                // Dropout applies to the attention weights, so they have to be materialised.
                let materialise = pass.dropout.is_on() || pass.attention.is_some();
                let is_plain = self.rotary(pass).is_none() && self.query_norm.is_none();
                if let ([joint], false, true) = (self.inputs.as_slice(), materialise, is_plain) {
                    let inputs = joint.forward(x, pass);
                    joint_attention(inputs, self.heads, scoring, &packing)
                } else {
                    let [query, keys, values] = self.query_key_value(x, pass);
                    match materialise {
                        false => attention(query, keys, values, self.heads, scoring, &packing),
                        true => {
                            let on_weights = |weights: Tensor<4>| {
                                pass.attention.iter_mut().for_each(|all| all.push(weights.clone()));
                                pass.dropout.apply(weights)
                            };
                            padded_attention(
                                query, keys, values, self.heads, scoring, &packing, on_weights,
                            )
                        }
                    }
                }
            }
            (Visibility::Cached(_), None) => {
                unreachable!("a pass with cached keys receives the cache")
            }
        };
        self.output.forward(mixed, pass)
    }

    pub(crate) fn linears(&self) -> Vec<&Linear> {
        self.inputs.iter().chain([&self.output]).collect()
    }

    pub(crate) fn linears_mut(&mut self) -> Vec<&mut Linear> {
        self.inputs.iter_mut().chain([&mut self.output]).collect()
    }

    /// Writes the keys and values of `x` to pages, and returns its queries, where a GPU can do so with
    /// few launches.
    fn write_heads(
        &self,
        x: &Tensor<2>,
        pages: &mut KvPages,
        plan: &PagePlan,
        pass: &mut Pass<'_>,
    ) -> Option<Tensor<2>> {
        if !pages.are_on_gpu() {
            return None;
        }
        let norms = match (&self.query_norm, &self.key_norm) {
            (Some(query), Some(_)) if query.width() != self.heads.width => return None,
            (Some(query), Some(key)) => {
                // Both have the ε of the model.
                let ((query, epsilon), (key, _)) = (query.as_rms_norm()?, key.as_rms_norm()?);
                Some(HeadNorms { scales: [query, key], epsilon })
            }
            _ => None,
        };
        let rotary = self.rotary(pass).map(|rotary| rotary.tables().clone());
        let inputs = match self.inputs.as_slice() {
            [query, key, value] => {
                let (query, key) = (query.for_one_launch(pass)?, key.for_one_launch(pass)?);
                PackedWeight::joined_linear(x, [query, key, value.for_one_launch(pass)?])?
            }
            _ => self.inputs[0].forward(x.clone(), pass),
        };
        pages.write_heads(&inputs, &HeadPreparation { norms, rotary }, plan)
    }

    /// Returns the rotary angles if this layer rotates queries and keys.
    fn rotary<'a>(&self, pass: &'a Pass<'_>) -> Option<&'a Rotary> {
        let PassContext { rotary, window_rotary, .. } = &pass.context;
        let of_window = window_rotary.as_ref().filter(|_| self.scoring.window.is_some());
        of_window.or(rotary.as_ref()).filter(|_| self.is_rotated)
    }

    /// Returns the queries `[n, heads · width]`, and the keys and values `[n, kv heads · width]`.
    /// Queries and keys are normalised and rotated if the model does so.
    fn query_key_value(&self, x: Tensor<2>, pass: &mut Pass<'_>) -> [Tensor<2>; 3] {
        let (queries, keys) = (self.heads.query_columns(), self.heads.key_columns());
        let [query, key, value] = match self.inputs.as_slice() {
            [joint] => {
                let all = joint.forward(x, pass);
                let part = |start: usize, length: usize| all.clone().narrow(1, start, length);
                [part(0, queries), part(queries, keys), part(queries + keys, keys)]
            }
            [query, key, value] => {
                let mut forward = |layer: &Linear| layer.forward(x.clone(), pass);
                [forward(query), forward(key), forward(value)]
            }
            other => {
                unreachable!("attention has one or three input projections, not {}", other.len())
            }
        };
        let place = |x: Tensor<2>, norm: &Option<Norm>| {
            let x = match norm {
                Some(norm) => {
                    let [rows, columns] = x.dims();
                    let width = norm.width();
                    let by_head = x.reshape([rows * columns / width, width]);
                    norm.forward(by_head).reshape([rows, columns])
                }
                None => x,
            };
            match self.rotary(pass) {
                Some(rotary) => rotary.turn(x),
                None => x,
            }
        };
        [place(query, &self.query_norm), place(key, &self.key_norm), value]
    }
}

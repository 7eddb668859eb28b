//! The transformer shared by all model families.

mod adapted;
mod language_model;
mod replaced;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use grpo_kernels::{Packing, gather_rows, indices};
use grpo_logprob::Head;

use crate::block::Block;
use crate::checkpoint::{Checkpoint, ConvertedWeights};
use crate::conditioning::{Conditioning, Layout, Reading};
use crate::description::{Conditions, Description, HeadKind, NormOrder, Positions, RotaryConfig};
use crate::layers::{Embedding, Linear, Norm, scaled};
use crate::lora::{Adaptable, Adapter};
use crate::names::{CRITIC, HEAD, Names, SCORE_HEAD};
use crate::parameters::Parameters;
use crate::pass::{Outputs, Pass, PassContext, Visibility};
use crate::precision::{dense, on_tape_of};
use crate::residual::Residual;
use crate::rotary::Rotary;
use crate::score_head::ScoreHead;
use crate::{
    CacheSlot, Dropout, FamilyKind, KnownActivations, KvCache, LanguageModel, ModelConfig,
    ModelError, TokenBatch, WeightPrecision,
};

/// A transformer, consisting of embeddings, blocks, a norm and an output layer.
#[derive(Module, Debug)]
pub struct Transformer {
    blocks: Vec<Block>,
    token_embedding: Embedding,
    type_embedding: Option<Embedding>,
    /// Table of learned positions.
    position_embedding: Option<Embedding>,
    /// Applied to the embeddings ([`NormOrder::Post`]) or to the output of the last block
    /// ([`NormOrder::Pre`]).
    norm: Norm,
    head: Option<Linear>,
    critic: Option<Linear>,
    score_head: Option<ScoreHead>,
    prefix: Option<Conditioning>,
    #[module(skip)]
    description: Description,
    #[module(skip)]
    family: &'static FamilyKind,
}

/// Token type used for conditions.
const CONDITION: usize = 0;

impl Transformer {
    /// Builds a model from a source of parameters.
    ///
    /// # Errors
    /// Returns an error if a tensor is missing or has the wrong shape.
    pub(crate) fn new(
        config: &ModelConfig,
        parameters: &mut Parameters,
    ) -> Result<Self, ModelError> {
        let of = config.description();
        let width = of.width;
        if let Some(block) = &of.block {
            block.check(width, parameters.device())?;
        }
        let blocks = (0..of.layers)
            .map(|i| Block::new(parameters, &format!("blocks.{i}"), of, i))
            .collect::<Result<_, _>>()?;
        let token_embedding =
            Embedding::new(parameters, "token_embedding", [of.vocabulary, width])?;
        let type_embedding = match of.token_type {
            Some(types) => Some(Embedding::new(parameters, "type_embedding", [types.rows, width])?),
            None => None,
        };
        let position_embedding = match of.positions {
            Positions::Learned => {
                Some(Embedding::zeros(parameters, "position_embedding", [of.context, width])?)
            }
            Positions::Rotary(_) => None,
        };
        Ok(Self {
            blocks,
            token_embedding,
            type_embedding,
            position_embedding,
            norm: Norm::new(parameters, "norm", width, of.norm)?,
            head: match of.head {
                HeadKind::Own => {
                    Some(Linear::new(parameters, HEAD, [width, of.vocabulary], false)?)
                }
                HeadKind::Classes(classes) => {
                    Some(Linear::new(parameters, HEAD, [width, classes], true)?)
                }
                HeadKind::Tied | HeadKind::None | HeadKind::Score => None,
            },
            critic: match of.critic {
                true => Some(Linear::new(parameters, CRITIC, [width, 1], true)?),
                false => None,
            },
            score_head: match of.head {
                HeadKind::Score => Some(ScoreHead::new(parameters, SCORE_HEAD, width)?),
                _ => None,
            },
            prefix: Conditioning::new(parameters, of.conditions, width)?,
            description: of.clone(),
            family: config.family(),
        })
    }

    /// Creates a model with random parameters. Equal seeds give equal models.
    ///
    /// Matrices and embeddings are normally distributed with mean 0. The family determines the
    /// standard deviation, and may use a separate one for layers that write to the residual stream.
    /// Biases and learned positions are 0, and norm scales are 1.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be allocated.
    pub fn random(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ModelError> {
        Self::new(config, &mut Parameters::random(seed, config.description(), device))
    }

    /// Creates a model with the weights of a foreign checkpoint, in f32.
    ///
    /// # Errors
    /// Returns an error if a tensor is missing, unexpected, or has the wrong shape.
    pub fn from_converted(
        config: &ModelConfig,
        weights: Box<dyn ConvertedWeights>,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let checkpoint = Checkpoint::of_converted(weights);
        let precision = WeightPrecision::F32;
        let mut parameters = Parameters::of(checkpoint, config.names(), precision, device);
        let model = Self::new(config, &mut parameters)?;
        parameters.finish(config.description().layers)?;
        Ok(model)
    }

    /// Adds the layers that read the conditions in `config`, with random parameters. Everything
    /// else remains unchanged.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be allocated.
    ///
    /// # Panics
    /// Panics if the description differs in anything but the conditions, or if the model already
    /// has conditions.
    pub fn with_conditions(mut self, config: &ModelConfig, seed: u64) -> Result<Self, ModelError> {
        let of = config.description();
        let without = Description { conditions: Conditions::default(), ..of.clone() };
        assert_eq!(self.description, without, "the models differ in more than their conditions");
        let device = LanguageModel::device(&self);
        let mut parameters = Parameters::random(seed, of, &device);
        self.prefix = Conditioning::new(&mut parameters, of.conditions, of.width)?;
        self.description = of.clone();
        Ok(self)
    }

    /// Returns the model description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the model family.
    pub fn family(&self) -> &'static FamilyKind {
        self.family
    }

    /// Returns the tensor names used by the model family.
    pub fn names(&self) -> &'static Names {
        &self.family.names
    }

    /// Computes the hidden states after the final norm, `[tokens, width]`. The result has autodiff
    /// if `device` does. With a KV cache, each sequence of `tokens` continues the corresponding
    /// slot.
    pub(crate) fn run(
        &self,
        tokens: &TokenBatch,
        mut cache: Option<(&mut KvCache, &[CacheSlot])>,
        adapter: Option<&Adapter>,
        dropout: &mut Dropout,
        device: &Device,
    ) -> Tensor<2> {
        let (x, context) = self.begin(tokens, cache.as_mut(), adapter, dropout, device);
        let mut pass = Pass::new(context, adapter, dropout);
        if let Some(recorder) = cache.as_mut().and_then(|(cache, _)| cache.recorder.take()) {
            pass.outputs = Outputs::Recorded(recorder);
        }
        let x = self.run_blocks(x, cache.as_mut().map(|(cache, _)| &mut **cache), &mut pass);
        if let (Some((cache, _)), Outputs::Recorded(mut recorder)) = (cache, pass.outputs) {
            recorder.pass_done(tokens.tokens());
            cache.recorder = Some(recorder);
        }
        self.end(x, &pass.context)
    }

    /// Same as [`Self::run`] without a KV cache and dropout. Outputs of linear layers are taken from
    /// `known`.
    pub(crate) fn run_from(
        &self,
        known: &KnownActivations,
        tokens: &TokenBatch,
        adapter: Option<&Adapter>,
        device: &Device,
    ) -> Tensor<2> {
        let mut dropout = Dropout::off();
        let (x, context) = self.begin(tokens, None, adapter, &mut dropout, device);
        let mut pass = Pass::new(context, adapter, &mut dropout);
        pass.outputs = Outputs::Known(known.clone());
        let x = self.run_blocks(x, None, &mut pass);
        self.end(x, &pass.context)
    }

    fn run_blocks(
        &self,
        x: Tensor<2>,
        mut cache: Option<&mut KvCache>,
        pass: &mut Pass<'_>,
    ) -> Residual {
        let mut x = Residual::new(x);
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, cache.as_deref_mut().map(|cache| (cache, layer)), pass);
        }
        x
    }

    /// Returns the attention weights of a sequence without conditions, for each layer and head,
    /// `[ids · ids]`: a row for each query, with a weight for each key. Rows sum to 1.
    ///
    /// # Panics
    /// Panics if `ids` is empty or longer than the context.
    pub fn attention_weights(&self, ids: &[u32], adapter: Option<&Adapter>) -> Vec<Vec<Vec<f32>>> {
        let mut tokens = TokenBatch::new();
        tokens.push(ids);
        let mut dropout = Dropout::off();
        let device = LanguageModel::device(self);
        let (x, context) = self.begin(&tokens, None, adapter, &mut dropout, &device);
        let mut pass = Pass::new(context, adapter, &mut dropout);
        pass.attention = Some(Vec::new());
        self.run_blocks(x, None, &mut pass);
        let by_head = |weights: Tensor<4>| {
            let values = weights.into_data().convert::<f32>();
            let values = values.as_slice::<f32>().expect("the data was converted");
            values.chunks(ids.len() * ids.len()).map(<[f32]>::to_vec).collect()
        };
        pass.attention.take().unwrap_or_default().into_iter().map(by_head).collect()
    }

    /// Returns the input to the first block, and the context for the rest of the pass.
    pub(crate) fn begin(
        &self,
        tokens: &TokenBatch,
        cache: Option<&mut (&mut KvCache, &[CacheSlot])>,
        adapter: Option<&Adapter>,
        dropout: &mut Dropout,
        device: &Device,
    ) -> (Tensor<2>, PassContext) {
        let conditions = self.description.conditions;
        let of_prefixes = tokens.prefixes().iter().map(|prefix| conditions.vectors(prefix));
        let layout = Layout::new(tokens, &of_prefixes.collect::<Vec<_>>());
        let tables = self.token_embedding.device();
        let is_cached = cache.is_some();
        let (visibility, positions) = self.visibility(tokens, &layout, cache, &tables);
        let longest = positions.iter().max().map_or(0, |last| last + 1);
        let context = self.description.context;
        assert!(longest <= context, "{longest} tokens exceed the context of {context}");
        let x = self.embedded(tokens, adapter); // [n, d]
        let mut x = scaled(x, self.description.scales.embedding);
        // Adapters can put some of the tables on the tape.
        let sum = |x: Tensor<2>, y: Tensor<2>| {
            let y = on_tape_of(&x, y);
            on_tape_of(&y, x) + y
        };
        if let Some(embedding) = &self.position_embedding {
            let ids = indices(positions.iter().copied(), &embedding.device());
            x = sum(x, embedding.forward(ids));
        }
        if let (Some(types), Some(row)) = (&self.type_embedding, self.description.token_type) {
            x = sum(x, types.row(row.token).unsqueeze());
        }
        x = dense(x);
        if layout.has_prefixes() {
            let invariant = is_cached;
            let reading = Reading { embedding: &self.token_embedding, invariant, device: &tables };
            x = self.behind_conditions(x, tokens, &layout, &reading, dropout);
        }
        if device.is_autodiff() && !x.is_autodiff() {
            x = Tensor::from_inner(x);
        }
        if self.description.order == NormOrder::Post {
            x = self.norm.forward(x);
        }
        let angles = |config: &RotaryConfig| {
            assert!(!layout.has_prefixes(), "rotary positions do not support conditions");
            Rotary::new(config, self.description.head_width, &positions, &x.device())
        };
        let rotary = match &self.description.positions {
            Positions::Rotary(config) => Some(angles(config)),
            Positions::Learned => None,
        };
        let window_rotary = self.description.window_rotary.as_ref().map(angles);
        let token_rows = layout.has_prefixes().then(|| layout.token_rows().collect());
        (dropout.apply(x), PassContext { visibility, rotary, window_rotary, token_rows })
    }

    /// Returns the visibility of each row and the position of each token.
    fn visibility(
        &self,
        tokens: &TokenBatch,
        layout: &Layout,
        cache: Option<&mut (&mut KvCache, &[CacheSlot])>,
        device: &Device,
    ) -> (Visibility, Vec<usize>) {
        let Some((cache, slots)) = cache else {
            let packing = tokens.packing(self.description.causal);
            let positions = packing.positions();
            let packing = match layout.has_prefixes() {
                false => packing,
                true => Packing::new(layout.sequences.as_slice(), self.description.causal),
            };
            return (Visibility::Packed(packing), positions);
        };
        assert!(self.description.causal, "a KV cache requires causal attention");
        let first = slots.iter().map(|&slot| cache.tokens(slot));
        let positions = first.zip(tokens.lengths()).flat_map(|(first, n)| first..first + n);
        let positions = positions.collect();
        cache.prepare(self.description.layers, self.description.head_shape(), device);
        let plan = cache.plan(tokens, slots, &layout.prefixes);
        (Visibility::Cached(Arc::new(plan)), positions)
    }

    /// Inserts the vectors of its conditions before each sequence of `x`.
    fn behind_conditions(
        &self,
        x: Tensor<2>,
        tokens: &TokenBatch,
        layout: &Layout,
        reading: &Reading<'_>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        let conditioning = self.prefix.as_ref().expect("the conditions were checked");
        let (vectors, rows) = conditioning.vectors(tokens.prefixes(), reading, dropout);
        let vectors = match &self.type_embedding {
            Some(types) => vectors + types.row(CONDITION).unsqueeze(),
            None => vectors,
        };
        let first = vectors.dims()[0];
        let rows = rows.into_iter().enumerate().flat_map(|(sequence, rows)| {
            let own = tokens.rows(sequence);
            rows.into_iter().chain(first + own.start..first + own.end)
        });
        let rows = indices(rows.collect::<Vec<_>>(), &x.device());
        debug_assert_eq!(layout.rows(), rows.dims()[0]);
        gather_rows(Tensor::cat(vec![vectors, x], 0), rows)
    }

    /// Runs a single block.
    pub(crate) fn block(&self, layer: usize, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        self.blocks[layer].forward(Residual::new(x), None, pass).into_sum()
    }

    /// Drops the rows of conditions and applies the final norm if the model has one.
    pub(crate) fn end(&self, mut x: Residual, context: &PassContext) -> Tensor<2> {
        if let Some(rows) = &context.token_rows {
            let all = x.into_sum();
            let rows = indices(rows.iter().copied(), &all.device());
            x = Residual::new(gather_rows(all, rows));
        }
        let hidden = match self.description.order {
            NormOrder::Pre => x.normalised(&self.norm).0,
            NormOrder::Post => x.into_sum(),
        };
        // The output layer is linear, and has no bias where logits are scaled.
        scaled(hidden, self.description.scales.logits)
    }

    /// Returns the output layer, with autodiff if `device` has it.
    pub(crate) fn head_on(&self, device: &Device) -> Head {
        let head = match &self.head {
            Some(own) => own.as_head(),
            None => self.token_embedding.as_head(),
        };
        let lift = |weight: Tensor<2>| {
            let weight = dense(weight);
            let on_tape = device.is_autodiff() && !weight.is_autodiff();
            if on_tape { Tensor::from_inner(weight) } else { weight }
        };
        Head { weight: lift(head.weight), bias: head.bias }
    }

    /// Computes, for each token, the logit of the probability that it is wrong, `[n, width]` →
    /// `[n]`. Returns `None` if the model has no critic. The result is tracked by autodiff if the
    /// hidden states or the parameters are.
    pub fn critic(&self, hidden: Tensor<2>) -> Option<Tensor<1>> {
        self.critic.as_ref().map(|critic| critic.product(hidden).squeeze_dim(1))
    }

    /// Computes sequence scores from the hidden states of the first tokens. Returns `None` if the
    /// model has no score head.
    pub fn score(&self, hidden: Tensor<2>) -> Option<Tensor<1>> {
        self.score_head.as_ref().map(|head| head.forward(hidden))
    }

    /// Returns the linear layers in the blocks, which are the ones an adapter changes by default.
    pub(crate) fn adaptable_layers(&self) -> Vec<Adaptable> {
        let adaptable = |linear: &Linear| Adaptable {
            number: linear.number,
            layer: linear.path.clone(),
            stored: self.names().module(&linear.path),
            shape: linear.shape(),
        };
        self.blocks.iter().flat_map(Block::linears).map(adaptable).collect()
    }
}

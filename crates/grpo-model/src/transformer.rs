//! The transformer of every family.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use grpo_kernels::Visible;
use grpo_logprob::Head;

use crate::block::Block;
use crate::description::{Description, HeadKind, NormOrder, Positions};
use crate::layers::{Embedding, Linear, Norm};
use crate::lora::{Adaptable, Adapter};
use crate::names::{HEAD, Names};
use crate::parameters::Parameters;
use crate::pass::{Frame, Pass, Places};
use crate::precision::dense;
use crate::rotary::Rotary;
use crate::{CausalLm, Dropout, KvCache, ModelConfig, ModelError, TokenBatch};

/// A transformer: embeddings, blocks, a norm, and what turns hidden states into logits.
#[derive(Module, Debug)]
pub struct Transformer {
    blocks: Vec<Block>,
    token_embedding: Embedding,
    type_embedding: Option<Embedding>,
    /// Learned positions.
    position_embedding: Option<Embedding>,
    /// After the embeddings ([`NormOrder::Post`]) or after the last block ([`NormOrder::Pre`]).
    norm: Norm,
    head: Option<Linear>,
    #[module(skip)]
    description: Description,
    #[module(skip)]
    names: Names,
}

/// The row of the table of types that conditions get.
const CONDITION: usize = 0;

impl Transformer {
    /// Builds the model from `parameters`, which come from a file or from the generator.
    ///
    /// # Errors
    /// What is missing or does not fit in the file.
    pub(crate) fn new(
        config: &ModelConfig,
        parameters: &mut Parameters,
    ) -> Result<Self, ModelError> {
        let of = config.description();
        let width = of.width;
        let blocks = (0..of.layers)
            .map(|i| Block::new(parameters, &format!("blocks.{i}"), of))
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
                HeadKind::Tied | HeadKind::None => None,
            },
            description: of.clone(),
            names: config.names(),
        })
    }

    /// A model with first values from the generator: N(0, σ) for matrices and tables, with the family's σ, 0 for
    /// biases and learned positions, 1 for the scales of the norms. Equal seeds give equal models.
    ///
    /// # Errors
    /// [`ModelError::Memory`].
    pub fn random(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self, ModelError> {
        let deviation = config.description().initial_deviation;
        Self::new(config, &mut Parameters::random(seed, deviation, device))
    }

    /// What the model is made of.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What its family calls its parameters.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Hidden states after the last norm, `[batch · tokens, width]`, on the tape where `device` has one.
    pub(crate) fn run(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        mut cache: Option<&mut KvCache>,
        adapter: Option<&Adapter>,
        dropout: &mut Dropout,
        device: &Device,
    ) -> Tensor<2> {
        let prefixed = prefix.as_ref().map_or(0, |prefix| prefix.dims()[1]);
        let (mut x, frame) = self.begin(tokens, prefix, cache.as_deref(), dropout, device);
        if let Some(cache) = &mut cache {
            cache.begin(tokens, prefixed);
        }
        let mut pass = Pass { frame, adapter, dropout };
        for (layer, block) in self.blocks.iter().enumerate() {
            let cache = cache.as_mut().map(|cache| (&mut **cache, layer));
            x = block.forward(x, cache, &mut pass);
        }
        let x = self.end(x);
        match prefixed {
            0 => x,
            _ => {
                let (rows, columns, width) = (tokens.rows(), tokens.columns(), x.dims()[1]);
                let all = x.reshape([rows, prefixed + columns, width]);
                all.narrow(1, prefixed, columns).reshape([rows * columns, width])
            }
        }
    }

    /// What goes into the first block, and the places of the pass.
    pub(crate) fn begin(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        cache: Option<&KvCache>,
        dropout: &mut Dropout,
        device: &Device,
    ) -> (Tensor<2>, Frame) {
        let (batch, columns, width) = (tokens.rows(), tokens.columns(), self.description.width);
        let places = Places::new(tokens, cache);
        assert!(
            prefix.is_none() || (places.seen == 0 && !tokens.is_left_padded()),
            "a prefix stands in front of everything, so it comes with the first tokens"
        );
        let longest = places.longest();
        let context = self.description.context;
        assert!(longest <= context, "{longest} tokens in a context of {context}");
        let tables = self.token_embedding.device();
        let mut x = self.token_embedding.forward(tokens.flat_ids(&tables)); // [b·t, d]
        if let Some(positions) = &self.position_embedding {
            x = x + positions.forward(places.flat_positions(batch, &tables));
        }
        if let (Some(types), Some(row)) = (&self.type_embedding, self.description.token_type) {
            x = x + types.row(row.token).unsqueeze();
        }
        x = dense(x);
        let mut prefixed = 0;
        if let Some(prefix) = prefix {
            prefixed = prefix.dims()[1];
            let types = self.type_embedding.as_ref();
            let condition = match types {
                Some(types) => prefix + types.row(CONDITION).reshape([1, 1, width]),
                None => prefix,
            };
            x = Tensor::cat(vec![condition, x.reshape([batch, columns, width])], 1)
                .reshape([batch * (prefixed + columns), width]);
        }
        if device.is_autodiff() && !x.is_autodiff() {
            x = Tensor::from_inner(x);
        }
        if self.description.order == NormOrder::Post {
            x = self.norm.forward(x);
        }
        let rotary = match &self.description.positions {
            Positions::Rotary(config) => {
                assert!(prefixed == 0, "rotary families have no conditions");
                let positions = places.positions.as_slice();
                Some(Rotary::new(config, self.description.head_width, positions, &x.device()))
            }
            Positions::Learned => None,
        };
        let frame = Frame { batch, visible: self.visible(tokens, &places), rotary };
        (dropout.apply(x), frame)
    }

    /// Block `layer` alone.
    pub(crate) fn block(&self, layer: usize, x: Tensor<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        self.blocks[layer].forward(x, None, pass)
    }

    /// What comes after the last block.
    pub(crate) fn end(&self, x: Tensor<2>) -> Tensor<2> {
        match self.description.order {
            NormOrder::Pre => self.norm.forward(x),
            NormOrder::Post => x,
        }
    }

    fn visible(&self, tokens: &TokenBatch, places: &Places) -> Visible {
        if !self.description.causal {
            return Visible::all().within(tokens.spans().clone());
        }
        // What stands to the right of a row's end is seen by no token of it.
        match &places.starts {
            None => Visible::causal(),
            Some(starts) => {
                let keys = places.seen + tokens.columns();
                Visible::causal()
                    .within(starts.iter().map(|&start| start..keys).collect::<Vec<_>>())
            }
        }
    }

    /// The last layer, on the tape where `device` has one.
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

    /// The linear layers of the blocks: those that an adapter may have pairs for.
    pub(crate) fn adaptable_layers(&self) -> Vec<Adaptable> {
        let adaptable = |linear: &Linear| Adaptable {
            number: linear.number,
            layer: linear.path.clone(),
            stored: self.names.module(&linear.path),
            shape: linear.shape(),
        };
        self.blocks.iter().flat_map(Block::linears).map(adaptable).collect()
    }

    /// With `adapter` added into the weights: `W + s · A · B`. It is off the tape, and what was held in fewer bits is
    /// in f32.
    pub fn merged(&self, adapter: &Adapter) -> Self {
        let mut merged =
            if CausalLm::device(self).is_autodiff() { self.valid() } else { self.clone() };
        for linear in merged.blocks.iter_mut().flat_map(Block::linears_mut) {
            let weight = dense(linear.weight.val());
            let sum = match adapter.pair(linear.number) {
                Some(pair) => weight + pair.product(),
                None => weight,
            };
            linear.weight = Param::from_tensor(sum);
        }
        merged
    }
}

impl CausalLm for Transformer {
    fn hidden(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        self.run(tokens, prefix, None, None, dropout, &self.device())
    }

    fn extend(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        self.run(tokens, prefix, Some(cache), None, &mut Dropout::off(), &self.device())
    }

    fn head(&self) -> Head {
        self.head_on(&self.device())
    }

    fn vocabulary_size(&self) -> usize {
        self.description.vocabulary
    }

    fn context_length(&self) -> usize {
        self.description.context
    }
}

//! MolGPT (Bagal et al. 2022, "MolGPT: Molecular Generation Using a Transformer-Decoder Model").
//!
//! A pre-norm causal transformer with learned positions, a type embedding that tells tokens (1) from
//! conditions (0), exact GELU, biases everywhere but in the head, and a head of its own. Tensor names and
//! layouts are those of the published PyTorch code.

use std::path::Path;

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use grpo_kernels::gelu;
use grpo_logprob::Head;
use serde::{Deserialize, Serialize};

use crate::causal::{CausalLm, KvCache};
use crate::layers::{CausalAttention, Embedding, LayerNorm, Linear};
use crate::weights::Parameters;
use crate::{Dropout, ModelError};

/// Sizes of a [`MolGpt`]; `config.json` of a model folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MolGptConfig {
    /// `"molgpt"`.
    pub architecture: Architecture,
    /// Tokens.
    pub vocab_size: usize,
    /// Longest sequence, in tokens.
    pub block_size: usize,
    /// Transformer blocks.
    pub n_layer: usize,
    /// Attention heads; divides `n_embd`.
    pub n_head: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
}

/// The families that `config.json` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// [`MolGpt`].
    MolGpt,
}

impl MolGptConfig {
    /// Checks sizes once, so that nothing later has to.
    ///
    /// # Errors
    /// [`ModelError::Sizes`] for a zero or for heads that do not divide the width.
    pub fn checked(self) -> Result<Self, ModelError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("block_size", self.block_size),
            ("n_layer", self.n_layer),
            ("n_head", self.n_head),
            ("n_embd", self.n_embd),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ModelError::Sizes(format!("{name} is 0; it must be at least 1")));
        }
        // Far above any model of this family; what is larger is a slip of the keyboard, and its memory could
        // not be had.
        let most = [1 << 20, 1 << 20, 1 << 10, 1 << 16, 1 << 16];
        if let Some(((name, size), most)) =
            sizes.iter().zip(most).find(|((_, size), most)| size > most)
        {
            return Err(ModelError::Sizes(format!("{name} = {size} is too large; at most {most}")));
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            return Err(ModelError::Sizes(format!(
                "n_embd = {} cannot be split into n_head = {} heads of equal width",
                self.n_embd, self.n_head
            )));
        }
        Ok(self)
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// A file that cannot be read, is not JSON, lacks a key or has an unknown one; sizes that do not fit.
    pub fn from_json_file(path: &Path) -> Result<Self, ModelError> {
        let config = |message: String| ModelError::Config { path: path.to_owned(), message };
        let text = std::fs::read_to_string(path)
            .map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        let parsed: Self =
            serde_json::from_str(&text).map_err(|error| config(error.to_string()))?;
        parsed.checked().map_err(|error| config(error.to_string()))
    }
}

/// The model. See the module's head.
#[derive(Module, Debug)]
pub struct MolGpt {
    tok_emb: Embedding,
    type_emb: Embedding,
    /// `[1, block_size, n_embd]`
    pos_emb: Param<Tensor<3>>,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    head: Linear,
}

/// Row of the type embedding for conditions.
const CONDITION: usize = 0;
/// Row of the type embedding for tokens.
const TOKEN: usize = 1;
/// PyTorch's default.
const LAYER_NORM_EPSILON: f64 = 1e-5;

impl MolGpt {
    /// Builds the model from `parameters`, which come from a file or from the generator.
    ///
    /// # Errors
    /// What is missing or does not fit in the file.
    pub fn new(config: &MolGptConfig, parameters: &mut Parameters) -> Result<Self, ModelError> {
        let width = config.n_embd;
        let blocks = (0..config.n_layer)
            .map(|i| Block::new(parameters, &format!("blocks.{i}"), width, config.n_head))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            blocks,
            tok_emb: Embedding::new(parameters, "tok_emb", [config.vocab_size, width])?,
            type_emb: Embedding::new(parameters, "type_emb", [2, width])?,
            pos_emb: parameters.zeros("pos_emb", [1, config.block_size, width])?,
            ln_f: LayerNorm::new(parameters, "ln_f", width, LAYER_NORM_EPSILON)?,
            head: Linear::new(parameters, "head", [width, config.vocab_size], false)?,
        })
    }

    /// A model with first values from the generator: N(0, 0.02) for weights and embeddings, 0 for biases and
    /// positions, 1 for the scales of the norms.
    pub fn random(config: &MolGptConfig, seed: u64, device: &Device) -> Self {
        let mut parameters = Parameters::random(seed, device);
        Self::new(config, &mut parameters).expect("random parameters come in every size")
    }

    /// Reads the weights of a model folder.
    ///
    /// # Errors
    /// A file that cannot be read; a tensor that is missing, too many, or of another size.
    pub fn load(config: &MolGptConfig, path: &Path, device: &Device) -> Result<Self, ModelError> {
        let mut parameters = Parameters::from_file(path, device)?;
        let model = Self::new(config, &mut parameters)?;
        // The published code keeps its causal masks among the weights; they hold nothing learned.
        parameters.finish(|unused| unused.ends_with(".attn.mask"))?;
        Ok(model)
    }

    fn run(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        mut cache: Option<&mut KvCache>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        let [batch, tokens] = ids.dims();
        assert!(
            prefix.is_none() || cache.as_ref().is_none_or(|cache| cache.positions() == 0),
            "a prefix stands in front of everything, so it comes with the first tokens"
        );
        let seen = cache.as_ref().map_or(0, |cache| cache.positions() - cache.prefix);
        assert!(
            seen + tokens <= self.context_length(),
            "{seen} + {tokens} tokens in a context of {}",
            self.context_length()
        );
        let width = self.tok_emb.row(TOKEN).dims()[0];
        let token = self.tok_emb.forward(ids.reshape([batch * tokens]));
        let position = self.pos_emb.val().slice([0..1, seen..seen + tokens]); // [1, t, d]
        let mut x = token.reshape([batch, tokens, width])
            + position
            + self.type_emb.row(TOKEN).reshape([1, 1, width]);
        let mut prefix_length = 0;
        if let Some(prefix) = prefix {
            prefix_length = prefix.dims()[1];
            let condition = prefix + self.type_emb.row(CONDITION).reshape([1, 1, width]);
            x = Tensor::cat(vec![condition, x], 1); // [b, p + t, d]
        }
        let rows = batch * (prefix_length + tokens);
        let mut x = dropout.apply(x.reshape([rows, width]));
        for (layer, block) in self.blocks.iter().enumerate() {
            let cache = cache.as_mut().map(|cache| (&mut **cache, layer));
            x = block.forward(x, batch, cache, dropout);
        }
        if let Some(cache) = cache {
            cache.prefix += prefix_length;
        }
        if prefix_length > 0 {
            let all = x.reshape([batch, prefix_length + tokens, width]);
            let kept = all.slice([0..batch, prefix_length..prefix_length + tokens]);
            x = kept.reshape([batch * tokens, width]);
        }
        self.ln_f.forward(x)
    }
}

impl CausalLm for MolGpt {
    fn hidden(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        self.run(ids, prefix, None, dropout)
    }

    fn extend(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        self.run(ids, prefix, Some(cache), &mut Dropout::off())
    }

    fn head(&self) -> Head {
        self.head.as_head()
    }

    fn vocabulary_size(&self) -> usize {
        self.head.output_size()
    }

    fn context_length(&self) -> usize {
        self.pos_emb.lazy_shape()[1]
    }
}

#[derive(Module, Debug)]
struct Block {
    ln1: LayerNorm,
    ln2: LayerNorm,
    attn: CausalAttention,
    mlp: Mlp,
}

impl Block {
    fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        heads: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            ln1: LayerNorm::new(parameters, &format!("{name}.ln1"), width, LAYER_NORM_EPSILON)?,
            ln2: LayerNorm::new(parameters, &format!("{name}.ln2"), width, LAYER_NORM_EPSILON)?,
            attn: CausalAttention::new(parameters, &format!("{name}.attn"), width, heads)?,
            mlp: Mlp {
                up: Linear::new(parameters, &format!("{name}.mlp.0"), [width, 4 * width], true)?,
                down: Linear::new(parameters, &format!("{name}.mlp.2"), [4 * width, width], true)?,
            },
        })
    }

    fn forward(
        &self,
        x: Tensor<2>,
        batch: usize,
        cache: Option<(&mut KvCache, usize)>,
        dropout: &mut Dropout,
    ) -> Tensor<2> {
        let attended = self.attn.forward(self.ln1.forward(x.clone()), batch, cache, dropout);
        let x = x + dropout.apply(attended);
        let widened = gelu(self.mlp.up.forward(self.ln2.forward(x.clone())));
        x + dropout.apply(self.mlp.down.forward(widened))
    }
}

/// Stored as `mlp.0` and `mlp.2`: entries 0 and 2 of a PyTorch `Sequential`.
#[derive(Module, Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
}

//! Models with random weights in the sizes used by the acceptance tests.

use grpo_model::{
    Adapted, Adapter, LanguageModel, ModelConfig, Policy, ProductPrecision, Transformer,
};
use grpo_molecules::MolGptConfig;
use grpo_task::device::device;
use serde_json::json;

/// A model size with a context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Size of the model.
    pub size: Size,
    /// Context length in tokens.
    pub context: usize,
}

/// Available model sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A MolGPT with 40,000 parameters, used for measurements over hundreds of steps.
    Tiny,
    /// A MolGPT with 0.8 million parameters: 4 layers, width 128, vocabulary 100.
    Prior,
    /// A MolGPT with 6.4 million parameters: 8 layers, width 256, vocabulary 100.
    Small,
    /// A GPT-2 with 54 million parameters: 12 layers, width 512, vocabulary 32,000, tied
    /// embeddings.
    Medium,
    /// A model with the shape of Qwen3-0.6B, 596 million parameters: 28 layers, width 1,024,
    /// vocabulary 151,936, tied embeddings.
    Large,
    /// A model with the shape of Qwen3-1.7B, 1.7 billion parameters: as [`Self::Large`], with
    /// width 2,048.
    ExtraLarge,
}

/// Width of a head of Qwen3.
const HEAD_WIDTH: usize = 128;

impl Size {
    /// Returns the number of layers, the width, the number of heads and the vocabulary size.
    fn numbers(self) -> [usize; 4] {
        match self {
            Self::Tiny => [2, 32, 2, 32],
            Self::Prior => [4, 128, 4, 100],
            Self::Small => [8, 256, 8, 100],
            Self::Medium => [12, 512, 8, 32_000],
            Self::Large => [28, 1024, 16, 151_936],
            Self::ExtraLarge => [28, 2048, 16, 151_936],
        }
    }

    /// Returns the number of weights in the matrices of a layer, and the width of all its heads.
    fn layer(self) -> [usize; 2] {
        let width = self.width();
        match self {
            // Attention has four projections. The MLP has two, each 4 times as large.
            Self::Tiny | Self::Prior | Self::Small | Self::Medium => [12 * width * width, width],
            // Half as many keys and values as queries, and an MLP with three projections.
            Self::Large | Self::ExtraLarge => {
                let heads = self.numbers()[2] * HEAD_WIDTH;
                [3 * width * heads + 3 * width * self.qwen_mlp_width(), heads]
            }
        }
    }

    /// Returns the width of the MLP of a Qwen3 of this width.
    fn qwen_mlp_width(self) -> usize {
        3 * self.width()
    }

    /// Returns the width of the hidden states.
    pub fn width(self) -> usize {
        self.numbers()[1]
    }

    /// Returns the vocabulary size.
    pub fn vocabulary(self) -> usize {
        self.numbers()[3]
    }
}

impl Model {
    /// Creates a trainable model with random weights.
    ///
    /// # Errors
    /// Returns an error if the model configuration is invalid, or if the device does not work.
    pub fn build(self) -> anyhow::Result<Policy> {
        Ok(Policy::Whole(self.transformer()?))
    }

    /// Creates a frozen model with random weights and a trainable adapter of rank 16.
    ///
    /// # Errors
    /// Returns an error if the model configuration is invalid, or if the device does not work.
    pub fn build_with_adapter(self) -> anyhow::Result<Policy> {
        let model = self.transformer()?;
        let config = serde_json::from_value(json!({"rank": 16, "alpha": 32.0}))?;
        let adapter = Adapter::random(&config, &model, 2, &model.device())?;
        Ok(Policy::Adapted(Adapted::new(&model, adapter)))
    }

    fn transformer(self) -> anyhow::Result<Transformer> {
        let config = self.config().map_err(anyhow::Error::msg)?;
        Ok(Transformer::random(&config, 1, &device()?.autodiff())?)
    }

    fn config(self) -> Result<ModelConfig, String> {
        let [layers, width, heads, vocabulary] = self.size.numbers();
        match self.size {
            Size::Tiny | Size::Prior | Size::Small => {
                let sizes = MolGptConfig::new(vocabulary, self.context, layers, heads, width);
                sizes.to_config().map_err(|error| error.to_string())
            }
            Size::Medium => {
                let json = json!({
                    "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": self.context,
                    "n_embd": width, "n_layer": layers, "n_head": heads,
                    "activation_function": "gelu_pytorch_tanh", "tie_word_embeddings": true,
                });
                ModelConfig::from_json(&json.to_string())
            }
            Size::Large | Size::ExtraLarge => {
                let json = json!({
                    "model_type": "qwen3", "vocab_size": vocabulary, "hidden_size": width,
                    "intermediate_size": self.size.qwen_mlp_width(), "num_hidden_layers": layers,
                    "num_attention_heads": heads, "num_key_value_heads": heads / 2,
                    "head_dim": HEAD_WIDTH, "max_position_embeddings": self.context,
                    "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
                    "tie_word_embeddings": true,
                });
                ModelConfig::from_json(&json.to_string())
            }
        }
    }

    /// Returns the FLOPs of all matrix products in a forward pass with causal attention. The pass
    /// processes the tokens `from..to` and computes logits for the last `scored` tokens.
    pub fn forward_flops(self, from: usize, to: usize, scored: usize) -> f64 {
        let [layers, width, _, vocabulary] = self.size.numbers().map(|number| number as f64);
        let [weights, heads] = self.size.layer().map(|number| number as f64);
        let linear = 2.0 * layers * weights;
        let seen = (to * (to + 1) - from * (from + 1)) as f64 / 2.0;
        let attention = 2.0 * layers * 2.0 * heads * seen;
        (to - from) as f64 * linear + attention + scored as f64 * 2.0 * width * vocabulary
    }

    /// Returns the bytes of the weight matrices of a forward pass. Only those of blocks can be in 16 bits.
    pub fn weight_bytes(self, precision: ProductPrecision) -> f64 {
        let [layers, width, _, vocabulary] = self.size.numbers().map(|number| number as f64);
        let of_a_weight = if precision.is_f32() { 4.0 } else { 2.0 };
        layers * self.size.layer()[0] as f64 * of_a_weight + 4.0 * width * vocabulary
    }

    /// Returns the FLOPs of a forward and backward pass. The backward pass needs twice as many as
    /// the forward pass.
    pub fn training_flops(self, tokens: usize, scored: usize) -> f64 {
        3.0 * self.forward_flops(0, tokens, scored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;

    /// The parameter counts must match docs/benchmarks.md and peers/bench.py.
    #[test]
    fn parameters_are_as_named() {
        let check = |size, context, expect| {
            assert_eq!(Model { size, context }.build().unwrap().num_params(), expect, "{size:?}");
        };
        // Each block has 12 d² weights and 13 d biases and norm parameters. The rest are the
        // embedding tables (tokens, types, positions), the head and the final norm.
        check(Size::Tiny, 32, 2 * (12 * 32 * 32 + 13 * 32) + (32 + 2 + 32 + 32 + 2) * 32);
        check(Size::Prior, 64, 4 * (12 * 128 * 128 + 13 * 128) + (100 + 2 + 64 + 100 + 2) * 128);
        check(Size::Small, 64, 8 * (12 * 256 * 256 + 13 * 256) + (100 + 2 + 64 + 100 + 2) * 256);
        check(Size::Medium, 256, 12 * (12 * 512 * 512 + 13 * 512) + (32_000 + 256 + 2) * 512);
    }

    #[test]
    fn shapes_of_the_large_models() {
        for (size, width, mlp_width) in [(Size::Large, 1024, 3072), (Size::ExtraLarge, 2048, 6144)]
        {
            let config = Model { size, context: 64 }.config().unwrap();
            let of = config.description();
            assert_eq!((of.layers, of.width, of.vocabulary), (28, width, 151_936));
            assert_eq!((of.heads, of.kv_heads, of.head_width), (16, 8, 128));
            assert_eq!(of.mlp_width, mlp_width);
        }
    }

    #[test]
    fn bytes_of_weights_by_hand() {
        let tiny = Model { size: Size::Tiny, context: 32 };
        let [blocks, head] = [2.0 * 12.0 * 32.0 * 32.0, 32.0 * 32.0];
        assert_eq!(tiny.weight_bytes(ProductPrecision::F32), 4.0 * (blocks + head));
        assert_eq!(tiny.weight_bytes(ProductPrecision::Bf16), 2.0 * blocks + 4.0 * head);
    }

    #[test]
    fn operations_by_hand() {
        let model = Model { size: Size::Tiny, context: 32 };
        let linear = 2.0 * 2.0 * 12.0 * 32.0 * 32.0;
        // Tokens 2 and 3 attend to 3 and 4 tokens. Both layers compute scores and weighted values.
        let attention = 2.0 * 2.0 * 2.0 * 32.0 * 7.0;
        let head = 2.0 * 32.0 * 32.0;
        assert_eq!(model.forward_flops(2, 4, 1), 2.0 * linear + attention + head);
        // With a KV cache, the work can be split into several passes.
        let apart = model.forward_flops(0, 5, 0) + model.forward_flops(5, 9, 4);
        assert_eq!(model.forward_flops(0, 9, 4), apart);
        assert_eq!(model.training_flops(9, 4), 3.0 * apart);
        // The heads of this model are twice as wide as its hidden states.
        let model = Model { size: Size::Large, context: 32 };
        let layer = 2.0 * 15_728_640.0 + 2.0 * 2.0 * 2048.0;
        assert_eq!(model.forward_flops(0, 1, 1), 28.0 * layer + 2.0 * 1024.0 * 151_936.0);
    }
}

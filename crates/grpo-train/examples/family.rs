//! A model family with a block of its own, registered from outside: norms follow attention and MLP
//! (OLMo 2), the MLP squares its activations (Primer), queries, keys and values are one matrix, and
//! every fourth layer has no positions. Run it with `cargo run --example family`.

use std::error::Error;
use std::sync::Arc;

use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use grpo_model::{
    Biases, BlockForm, BlockLayers, Description, Families, FamilyKind, Fields, Frozen,
    LayerAttention, LinearLayer, ModelConfig, Names, NormKind, OwnBlock, OwnLayers, Positions,
    RotaryConfig, RotaryScaling, Transformer,
};
use grpo_rewards::PatternReward;
use grpo_train::{Grpo, GrpoConfig, Metrics, NextTokens, Parts, unconditional_prompts};

/// The family, as a task or a program registers it.
pub(crate) static SQUARED: FamilyKind = FamilyKind::new("squared", NAMES, describe);

const NAMES: Names = Names {
    prefix: "model.",
    blocks: "layers.",
    outside: &[("token_embedding", "embed_tokens"), ("norm", "norm"), ("head", "lm_head")],
    inside: &[
        ("attention.inputs.0", "self_attn.qkv_proj"),
        ("attention.output", "self_attn.o_proj"),
        ("linears.0", "mlp.up_proj"),
        ("linears.1", "mlp.down_proj"),
        ("norms.0", "post_attention_layernorm"),
        ("norms.1", "post_feedforward_layernorm"),
    ],
    conv1d: false,
    ignored: |_| false,
};

fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    let (width, heads) = (fields.size("hidden_size")?, fields.size("num_attention_heads")?);
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(format!(
            "hidden_size = {width} is not a multiple of num_attention_heads = {heads}"
        ));
    }
    let mlp_width = fields.size("intermediate_size")?;
    let layers = fields.size_up_to("num_hidden_layers", 1 << 10)?;
    Ok(Description {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("max_position_embeddings")?,
        width,
        layers,
        heads,
        kv_heads: heads,
        head_width: width / heads,
        mlp_width,
        norm: NormKind::Rms { epsilon: fields.positive("rms_norm_eps", Some(1e-6))? },
        positions: Positions::Rotary(RotaryConfig {
            base: fields.positive("rope_theta", Some(1e4))?,
            scaling: RotaryScaling::Default,
        }),
        layer_attention: (1..=layers)
            .map(|layer| LayerAttention::with_rotation(layer % 4 != 0))
            .collect(),
        joint_inputs: true,
        biases: Biases::everywhere(false),
        block: Some(OwnBlock::new(SquaredBlock { width, mlp_width })),
        ..Description::default()
    })
}

#[derive(Debug)]
struct SquaredBlock {
    width: usize,
    mlp_width: usize,
}

impl BlockForm for SquaredBlock {
    fn layers(&self) -> OwnLayers {
        let linear = |inputs, outputs| LinearLayer { inputs, outputs, bias: false };
        OwnLayers {
            linears: vec![linear(self.width, self.mlp_width), linear(self.mlp_width, self.width)],
            norms: vec![self.width; 2],
            has_mlp: false,
        }
    }

    fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2> {
        let attended = layers.attention(x.clone()); // [tokens, width]
        let attended = layers.norm(0, attended);
        let x = x + layers.dropout(attended);
        let active = relu(layers.linear(0, x.clone())); // [tokens, mlp_width]
        let down = layers.linear(1, active.clone() * active);
        let down = layers.norm(1, down);
        x + layers.dropout(down)
    }
}

/// Returns the configuration of a small model, read as that of a model folder.
pub(crate) fn config() -> Result<ModelConfig, Box<dyn Error>> {
    let json = r#"{
        "model_type": "squared", "vocab_size": 30, "max_position_embeddings": 64,
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
        "num_attention_heads": 2
    }"#;
    Ok(Families::default().with([&SQUARED]).parse(json)?)
}

/// Trains for two steps. The run would end if a single log-probability of the sampler differed from that
/// of the trainer. `report` is called with the metrics of each step.
pub(crate) fn train(mut report: impl FnMut(&Metrics)) -> Result<(), Box<dyn Error>> {
    let mut settings: GrpoConfig = toml::from_str(
        "[train]\nsteps = 2\nprompts_per_step = 2\ngroup_size = 8\n[sampling]\nmax_new_tokens = 8\n\
         [loss]\nkl_coef = 0.01\n[optimizer]\nlearning_rate = 1e-2",
    )?;
    settings.sampler_check.tolerance = 0.0;
    let policy = Transformer::random(&config()?, 3, &Device::flex().autodiff())?;
    let mut grpo = Grpo::new(
        Parts {
            reference: Frozen::snapshot(&policy),
            policy,
            engine: Arc::new(NextTokens { end_ids: vec![0] }),
            reward: Arc::new(PatternReward { pattern: regex::Regex::new("1.*1")? }),
            extensions: Vec::new(),
            longest_prompt: 1,
            epoch: None,
            decode: Arc::new(|ids| ids.iter().map(u32::to_string).collect()),
        },
        settings,
        3,
    )?;
    for step in 0..2 {
        report(&Metrics::of(&grpo.step(&unconditional_prompts(2, 0), step)?, 0));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    train(|metrics| {
        let difference = metrics.get("sampling/sampling_logp_difference/max");
        println!(
            "reward {:?}, sampler and trainer differ by {difference:?}",
            metrics.get("reward")
        );
    })
}

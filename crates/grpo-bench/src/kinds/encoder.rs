//! Vectors of texts by an encoder: each text by itself, on all threads, as the embedder of a reward makes them.

use std::time::Instant;

use burn::tensor::Device;
use grpo_model::{ModelConfig, SentenceEncoder, TokenBatch, Transformer};
use rayon::prelude::*;
use serde_json::json;

use crate::case::{Measured, Repetition};

pub(crate) struct Encoder {
    encoder: SentenceEncoder,
    texts: Vec<Vec<u32>>,
}

/// Sizes of all-MiniLM-L6-v2.
const WIDTH: usize = 384;
const LAYERS: usize = 6;
const MLP: usize = 1536;
const VOCABULARY: usize = 30_522;

impl Encoder {
    /// With random weights and ids.
    pub(crate) fn new(texts: usize, tokens: usize) -> anyhow::Result<Self> {
        let config = json!({
            "model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS, "num_attention_heads": 12, "intermediate_size": MLP,
            "max_position_embeddings": 512,
        });
        let config = ModelConfig::from_json(&config.to_string()).map_err(anyhow::Error::msg)?;
        let encoder = SentenceEncoder::new(Transformer::random(&config, 1, &Device::flex())?)?;
        let id = |text: usize, place: usize| ((text * 7919 + place * 104_729) % VOCABULARY) as u32;
        let text = |text: usize| (0..tokens).map(|place| id(text, place)).collect();
        Ok(Self { encoder, texts: (0..texts).map(text).collect() })
    }

    /// Operations of the matrix products that a text of `tokens` needs.
    fn flops(tokens: usize) -> f64 {
        let weights = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * MLP);
        (2 * weights * tokens + LAYERS * 4 * WIDTH * tokens * tokens) as f64
    }
}

impl Measured for Encoder {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let started = Instant::now();
        let vectors: Vec<_> = self
            .texts
            .par_iter()
            .map(|text| self.encoder.unit(&TokenBatch::from_iter([text.as_slice()])).into_data())
            .collect();
        let flops = self.texts.iter().map(|text| Self::flops(text.len())).sum();
        Ok(Repetition::since(started, vectors.len() as f64, Some(flops)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_those_of_the_weights_and_the_pairs() {
        // 10,616,832 numbers in the matrices of the blocks, twice for a token, and 4 · 384 in each layer for the pair.
        assert_eq!(Encoder::flops(1), 2.0 * 10_616_832.0 + 6.0 * 4.0 * 384.0);
        assert_eq!(Encoder::new(2, 3).unwrap().run().unwrap().work, 2.0);
    }
}

//! Compares embeddings and cosines with results from sentence-transformers, starting from text.

use burn::tensor::Device;
use grpo_rewards::EmbedderConfig;

use super::golden_models::start;
use crate::SelftestError;
use crate::golden::{ExpectedVector, GoldenModel};
use crate::report::{Suite, Tolerance};

/// Tolerance for cosines and vectors from two f32 implementations.
const VECTORS: f64 = 1e-4;

pub(super) fn suite(
    golden: &GoldenModel,
    expected: &[ExpectedVector],
    device: &Device,
) -> Result<Suite, SelftestError> {
    let mut suite = start("embedder", golden, "sentence-transformers");
    let config = EmbedderConfig::SentenceTransformers { folder: golden.path.clone() };
    let embedder = config.build(device).map_err(Box::new)?;
    let embed = |texts: &[&str]| -> Result<Vec<Vec<f64>>, SelftestError> {
        let vectors = embedder.embed(texts);
        let vectors = vectors.map_err(|error| golden.fault("sequences", error.to_string()))?;
        Ok(vectors.iter().map(|vector| vector.iter().map(|&x| f64::from(x)).collect()).collect())
    };
    let texts: Vec<&str> = expected.iter().map(|text| text.text.as_str()).collect();
    let together = embed(&texts)?;
    let bound = Tolerance::EXACT.plus(VECTORS);
    for (number, own) in expected.iter().enumerate() {
        let alone = embed(&texts[number..=number])?.remove(0);
        let mut case = suite.case(format!("text {number}, alone"));
        case.list(&|i| format!("vector[{i}]"), &alone, &own.vector, bound);
        // An embedding must not depend on the other texts in the batch.
        let mut case = suite.case(format!("text {number}, in a batch"));
        case.list(&|i| format!("vector[{i}]"), &together[number], &alone, Tolerance::EXACT);
        let mut case = suite.case(format!("text {number}, cosines"));
        let got: Vec<f64> = together.iter().map(|other| cosine(&alone, other)).collect();
        let wanted: Vec<f64> =
            expected.iter().map(|other| cosine(&own.vector, &other.vector)).collect();
        case.list(&|i| format!("with text {i}"), &got, &wanted, bound);
    }
    Ok(suite)
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

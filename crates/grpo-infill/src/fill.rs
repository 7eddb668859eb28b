//! Samples characters for blanks in a single pass.

use burn::tensor::Tensor;
use grpo_data::CounterRng;
use grpo_logprob::SamplingDistribution;
use grpo_logprob::draw_rows;

use grpo_train::TrainError;

/// Coordinates of a blank, which determine its random number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blank {
    pub(crate) step: u64,
    /// Index of the text within the step.
    pub(crate) text: usize,
    /// Position within the text.
    pub(crate) place: usize,
}

/// Draws a character for each row of logits.
///
/// # Shapes
/// - logits: `[blanks, vocabulary]`
pub(crate) fn draw_blanks(
    logits: Tensor<2>,
    blanks: &[Blank],
    distribution: &SamplingDistribution,
    rng: &CounterRng,
) -> Result<Vec<u32>, TrainError> {
    let uniform = |blank: &Blank| {
        let (low, high) = (blank.step as u32, (blank.step >> 32) as u32);
        rng.uniform([blank.place as u32, blank.text as u32, low, high])
    };
    let uniforms: Vec<f64> = blanks.iter().map(uniform).collect();
    let nothing_seen = vec![[].as_slice(); blanks.len()];
    let drawn = draw_rows(logits, &nothing_seen, distribution, &uniforms)?;
    Ok(drawn.into_iter().map(|draw| draw.id).collect())
}

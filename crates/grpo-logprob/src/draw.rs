//! Draws from rows of logits.

use crate::SamplingDistribution;
use burn::tensor::Tensor;
use grpo_data::TokenSet;
use rayon::prelude::*;

use crate::truncate::{Candidate, truncate};

/// A token that was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the distribution.
    pub logprob: f32,
    /// The ids that could be drawn, where the distribution is truncated; scoring has to use the same set.
    pub kept: Option<TokenSet>,
}

/// The token at `uniform` in `[0, 1)` of the cumulative distribution, in the order of ids.
///
/// `seen` are the tokens of the sequence so far, prompt and completion, in any order; only a repetition
/// penalty looks at them. All arithmetic is in f64, and sums are taken in the order of ids, so that the
/// result is a function of the arguments to the last bit.
///
/// # Shapes
/// - logits: `[vocabulary]`
///
/// # Errors
/// A logit that may be drawn is NaN or +∞, or all of them are −∞: the model has diverged, and no token is
/// right.
///
/// # Panics
/// Where the logits are not one for each id of the distribution's vocabulary, or a seen id is outside it.
pub fn draw(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
    uniform: f64,
) -> Result<Draw, NotFinite> {
    let mut candidates = candidates(logits, seen, distribution)?;
    let scaled = candidates.iter().map(|candidate| candidate.scaled);
    // No truncation cuts the largest, so it is known before.
    let largest = scaled.fold(f64::NEG_INFINITY, f64::max);
    truncate(&mut candidates, largest, distribution);
    let weights: Vec<f64> = candidates.iter().map(|c| c.weight(largest)).collect();
    let total: f64 = weights.iter().sum();

    let mut remaining = uniform * total;
    let mut chosen = None;
    for (candidate, &weight) in candidates.iter().zip(&weights) {
        // Rounding may leave `remaining` above the last weight: then the last possible id is the draw.
        if weight > 0.0 {
            chosen = Some(candidate);
            if remaining < weight {
                break;
            }
            remaining -= weight;
        }
    }
    let chosen = chosen.expect("the largest logit has weight 1");
    let logprob = (chosen.scaled - largest - total.ln()) as f32;
    let kept = distribution.is_truncated().then(|| {
        let ids: Vec<u32> = candidates.iter().map(|candidate| candidate.id).collect();
        TokenSet::from_sorted(&ids, logits.len()).expect("candidates ascend")
    });
    Ok(Draw { id: chosen.id, logprob: logprob.min(0.0), kept })
}

/// [`draw`] for each row. On the CPU logits are read where they lie, elsewhere they come to the host.
///
/// # Shapes
/// - logits: `[n, vocabulary]`
/// - seen, uniforms: `n` of each
///
/// # Errors
/// As [`draw`].
///
/// # Panics
/// As [`draw`], and where the numbers of rows differ.
pub fn draw_rows(
    logits: Tensor<2>,
    seen: &[&[u32]],
    distribution: &SamplingDistribution,
    uniforms: &[f64],
) -> Result<Vec<Draw>, NotFinite> {
    let [rows, vocabulary] = logits.dims();
    assert_eq!([seen.len(), uniforms.len()], [rows, rows], "what belongs to each row of logits");
    grpo_kernels::on_host(logits, |logits| {
        logits
            .par_chunks(vocabulary)
            .zip(seen.par_iter().zip(uniforms))
            .map(|(logits, (seen, &uniform))| draw(logits, seen, distribution, uniform))
            .collect()
    })
}

/// There is no distribution to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits are not finite: it has diverged, or its weights are damaged")]
pub struct NotFinite;

/// The ids with a probability above 0 before truncation, ascending; one at least.
fn candidates(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
) -> Result<Vec<Candidate>, NotFinite> {
    assert_eq!(logits.len(), distribution.vocabulary(), "one logit for each id of the vocabulary");
    let mut scaled: Vec<f64> = logits.iter().map(|&l| distribution.scaled(l, false)).collect();
    if distribution.repetition_penalty().is_some() {
        // From the logits, so that a token that was seen twice is not penalised twice.
        for &id in seen {
            scaled[id as usize] = distribution.scaled(logits[id as usize], true);
        }
    }
    for &id in distribution.forbidden() {
        scaled[id as usize] = f64::NEG_INFINITY;
    }
    if scaled.iter().any(|scaled| scaled.is_nan() || *scaled == f64::INFINITY) {
        return Err(NotFinite);
    }
    let possible = scaled.into_iter().zip(0..).filter(|(scaled, _)| scaled.is_finite());
    let candidates: Vec<_> = possible.map(|(scaled, id)| Candidate { id, scaled }).collect();
    if candidates.is_empty() { Err(NotFinite) } else { Ok(candidates) }
}

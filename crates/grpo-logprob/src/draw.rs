//! Sampling tokens from rows of logits.

use crate::SamplingDistribution;
use burn::tensor::Tensor;
use grpo_data::TokenSet;
use rayon::prelude::*;

use crate::truncate::{Candidate, truncate};

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the distribution.
    pub logprob: f32,
    /// The kept ids if the distribution is truncated; scoring must use the same ids.
    pub kept: Option<TokenSet>,
}

/// Returns the token at `uniform` in `[0, 1)` of the cumulative distribution, in the order of ids.
///
/// `seen` contains the tokens of prompt and completion in any order; only a repetition penalty uses
/// them. All arithmetic is in f64 and sums follow the order of ids, so equal arguments give a
/// bit-identical result.
///
/// # Shapes
/// - logits: `[vocabulary]`
///
/// # Errors
/// Returns an error if a candidate logit is NaN or +∞, or if all are −∞: the model has diverged.
///
/// # Panics
/// Panics if the number of logits is not the vocabulary size, or if a seen id is outside of the
/// vocabulary.
pub fn draw(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
    uniform: f64,
) -> Result<Draw, NotFinite> {
    let mut candidates = candidates(logits, seen, distribution)?;
    let scaled = candidates.iter().map(|candidate| candidate.scaled);
    // No truncation removes the largest, so it is known beforehand.
    let largest = scaled.fold(f64::NEG_INFINITY, f64::max);
    truncate(&mut candidates, largest, distribution);
    let weights: Vec<f64> = candidates.iter().map(|c| c.weight(largest)).collect();
    let total: f64 = weights.iter().sum();

    let mut remaining = uniform * total;
    let mut chosen = None;
    for (candidate, &weight) in candidates.iter().zip(&weights) {
        // Rounding may leave `remaining` above the last weight; the last possible id is then drawn.
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

/// Calls [`draw`] for each row. On the CPU logits are read in place, on other devices they are
/// copied to the host.
///
/// # Shapes
/// - logits: `[n, vocabulary]`
/// - seen, uniforms: `n` of each
///
/// # Errors
/// As [`draw`].
///
/// # Panics
/// As [`draw`]; also if the numbers of rows differ.
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

/// The logits define no distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits are not finite: it has diverged, or its weights are damaged")]
pub struct NotFinite;

/// Returns the ids with a probability above 0 before truncation, ascending; at least one.
fn candidates(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
) -> Result<Vec<Candidate>, NotFinite> {
    assert_eq!(logits.len(), distribution.vocabulary(), "one logit for each id of the vocabulary");
    let mut scaled: Vec<f64> = logits.iter().map(|&l| distribution.scaled(l, false)).collect();
    if distribution.repetition_penalty().is_some() {
        // Read from the logits, so that a repeated token is penalised once.
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

//! Samples tokens from rows of logits.

use crate::SamplingDistribution;
use burn::tensor::Tensor;
use grpo_data::TokenSet;
use rayon::prelude::*;

use crate::truncate::{Candidate, truncate};

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// Token id.
    pub id: u32,
    /// Log-probability of the token under the sampling distribution.
    pub logprob: f32,
    /// Ids that were kept, if the distribution is truncated. The same set is required for scoring.
    pub kept: Option<TokenSet>,
}

/// Samples a token by inverting the cumulative distribution over ascending ids at `uniform`, a
/// number in `[0, 1)`.
///
/// `seen` contains the tokens in the prompt and completion in any order. It is only used if the
/// distribution has a repetition penalty. The computation uses f64 and adds probabilities in
/// ascending order of ids, so identical arguments always give bit-identical results.
///
/// # Shapes
/// - logits: `[vocabulary]`
///
/// # Errors
/// Returns an error if a candidate logit is NaN or +∞, or if all of them are −∞. In either case,
/// the model has diverged.
///
/// # Panics
/// Panics if the number of logits differs from the vocabulary size, or if an id in `seen` is
/// outside the vocabulary.
pub fn draw(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
    uniform: f64,
) -> Result<Draw, NotFinite> {
    let mut candidates = candidates(logits, seen, distribution)?;
    let scaled = candidates.iter().map(|candidate| candidate.scaled);
    // Truncation never removes the largest logit, so it can be computed in advance.
    let largest = scaled.fold(f64::NEG_INFINITY, f64::max);
    truncate(&mut candidates, largest, distribution);
    let weights: Vec<f64> = candidates.iter().map(|c| c.weight(largest)).collect();
    let total: f64 = weights.iter().sum();

    let mut remaining = uniform * total;
    let mut chosen = None;
    for (candidate, &weight) in candidates.iter().zip(&weights) {
        // Because of rounding, `remaining` may exceed the last weight. The last possible id is
        // chosen in this case.
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

/// Calls [`draw`] for each row. On the CPU, logits are read in place. On a GPU, a kernel computes the
/// same in f32, if all ids are kept and there is no repetition penalty. Otherwise, logits are copied
/// to the host first.
///
/// # Shapes
/// - logits: `[n, vocabulary]`
/// - seen, uniforms: length `n`
///
/// # Errors
/// Returns an error if [`draw`] fails for any row.
///
/// # Panics
/// Panics under the same conditions as [`draw`], or if the number of rows differs between
/// arguments.
pub fn draw_rows(
    logits: Tensor<2>,
    seen: &[&[u32]],
    distribution: &SamplingDistribution,
    uniforms: &[f64],
) -> Result<Vec<Draw>, NotFinite> {
    let [rows, vocabulary] = logits.dims();
    assert_eq!(
        [seen.len(), uniforms.len()],
        [rows, rows],
        "expected one set of seen ids and one uniform per row of logits"
    );
    if !distribution.is_truncated() && distribution.repetition_penalty().is_none() {
        let (temperature, forbidden) = (distribution.temperature(), distribution.forbidden());
        let drawn = grpo_kernels::draw_on_gpu(&logits, uniforms, temperature, forbidden);
        if let Some(drawn) = drawn {
            let of = |drawn: Option<_>| {
                drawn.map(|(id, logprob)| Draw { id, logprob, kept: None }).ok_or(NotFinite)
            };
            return drawn.into_iter().map(of).collect();
        }
    }
    grpo_kernels::on_host(logits, |logits| {
        logits
            .par_chunks(vocabulary)
            .zip(seen.par_iter().zip(uniforms))
            .map(|(logits, (seen, &uniform))| draw(logits, seen, distribution, uniform))
            .collect()
    })
}

/// The logits do not define a probability distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits are not finite: it has diverged, or its weights are damaged")]
pub struct NotFinite;

/// Returns the ids with nonzero probability before truncation in ascending order. There is always
/// at least one.
fn candidates(
    logits: &[f32],
    seen: &[u32],
    distribution: &SamplingDistribution,
) -> Result<Vec<Candidate>, NotFinite> {
    assert_eq!(
        logits.len(),
        distribution.vocabulary(),
        "expected one logit per id of the vocabulary"
    );
    let mut scaled: Vec<f64> = logits.iter().map(|&l| distribution.scaled(l, false)).collect();
    if distribution.repetition_penalty().is_some() {
        // Read the original logits, so that a token that occurs multiple times is penalised only
        // once.
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

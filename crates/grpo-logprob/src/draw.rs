//! Samples tokens from rows of logits.

use crate::SamplingDistribution;
use burn::tensor::Tensor;
use grpo_data::TokenSet;
use grpo_kernels::{Likely, Penalty, Scaling, Truncation, draw_on_gpu, likely_on_gpu};
use rayon::prelude::*;

#[cfg(feature = "flex")]
use crate::Targets;
#[cfg(feature = "flex")]
use crate::fused;
use crate::truncate::{Candidate, truncate};

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// Token id.
    pub id: u32,
    /// Log-probability of the token under the sampling distribution. On the CPU, it has the bits of
    /// [`score`](crate::score) for the same logits.
    pub logprob: f32,
    /// Ids that were kept, if the distribution is truncated. The same set is required for scoring.
    pub kept: Option<TokenSet>,
}

/// Samples a token by inverting the cumulative distribution over ascending ids at `uniform`, a
/// number in `[0, 1)`.
///
/// `seen` contains the tokens in the prompt and completion in any order. It is only used if the
/// distribution has a repetition penalty. The token is chosen in f64, with probabilities added in
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
    let candidates = candidates(logits, seen, distribution)?;
    let draw = draw_of(candidates, None, distribution, uniform);
    #[cfg(feature = "flex")]
    let draw = {
        let logprob = fused::cpu::logprob(logits, &target(&draw, seen, distribution));
        // Scaled logits may exceed the range of f32.
        if !logprob.is_finite() {
            return Err(NotFinite);
        }
        Draw { logprob, ..draw }
    };
    Ok(draw)
}

/// Returns a drawn token as the target of a score.
#[cfg(feature = "flex")]
fn target(draw: &Draw, seen: &[u32], distribution: &SamplingDistribution) -> Targets {
    let target = Targets::new(vec![draw.id], distribution.vocabulary())
        .at_temperature(distribution.temperature())
        .without(distribution.forbidden());
    let target = match &draw.kept {
        Some(kept) => target.within(vec![kept.clone()]),
        None => target,
    };
    let Some(penalty) = distribution.repetition_penalty() else { return target };
    let mut ids = seen.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let seen = TokenSet::from_sorted(&ids, distribution.vocabulary())
        .expect("ids are sorted, and were checked with the candidates");
    target.with_repetition_penalty(penalty, vec![seen])
}

/// Samples one of `candidates`, which ascend. If they lack improbable ids, `total` is the weight of
/// all ids, see [`truncate`].
fn draw_of(
    mut candidates: Vec<Candidate>,
    total: Option<f64>,
    distribution: &SamplingDistribution,
    uniform: f64,
) -> Draw {
    let scaled = candidates.iter().map(|candidate| candidate.scaled);
    // Truncation never removes the largest logit, so it can be computed in advance.
    let largest = scaled.fold(f64::NEG_INFINITY, f64::max);
    truncate(&mut candidates, largest, total, distribution);
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
        TokenSet::from_sorted(&ids, distribution.vocabulary()).expect("candidates ascend")
    });
    Draw { id: chosen.id, logprob: logprob.min(0.0), kept }
}

/// Calls [`draw`] for each row. On the CPU, logits are read in place.
///
/// On a GPU, a kernel computes the same in f32 if all ids are kept. If the distribution is truncated,
/// a kernel finds the most probable ids, which are copied to the host. Where neither is possible,
/// all logits are copied, see [`draw_on_gpu`] and [`likely_on_gpu`].
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
    assert_eq!(vocabulary, distribution.vocabulary(), "expected one logit per id");
    if rows == 0 {
        return Ok(Vec::new());
    }
    if let Some(draws) = draw_rows_on_gpu(&logits, seen, distribution, uniforms) {
        return draws;
    }
    grpo_kernels::on_host(logits, |logits| {
        logits
            .par_chunks(vocabulary)
            .zip(seen.par_iter().zip(uniforms))
            .map(|(logits, (seen, &uniform))| draw(logits, seen, distribution, uniform))
            .collect()
    })
}

/// Same as [`draw_rows`], or `None` where the host has to draw.
fn draw_rows_on_gpu(
    logits: &Tensor<2>,
    seen: &[&[u32]],
    distribution: &SamplingDistribution,
    uniforms: &[f64],
) -> Option<Result<Vec<Draw>, NotFinite>> {
    let factor = distribution.repetition_penalty();
    let scaling = Scaling {
        penalty: factor.map(|factor| Penalty { seen, factor }),
        forbidden: distribution.forbidden(),
        temperature: distribution.temperature(),
    };
    if distribution.is_truncated() {
        return truncated_on_gpu(logits, &scaling, seen, distribution, uniforms);
    }
    let of = |drawn: Option<_>| {
        drawn.map(|(id, logprob)| Draw { id, logprob, kept: None }).ok_or(NotFinite)
    };
    Some(draw_on_gpu(logits, &scaling, uniforms)?.into_iter().map(of).collect())
}

/// The GPU adds up in f32, so a bit more than the nucleus is asked for.
const MARGIN: f32 = 1e-4;

/// Draws from truncated distributions.
fn truncated_on_gpu(
    logits: &Tensor<2>,
    scaling: &Scaling<'_>,
    seen: &[&[u32]],
    distribution: &SamplingDistribution,
    uniforms: &[f64],
) -> Option<Result<Vec<Draw>, NotFinite>> {
    // Top-k, top-p and min-p are applied in this order, so the first one bounds the candidates.
    let truncation = match (distribution.top_k(), distribution.top_p(), distribution.min_p()) {
        (Some(ids), ..) => Truncation { ids: Some(ids), ..Default::default() },
        (None, Some(mass), _) => {
            Truncation { mass: Some(mass * (1.0 + MARGIN)), ..Default::default() }
        }
        (None, None, min_p) => {
            let gap = min_p.map(|min_p| -min_p.ln() + MARGIN);
            Truncation { gap, ..Default::default() }
        }
    };
    let rows = likely_on_gpu(logits, scaling, truncation)?;
    // One copy of all logits is faster than one for each of many rows.
    let all: Option<Vec<f32>> =
        rows.iter().any(Option::is_none).then(|| logits.clone().into_data().iter().collect());
    let draws = rows.into_iter().zip(uniforms).enumerate().map(|(row, (likely, &uniform))| {
        let Some(Likely { candidates, total }) = likely else {
            let vocabulary = distribution.vocabulary();
            let all = all.as_ref().expect("copied if a row has no candidates");
            let logits = &all[row * vocabulary..][..vocabulary];
            return draw(logits, seen[row], distribution, uniform);
        };
        // The logits of candidates have the penalty already.
        let scaled = |(id, logit)| Candidate { id, scaled: distribution.scaled(logit, false) };
        let candidates = candidates.into_iter().map(scaled).collect();
        Ok(draw_of(candidates, Some(total), distribution, uniform))
    });
    Some(draws.collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplingSettings;

    /// The log-probability has the bits of a score over several tiles of ids.
    #[test]
    #[cfg(feature = "flex")]
    fn a_token_is_scored_as_it_was_drawn() {
        use crate::{Head, score};
        use burn::tensor::{Device, TensorData};
        let (device, vocabulary, width, rows) = (Device::flex(), 5000, 24, 50);
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|i| ((i + seed) * 7919 % 2003) as f32 / 1000.0 - 1.0).collect()
        };
        let tensor = |shape: [usize; 2], seed| {
            Tensor::<2>::from_data(
                TensorData::new(numbers(shape[0] * shape[1], seed), shape),
                &device,
            )
        };
        let bias = TensorData::new(numbers(vocabulary, 3), [vocabulary]);
        let weight = tensor([vocabulary, width], 2).transpose();
        let head = Head { weight, bias: Some(Tensor::from_data(bias, &device)) };
        let plain = SamplingSettings { temperature: 0.7, ..SamplingSettings::default() };
        for settings in [
            plain.clone(),
            SamplingSettings { forbidden: vec![7, 4900], top_p: Some(0.9), ..plain.clone() },
            SamplingSettings { repetition_penalty: Some(1.3), top_k: Some(50), ..plain },
        ] {
            let distribution = settings.clone().checked(vocabulary).unwrap();
            let seen = [4321, 5, 5, 17];
            let hidden = tensor([rows, width], 1);
            let all_logits: Vec<f32> =
                head.invariant_logits(hidden.clone()).into_data().iter().collect();
            for row in [0, 7, rows - 1] {
                let logits = &all_logits[row * vocabulary..][..vocabulary];
                let drawn = draw(logits, &seen, &distribution, 0.37).unwrap();
                let target = target(&drawn, &seen, &distribution);
                let alone = hidden.clone().narrow(0, row, 1);
                let scored: Vec<f32> =
                    score(alone, &head, &target).logprobs.into_data().iter().collect();
                assert_eq!(scored[0].to_bits(), drawn.logprob.to_bits(), "{settings:?}, row {row}");
            }
        }
    }

    #[test]
    fn logits_beyond_f32_are_refused() {
        let settings = SamplingSettings { temperature: 0.1, ..SamplingSettings::default() };
        let distribution = settings.checked(2).unwrap();
        assert_eq!(draw(&[1e38, 0.0], &[], &distribution, 0.5), Err(NotFinite));
    }

    /// A GPU leaves out ids that are removed by truncation anyway.
    #[test]
    fn improbable_ids_may_be_missing() {
        let logits: Vec<f32> = (0..60).map(|id| (id * 37 % 60) as f32 / 6.0).collect();
        let plain = SamplingSettings { temperature: 0.9, ..SamplingSettings::default() };
        for settings in [
            SamplingSettings { top_k: Some(7), ..plain.clone() },
            SamplingSettings { top_k: Some(20), top_p: Some(0.7), ..plain.clone() },
            SamplingSettings { top_p: Some(0.9), ..plain.clone() },
            SamplingSettings { top_p: Some(0.9), min_p: Some(0.2), ..plain.clone() },
            SamplingSettings { min_p: Some(0.05), ..plain },
        ] {
            let distribution = settings.checked(logits.len()).unwrap();
            let all = candidates(&logits, &[], &distribution).unwrap();
            let largest = all.iter().map(|candidate| candidate.scaled).fold(f64::MIN, f64::max);
            let total = all.iter().map(|candidate| candidate.weight(largest)).sum();
            let mut likely = all;
            likely.retain(|candidate| largest - candidate.scaled < 5.0);
            assert!(likely.len() > 20 && likely.len() < logits.len());
            for uniform in [0.0, 0.3, 0.7, 0.999] {
                let drawn = draw_of(likely.clone(), Some(total), &distribution, uniform);
                let expected = draw(&logits, &[], &distribution, uniform).unwrap();
                assert!((drawn.logprob - expected.logprob).abs() < 1e-6);
                assert_eq!((drawn.id, drawn.kept), (expected.id, expected.kept));
            }
        }
    }
}

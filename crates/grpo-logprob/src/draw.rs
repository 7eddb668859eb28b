//! One draw from one row of logits, on the host.

use crate::SamplingDistribution;

/// A token that was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the distribution.
    pub logprob: f32,
    /// The ids that could be drawn, ascending, where the distribution is truncated; scoring has to use the
    /// same set.
    pub kept: Option<Vec<u32>>,
}

/// The token at `uniform` in `[0, 1)` of the cumulative distribution, in the order of ids.
///
/// Probabilities are summed in f64, so that the result does not hang on the order of the sum.
///
/// # Shapes
/// - logits: `[vocabulary]`
///
/// # Errors
/// A logit that may be drawn is NaN or +∞: the model has diverged, and no token is right.
pub fn draw(
    logits: &[f32],
    distribution: &SamplingDistribution,
    uniform: f64,
) -> Result<Draw, NotFinite> {
    let mut candidates: Vec<u32> = (0..logits.len() as u32)
        .filter(|id| distribution.forbidden().binary_search(id).is_err())
        .collect();
    if let Some(k) = distribution.top_k().filter(|&k| k < candidates.len()) {
        candidates
            .sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
        candidates.truncate(k);
        candidates.sort_unstable();
    }
    let inverse_temperature = 1.0 / f64::from(distribution.temperature());
    let scaled = |id: u32| f64::from(logits[id as usize]) * inverse_temperature;
    let largest = candidates.iter().map(|&id| scaled(id)).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = candidates.iter().map(|&id| (scaled(id) - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    if !total.is_finite() {
        return Err(NotFinite);
    }

    let mut remaining = uniform * total;
    let mut chosen = None;
    for (&id, &weight) in candidates.iter().zip(&weights) {
        // Rounding may leave `remaining` above the last weight: then the last possible id is the draw.
        if weight > 0.0 {
            chosen = Some(id);
            if remaining < weight {
                break;
            }
            remaining -= weight;
        }
    }
    let id = chosen.expect("the largest logit has weight 1");
    let logprob = (scaled(id) - largest - total.ln()) as f32;
    let truncated = distribution.top_k().is_some();
    Ok(Draw { id, logprob: logprob.min(0.0), kept: truncated.then_some(candidates) })
}

/// There is no distribution to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits are not finite: it has diverged, or its weights are damaged")]
pub struct NotFinite;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn distribution(top_k: Option<usize>, forbidden: &[u32]) -> SamplingDistribution {
        SamplingDistribution::new(0.7, top_k, forbidden.to_vec(), 5).unwrap()
    }

    const LOGITS: [f32; 5] = [0.3, -1.0, 2.0, 0.3, 1.1];

    /// Probabilities by the definition, for the ids in `kept`.
    fn probabilities(kept: &[u32]) -> Vec<(u32, f64)> {
        let weight = |&id: &u32| (f64::from(LOGITS[id as usize]) / f64::from(0.7_f32)).exp();
        let total: f64 = kept.iter().map(weight).sum();
        kept.iter().map(|id| (*id, weight(id) / total)).collect()
    }

    #[track_caller]
    fn check(distribution: &SamplingDistribution, kept: &[u32]) {
        let mut cumulative = 0.0;
        for (id, probability) in probabilities(kept) {
            for inside in [1e-9, 0.5, 1.0 - 1e-9] {
                let drawn = draw(&LOGITS, distribution, cumulative + inside * probability).unwrap();
                assert_eq!(drawn.id, id);
                assert!((f64::from(drawn.logprob) - probability.ln()).abs() < 1e-6);
            }
            cumulative += probability;
        }
    }

    #[test]
    fn each_token_owns_its_share_of_the_unit_interval() {
        check(&distribution(None, &[]), &[0, 1, 2, 3, 4]);
        check(&distribution(None, &[2, 0]), &[1, 3, 4]);
        // 0 and 3 tie for the third place: the lower id stays.
        check(&distribution(Some(3), &[]), &[0, 2, 4]);
        check(&distribution(Some(2), &[2]), &[0, 4]);
        let kept = |top_k| draw(&LOGITS, &distribution(top_k, &[]), 0.1).unwrap().kept;
        assert_eq!(kept(Some(3)), Some(vec![0, 2, 4]));
        assert_eq!(kept(None), None);
    }

    #[test]
    fn the_end_of_the_interval_is_the_last_possible_token() {
        let below_one = 1.0 - f64::EPSILON / 2.0;
        let logits = [0.0, 0.0, f32::NEG_INFINITY];
        let distribution = SamplingDistribution::new(1.0, None, vec![], 3).unwrap();
        assert_eq!(draw(&logits, &distribution, below_one).unwrap().id, 1);
    }

    #[test]
    fn a_diverged_model_is_not_sampled() {
        for bad in [f32::NAN, f32::INFINITY] {
            let drawn = draw(&[0.0, bad, 0.0, 0.0, 0.0], &distribution(None, &[]), 0.5);
            assert_eq!(drawn, Err(NotFinite));
        }
        let nothing = [f32::NEG_INFINITY; 5];
        assert_eq!(draw(&nothing, &distribution(None, &[]), 0.5), Err(NotFinite));
    }

    proptest! {
        #[test]
        fn a_forbidden_or_cut_id_is_never_drawn(
            logits in prop::collection::vec(-30.0_f32..30.0, 8),
            uniform in 0.0..1.0_f64,
            k in 1_usize..8,
        ) {
            let distribution = SamplingDistribution::new(1.3, Some(k), vec![3, 5], 8).unwrap();
            let drawn = draw(&logits, &distribution, uniform).unwrap();
            let kept = drawn.kept.unwrap();
            prop_assert!(drawn.id != 3 && drawn.id != 5 && kept.contains(&drawn.id));
            prop_assert_eq!(kept.len(), k.min(6));
            let worst_kept = kept.iter().map(|&i| logits[i as usize]).fold(f32::MAX, f32::min);
            for id in 0..8_u32 {
                if !kept.contains(&id) && id != 3 && id != 5 {
                    prop_assert!(logits[id as usize] <= worst_kept);
                }
            }
        }
    }
}

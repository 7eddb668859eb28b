//! Log-probabilities and entropies of tokens that were drawn, differentiable.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor};

/// What [`score`] gives for each position.
#[derive(Clone, Debug)]
pub struct Scores {
    /// `log π(id)` under the sampling distribution, `[n]`.
    pub logprobs: Tensor<1>,
    /// `−Σ_v π(v) log π(v)` of that distribution, in nats, `[n]`.
    pub entropies: Tensor<1>,
}

/// Scores `ids` under `softmax(logits / temperature)`, restricted to the ids that could be drawn.
///
/// # Shapes
/// - logits: `[n, vocabulary]`
/// - ids: `[n]`
/// - excluded: `[n, vocabulary]`, true where an id could *not* be drawn (forbidden, or cut by top-k); `None`
///   where all could. An id of `ids` that is excluded gets a log-probability of about −1e30.
///
/// # Panics
/// Where the shapes disagree.
pub fn score(
    logits: Tensor<2>,
    ids: Tensor<1, Int>,
    temperature: f32,
    excluded: Option<Tensor<2, Bool>>,
) -> Scores {
    let [positions, _] = logits.dims();
    assert_eq!([positions], ids.dims(), "one id for each row of logits");
    let mut scaled = logits;
    if temperature != 1.0 {
        scaled = scaled / f64::from(temperature);
    }
    if let Some(excluded) = excluded {
        assert_eq!(scaled.dims(), excluded.dims(), "excluded against the logits");
        // Finite, because the entropy multiplies it by a probability of 0.
        scaled = scaled.mask_fill(excluded, -1e30);
    }
    let logprobs = log_softmax(scaled, 1); // [n, v]
    let entropies = (logprobs.clone().exp() * logprobs.clone()).sum_dim(1).neg();
    let chosen = logprobs.gather(1, ids.unsqueeze_dim(1));
    Scores { logprobs: chosen.squeeze_dim(1), entropies: entropies.squeeze_dim(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;
    use burn::tensor::{Device, TensorData};
    use grpo_sampling::SamplingSettings;

    const LOGITS: [[f32; 4]; 2] = [[0.5, -1.2, 2.0, 0.1], [3.0, 2.9, -4.0, 0.0]];

    /// `(log-probability of id, entropy)` of one row by the definition, over the ids in `kept`.
    fn oracle(row: &[f32], id: u32, temperature: f32, kept: &[u32]) -> (f64, f64) {
        let weight = |id: u32| (f64::from(row[id as usize]) / f64::from(temperature)).exp();
        let total: f64 = kept.iter().map(|&id| weight(id)).sum();
        let entropy = kept.iter().map(|&id| weight(id) / total).map(|p| -p * p.ln()).sum();
        ((weight(id) / total).ln(), entropy)
    }

    fn excluding(kept: &[&[u32]], device: &Device) -> Tensor<2, Bool> {
        let flags: Vec<bool> =
            kept.iter().flat_map(|kept| (0..4).map(|id| !kept.contains(&id))).collect();
        Tensor::from_data(TensorData::new(flags, [kept.len(), 4]), device)
    }

    #[track_caller]
    fn check(temperature: f32, ids: [u32; 2], kept: [&[u32]; 2]) {
        let device = Device::flex();
        let all = kept.iter().all(|kept| kept.len() == 4);
        let scores = score(
            Tensor::from_data(LOGITS, &device),
            Tensor::from_data([ids[0] as i32, ids[1] as i32], &device),
            temperature,
            (!all).then(|| excluding(&kept, &device)),
        );
        let logprobs: Vec<f32> = scores.logprobs.into_data().iter().collect();
        let entropies: Vec<f32> = scores.entropies.into_data().iter().collect();
        for row in 0..2 {
            let (logprob, entropy) = oracle(&LOGITS[row], ids[row], temperature, kept[row]);
            assert!((f64::from(logprobs[row]) - logprob).abs() < 1e-6, "row {row}");
            assert!((f64::from(entropies[row]) - entropy).abs() < 1e-6, "row {row}");
        }
    }

    #[test]
    fn equals_the_definition() {
        check(1.0, [2, 3], [&[0, 1, 2, 3], &[0, 1, 2, 3]]);
        check(0.6, [0, 1], [&[0, 1, 2, 3], &[0, 1, 2, 3]]);
        check(1.7, [2, 1], [&[0, 2], &[1, 2, 3]]);
    }

    #[test]
    fn sampler_and_scorer_agree() {
        let device = Device::flex();
        for top_k in [None, Some(2)] {
            let settings = SamplingSettings { temperature: 0.8, top_k, ..Default::default() };
            let distribution =
                SamplingSettings { forbidden: vec![0], ..settings }.checked(4).unwrap();
            for step in 0..50 {
                let drawn: Vec<_> = LOGITS
                    .iter()
                    .map(|row| draw(row, &[], &distribution, f64::from(step) / 50.0).unwrap())
                    .collect();
                let kept: Vec<Vec<u32>> = drawn
                    .iter()
                    .map(|d| d.kept.as_ref().map_or(vec![1, 2, 3], |kept| kept.iter().collect()))
                    .collect();
                let kept: Vec<&[u32]> = kept.iter().map(Vec::as_slice).collect();
                let scores = score(
                    Tensor::from_data(LOGITS, &device),
                    Tensor::from_data([drawn[0].id as i32, drawn[1].id as i32], &device),
                    0.8,
                    Some(excluding(&kept, &device)),
                );
                let scored: Vec<f32> = scores.logprobs.into_data().iter().collect();
                for (drawn, scored) in drawn.iter().zip(scored) {
                    assert!((drawn.logprob - scored).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn gradient_is_one_hot_minus_softmax_and_zero_where_excluded() {
        let device = Device::flex().autodiff();
        let logits = Tensor::<2>::from_data(LOGITS, &device).require_grad();
        let kept: [&[u32]; 2] = [&[0, 2, 3], &[0, 1, 2, 3]];
        let ids = [2_u32, 1];
        let scores = score(
            logits.clone(),
            Tensor::from_data([2, 1], &device),
            0.6,
            Some(excluding(&kept, &device)),
        );
        let gradients = scores.logprobs.sum().backward();
        let got: Vec<f32> = logits.grad(&gradients).unwrap().into_data().iter().collect();
        for row in 0..2 {
            for id in 0..4_u32 {
                let probability = if kept[row].contains(&id) {
                    oracle(&LOGITS[row], id, 0.6, kept[row]).0.exp()
                } else {
                    0.0
                };
                let hit = if id == ids[row] { 1.0 } else { 0.0 };
                let expected = (hit - probability) / f64::from(0.6_f32);
                assert!((f64::from(got[row * 4 + id as usize]) - expected).abs() < 2e-6);
            }
        }
    }
}

//! Log-probabilities and entropies, computed directly from their definitions.

use crate::ScoreCase;

/// Returns `ln π(v)` for each id that can be sampled at position `i`.
pub fn log_policy(case: &ScoreCase, i: usize) -> Vec<(u32, f64)> {
    let holds = |sets: &Option<Vec<Vec<u32>>>, v: u32| {
        sets.as_ref().map(|sets| sets[i].binary_search(&v).is_ok())
    };
    let could_be_drawn =
        |v: u32| !case.forbidden.contains(&v) && holds(&case.kept, v).unwrap_or(true);
    let temperature = f64::from(case.under.temperature.unwrap_or(1.0));
    let scaled: Vec<(u32, f64)> = case
        .logits(i)
        .into_iter()
        .enumerate()
        .map(|(v, logit)| (v as u32, logit))
        .filter(|&(v, _)| could_be_drawn(v))
        .map(|(v, mut logit)| {
            if let (Some(true), Some(penalty)) = (holds(&case.seen, v), case.under.penalty) {
                let penalty = f64::from(penalty);
                logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
            (v, logit / temperature)
        })
        .collect();
    let largest = scaled.iter().map(|&(_, x)| x).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scaled.iter().map(|&(_, x)| (x - largest).exp()).sum();
    scaled.into_iter().map(|(v, x)| (v, x - largest - total.ln())).collect()
}

/// Returns the log-probability and the entropy at position `i`.
///
/// # Panics
/// Panics if the token cannot be sampled at this position.
pub fn score(case: &ScoreCase, i: usize) -> [f64; 2] {
    let log_policy = log_policy(case, i);
    let entropy = log_policy.iter().map(|&(_, l)| -l.exp() * l).sum();
    let chosen = log_policy.iter().find(|&&(v, _)| v == case.ids[i]);
    [chosen.expect("the chosen token is not masked out").1, entropy]
}

/// Computes gradients of `Σ_i upstream[0][i] · logprob_i + upstream[1][i] · entropy_i` with respect
/// to hidden states, weight and bias. Uses central differences with a step of 1e-5.
pub fn score_gradients(case: &ScoreCase, upstream: [&[f64]; 2]) -> [Option<Vec<f64>>; 3] {
    let value = |case: &ScoreCase| -> f64 {
        let terms = (0..case.sizes[0]).map(|i| {
            let [logprob, entropy] = score(case, i);
            upstream[0][i] * logprob + upstream[1][i] * entropy
        });
        terms.sum()
    };
    let quotients = |parameter: &dyn Fn(&mut ScoreCase) -> Option<&mut Vec<f64>>| {
        let count = parameter(&mut case.clone())?.len();
        let at = |i: usize, step: f64| {
            let mut moved = case.clone();
            parameter(&mut moved).expect("there as before")[i] += step;
            value(&moved)
        };
        let step = 1e-5;
        Some((0..count).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect())
    };
    [
        quotients(&|case| Some(&mut case.hidden)),
        quotients(&|case| Some(&mut case.weight)),
        quotients(&|case| case.bias.as_mut()),
    ]
}

//! The definition in f64 loops.

use crate::scene::Scene;

/// Log-probability of the token and entropy of position `i`.
pub(crate) fn score(scene: &Scene, i: usize) -> [f64; 2] {
    let could_be_drawn = |v: u32| {
        !scene.forbidden.contains(&v)
            && scene.kept.as_ref().is_none_or(|kept| kept[i].binary_search(&v).is_ok())
    };
    let scaled: Vec<(u32, f64)> = scene
        .logits(i)
        .into_iter()
        .enumerate()
        .map(|(v, logit)| (v as u32, logit))
        .filter(|&(v, _)| could_be_drawn(v))
        .map(|(v, mut logit)| {
            let seen = scene.seen.as_ref().is_some_and(|seen| seen[i].binary_search(&v).is_ok());
            if let (true, Some(penalty)) = (seen, scene.under.penalty) {
                let penalty = f64::from(penalty);
                logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
            (v, logit / f64::from(scene.under.temperature.unwrap_or(1.0)))
        })
        .collect();
    let largest = scaled.iter().map(|&(_, x)| x).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scaled.iter().map(|&(_, x)| (x - largest).exp()).sum();
    let log_probability = |x: f64| x - largest - total.ln();
    let entropy = scaled.iter().map(|&(_, x)| log_probability(x)).map(|l| -l.exp() * l).sum();
    let chosen = scaled.iter().find(|&&(v, _)| v == scene.ids[i]).expect("drawn ids can be drawn");
    [log_probability(chosen.1), entropy]
}

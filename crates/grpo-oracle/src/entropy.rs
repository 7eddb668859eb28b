//! High-entropy mask.

use grpo_core::HighEntropy;

/// Returns a mask that keeps tokens at or above the `1 − share` quantile, with linear
/// interpolation.
pub fn high_entropy(entropies: &[f64], share: f64) -> HighEntropy {
    let mut sorted = entropies.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("an entropy is not NaN"));
    if sorted.is_empty() {
        return HighEntropy { threshold: 0.0, tokens: 0 };
    }
    let place = (1.0 - share) * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    let quantile = low + (high - low) * place.fract();
    let kept: Vec<f64> = sorted.into_iter().filter(|entropy| *entropy >= quantile).collect();
    HighEntropy { threshold: kept[0], tokens: kept.len() }
}

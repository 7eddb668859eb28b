//! Adaptive KL coefficient.

use grpo_core::KlController;

/// Returns the coefficient after several steps. Each step is given as its mean KL and the number of
/// completions.
pub fn adaptive_kl(controller: &KlController, coef: f64, steps: &[(f64, usize)]) -> f64 {
    let mut coef = coef;
    for &(kl, completions) in steps {
        let error = (kl / controller.target - 1.0).clamp(-0.2, 0.2);
        coef += coef * error * (completions as f64 / controller.horizon);
        coef = coef.clamp(1e-5, 10.0);
    }
    coef
}

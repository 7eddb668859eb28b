//! Computes the gradient of the loss by central differences.

use grpo_core::{BatchTotals, LossConfig, Surrogate};

use crate::frozen::{Frozen, ratios};
use crate::loss::value;
use crate::{LossCase, Rows};

/// Gradient of a loss. Padding has a gradient of 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// With respect to `log π_θ`, `[b][t]`.
    pub logprobs: Rows,
    /// With respect to the entropies, `[b][t]`.
    pub entropies: Rows,
    /// With respect to the exact KL, `[b][t]`. `None` if the case has no exact KL.
    pub exact_kl: Option<Rows>,
}

/// Step size h of the central difference.
///
/// The truncation error is `h²/6 · |f‴|`, i.e. 2e-11 if the third derivative is about as large as
/// the first. Rounding errors of about 1e-16 relative to the loss are amplified to `1e-16/h`, or
/// 1e-11. This step size nearly minimises their sum.
const STEP: f64 = 1e-5;

/// Computes the gradient of [`crate::loss`]. Values behind a stop-gradient stay constant:
/// π_old on the first update, the CISPO and VESPO weights, and all masks.
pub fn gradient(case: &LossCase, config: &LossConfig, totals: &BatchTotals) -> Gradient {
    let frozen = Frozen::at(case, config, totals);
    let quotient = |b: usize, t: usize, field: fn(&mut LossCase) -> &mut Rows| {
        let at = |step: f64| {
            let mut moved = case.clone();
            field(&mut moved)[b][t] += step;
            value(&moved, &frozen, config, totals)
        };
        (at(STEP) - at(-STEP)) / (2.0 * STEP)
    };
    let of = |field: fn(&mut LossCase) -> &mut Rows| {
        let mut rows = vec![vec![0.0; case.width()]; case.rows()];
        for (b, row) in rows.iter_mut().enumerate() {
            for t in case.active(b) {
                row[t] = quotient(b, t, field);
            }
        }
        rows
    };
    Gradient {
        logprobs: of(|case| &mut case.logprobs),
        entropies: of(|case| &mut case.entropies),
        exact_kl: case
            .exact_kl
            .is_some()
            .then(|| of(|case| case.exact_kl.as_mut().expect("the case has an exact KL"))),
    }
}

/// Returns whether any ratio is within `margin` of a clipping bound, where the loss is not
/// differentiable. Always false for other surrogates.
pub fn near_a_kink(case: &LossCase, config: &LossConfig, margin: f64) -> bool {
    let Surrogate::Clipped { epsilon_low, epsilon_high, delta } = config.surrogate else {
        return false;
    };
    let bounds = [Some(1.0 - epsilon_low), Some(1.0 + epsilon_high), delta];
    let old = case.old.as_ref().unwrap_or(&case.logprobs);
    (0..case.rows()).any(|b| {
        let c = ratios(case, old, b, config.ratio_level);
        let near = |t: usize| bounds.iter().flatten().any(|bound| (c[t] - bound).abs() < margin);
        case.active(b).into_iter().any(near)
    })
}

//! Derivatives of the loss by central differences.

use grpo_core::{BatchTotals, LossConfig, Surrogate};

use crate::oracle::frozen::{Frozen, ratios};
use crate::oracle::loss::value;
use crate::oracle::{LossCase, Rows};

/// Derivatives of a loss; 0 in padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// With respect to `log π_θ`, `[b][t]`.
    pub logprobs: Rows,
    /// With respect to the entropies, `[b][t]`.
    pub entropies: Rows,
    /// With respect to the exact KL, `[b][t]`, if the case has one.
    pub exact_kl: Option<Rows>,
}

/// Half the distance between the two points of a difference quotient.
///
/// The truncation error is `h²/6 · |f‴|`, 2e-11 of a third derivative of the size of the first.
/// Rounding of about 1e-16 of the loss becomes `1e-16/h`, 1e-11 of it. Their sum is nearly minimal.
const STEP: f64 = 1e-5;

/// Computes the derivative of [`crate::oracle::loss`]. Everything behind a stop-gradient stays
/// constant: π_old if it is the policy, the weights of CISPO and VESPO, and masks.
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

/// Returns whether a ratio is within `margin` of a bound of the clipped surrogate, where the loss
/// has a corner. Other surrogates have none.
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

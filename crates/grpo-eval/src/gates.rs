//! Minimum requirements for the metrics of a model.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{MeasureError, check_finite};
use crate::stats::Direction;

/// A bound for a metric. A value equal to the bound doesn't pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// Name of the metric.
    pub metric: &'static str,
    /// Which side of the bound passes.
    pub direction: Direction,
    /// The bound.
    pub bound: f64,
}

const fn above(metric: &'static str, bound: f64) -> Gate {
    Gate { metric, direction: Direction::HigherIsBetter, bound }
}

const fn below(metric: &'static str, bound: f64) -> Gate {
    Gate { metric, direction: Direction::LowerIsBetter, bound }
}

/// After supervised training of the baseline.
pub const BASELINE_GATES: [Gate; 1] = [above("rouge_l", 0.30)];

/// After supervised training with a diversity term.
pub const POLYCHROMIC_GATES: [Gate; 1] = [below("self_bleu", 0.35)];

/// After GRPO. `p_value` and `cohens_d` compare the model with the baseline, and `kl_sequence` is the
/// KL divergence from the reference policy in nats per completion.
pub const GRPO_GATES: [Gate; 6] = [
    above("pass_at_10", 0.65),
    above("rouge_l", 0.30),
    below("self_bleu", 0.35),
    below("p_value", 0.05),
    above("cohens_d", 0.3),
    below("kl_sequence", 10.0),
];

/// A gate and the value of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GateResult {
    /// The gate.
    #[serde(flatten)]
    pub gate: Gate,
    /// The value.
    pub value: f64,
    /// Whether it passes.
    pub passed: bool,
}

/// Compares metrics with gates.
///
/// # Errors
/// Returns an error if the metric of a gate is missing or not finite.
pub fn check_gates(
    gates: &[Gate],
    metrics: &BTreeMap<String, f64>,
) -> Result<Vec<GateResult>, MeasureError> {
    let check = |gate: &Gate| {
        let value = *metrics.get(gate.metric).ok_or_else(|| MeasureError::MissingMetric {
            place: "the evaluation".to_owned(),
            metric: gate.metric.to_owned(),
            fix: "measure it or remove its gate",
        })?;
        check_finite(gate.metric, &[value])?;
        let passed = gate.direction.oriented(value) > gate.direction.oriented(gate.bound);
        Ok(GateResult { gate: *gate, value, passed })
    };
    gates.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_have_a_direction() {
        let metrics = |rouge: f64, bleu: f64| {
            BTreeMap::from([("rouge_l".to_owned(), rouge), ("self_bleu".to_owned(), bleu)])
        };
        let gates = [BASELINE_GATES, POLYCHROMIC_GATES].concat();
        let passed = |rouge: f64, bleu: f64| {
            let results = check_gates(&gates, &metrics(rouge, bleu)).unwrap();
            results.iter().map(|result| result.passed).collect::<Vec<_>>()
        };
        assert_eq!(passed(0.31, 0.34), [true, true]);
        assert_eq!(passed(0.30, 0.35), [false, false]);
        assert_eq!(passed(0.29, 0.36), [false, false]);
        let error = check_gates(&GRPO_GATES, &metrics(0.4, 0.3)).unwrap_err().to_string();
        let expected = "the evaluation has no metric `pass_at_10`; measure it or remove its gate";
        assert_eq!(error, expected);
        assert!(check_gates(&gates, &metrics(f64::NAN, 0.3)).is_err());
    }
}

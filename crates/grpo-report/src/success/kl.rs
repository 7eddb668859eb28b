//! Checks that the KL divergence from the reference stays small.

use serde_json::{Map, Value};

use super::judged::Judged;
use crate::numbers::fixed;
use crate::series::values_of;

/// A KL metric and how to describe it.
pub(super) struct Kl {
    name: &'static str,
    metric: &'static str,
    unit: &'static str,
}

pub(super) const OF_TOKEN: Kl = Kl { name: "KL stays small", metric: "kl", unit: "nats per token" };
pub(super) const OF_SEQUENCE: Kl =
    Kl { name: "Sequence KL stays small", metric: "kl_sequence", unit: "nats per completion" };

pub(super) fn kl_is_small(metrics: &[Map<String, Value>], of: &Kl, most: f64) -> Judged {
    let &Kl { name, metric, unit } = of;
    let measured = values_of(metrics, metric);
    if let Some((step, _)) = measured.iter().find(|(_, kl)| !kl.is_finite()) {
        return Judged::of(name, false, format!("not a finite number in step {step}"));
    }
    let highest = measured.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
    match highest {
        None => Judged::open(name, format!("`{metric}` was not measured")),
        Some((step, kl)) => Judged::of(
            name,
            kl < most,
            format!("at most {} {unit}, in step {step} (required: below {most})", fixed(kl, 4)),
        ),
    }
}

//! Speed of a device, measured by `grpo bench`, each case in a process of its own, and of other programs.

use std::collections::BTreeMap;

use anyhow::Context;
use grpo_task::output::say_aside;
use serde::{Deserialize, Serialize};

use super::peers::{Peer, Peers};
use super::rate::{RateOrReason, Repetition, first_line, median, median_rate, read};
use super::runs::Grpo;

/// Cases for all devices. The products are the limits of the cases after them.
const CASES: [&str; 9] = [
    "copy",
    "matmul-medium",
    "matmul-medium-bf16",
    "sampling-small",
    "sampling-medium",
    "scoring-medium",
    "training-medium",
    "training-medium-bf16",
    "step-small",
];
/// Cases for GPUs, with models of 0.6 and 1.7 billion parameters. They take minutes on a CPU.
const LARGE_CASES: [&str; 8] = [
    "sampling-large",
    "sampling-large-bf16",
    "scoring-large",
    "adapter-step-large",
    "adapter-step-large-bf16",
    "sampling-extra-large",
    "adapter-step-extra-large",
    "adapter-step-extra-large-bf16",
];

/// The result of a case.
#[derive(Debug, Serialize)]
pub(super) struct Speed {
    pub(super) case: &'static str,
    pub(super) unit: String,
    /// Median over the repetitions, or the reason why there is none, e.g. too little memory.
    #[serde(flatten, with = "RateOrReason")]
    pub(super) per_second: Result<f64, String>,
    /// Rate of the operations that the matrix products of a model need, as a fraction of the rate
    /// of `limit`.
    pub(super) of_products: Option<f64>,
    /// `matmul-medium`, or `matmul-medium-bf16` for a case in bf16.
    pub(super) limit: &'static str,
    /// Rate of reading the weights, once for each token of a completion, as a fraction of the rate of
    /// `copy`. It can exceed 1 if the weights fit into a cache.
    pub(super) of_copy: Option<f64>,
    /// Memory that the case has reserved on a GPU.
    pub(super) device_bytes: Option<u64>,
    /// What other programs achieve.
    pub(super) peers: Vec<Peer>,
}

/// A case as listed by `grpo bench --list`.
#[derive(Deserialize)]
struct Listed {
    name: String,
    unit: String,
    /// Whether bench.py has it.
    peer: bool,
}

/// Measures all cases on a device, and with `peers` if given. Calls `done` after each one. A case that
/// fails does not keep the others from being measured.
pub(super) fn measure(
    grpo: &Grpo,
    device: &str,
    peers: Option<&Peers>,
    mut done: impl FnMut(Speed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let listed = grpo.json_lines(&["bench", "--list"])?;
    let listed: Vec<Listed> = listed.into_iter().map(read).collect::<Result<_, _>>()?;
    let large = if device == "cpu" { &[][..] } else { &LARGE_CASES[..] };
    let (mut products, mut copied) = (BTreeMap::new(), None);
    for &case in CASES.iter().chain(large) {
        say_aside(format_args!("speed of {case} on {device}"));
        let of_case = listed.iter().find(|listed| listed.name == case);
        let of_case = of_case.with_context(|| format!("`grpo bench` has no case {case}"))?;
        let repetitions = repetitions(grpo, case, device);
        let rate = |of: fn(&Repetition) -> Option<f64>| {
            median(repetitions.iter().flatten().filter_map(of))
        };
        let flops = rate(|answer| Some(answer.flops? / answer.seconds));
        let limit = if case.ends_with("-bf16") { "matmul-medium-bf16" } else { "matmul-medium" };
        if let (true, Some(flops)) = (case == limit, flops) {
            products.insert(limit, flops);
        }
        let measured = median_rate(repetitions.as_deref().unwrap_or_default());
        if case == "copy" {
            copied = measured;
        }
        let read = rate(|answer| Some(answer.weight_bytes? / answer.seconds));
        let of_copy = read.zip(copied).map(|(read, most)| read / most);
        let per_second = match (&repetitions, measured) {
            (Ok(_), measured) => measured.ok_or_else(|| "measured nothing".to_owned()),
            (Err(error), _) => Err(first_line(&error.to_string())),
        };
        let of_products = flops.zip(products.get(limit)).map(|(flops, most)| flops / most);
        let last = repetitions.iter().flatten().next_back();
        let device_bytes = last.and_then(|repetition| repetition.device_bytes);
        let peers = match peers.filter(|_| of_case.peer) {
            Some(peers) => peers.measure(case, measured),
            None => Vec::new(),
        };
        let unit = of_case.unit.clone();
        done(Speed { case, unit, per_second, of_products, limit, of_copy, device_bytes, peers })?;
    }
    Ok(())
}

fn repetitions(grpo: &Grpo, case: &str, device: &str) -> anyhow::Result<Vec<Repetition>> {
    let answers = grpo
        .json_lines_of_success(&["bench", "--case", case, "--repeat", "3", "--device", device])?;
    // The first line says that the case is ready.
    answers.into_iter().skip(1).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_or_the_reason_in_json() {
        let speed = |per_second| Speed {
            case: "copy",
            unit: "bytes".to_owned(),
            per_second,
            of_products: None,
            limit: "matmul-medium",
            of_copy: None,
            device_bytes: None,
            peers: Vec::new(),
        };
        let json = |speed: Speed| serde_json::to_value(speed).unwrap();
        assert_eq!(
            json(speed(Ok(2.0))),
            serde_json::json!({"case": "copy", "unit": "bytes", "per_second": 2.0, "of_products": null, "limit": "matmul-medium", "of_copy": null, "device_bytes": null, "peers": []})
        );
        assert_eq!(
            json(speed(Err("no memory".to_owned()))),
            serde_json::json!({"case": "copy", "unit": "bytes", "not_measured": "no memory", "of_products": null, "limit": "matmul-medium", "of_copy": null, "device_bytes": null, "peers": []})
        );
    }
}

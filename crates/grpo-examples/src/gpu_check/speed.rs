//! Speed of a device, measured by `grpo bench`, each case in a process of its own.

use std::collections::BTreeMap;

use anyhow::Context;
use grpo_app::output::say_aside;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::runs::Grpo;

/// Cases for all devices. The products are the limits of the cases after them.
const CASES: [&str; 8] = [
    "copy",
    "matmul-medium",
    "matmul-medium-bf16",
    "sampling-small",
    "sampling-medium",
    "training-medium",
    "training-medium-bf16",
    "step-small",
];
/// Cases for GPUs, with models of 0.6 and 1.7 billion parameters. They take minutes on a CPU.
const LARGE_CASES: [&str; 7] = [
    "sampling-large",
    "sampling-large-bf16",
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
    /// Memory that the case has reserved on a GPU.
    pub(super) device_bytes: Option<u64>,
}

/// The keys of a rate in JSON.
#[derive(Serialize)]
#[serde(remote = "Result<f64, String>")]
enum RateOrReason {
    #[serde(rename = "per_second")]
    Ok(f64),
    #[serde(rename = "not_measured")]
    Err(String),
}

/// A case as listed by `grpo bench --list`.
#[derive(Deserialize)]
struct Listed {
    name: String,
    unit: String,
}

/// A repetition as printed by `grpo bench --case`.
#[derive(Deserialize)]
struct Repetition {
    seconds: f64,
    work: f64,
    flops: Option<f64>,
    device_bytes: Option<u64>,
}

/// Measures all cases on a device, and calls `done` after each one. A case that fails does not keep
/// the others from being measured.
pub(super) fn measure(
    grpo: &Grpo,
    device: &str,
    mut done: impl FnMut(Speed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let listed = grpo.json_lines(&["bench", "--list"])?;
    let listed: Vec<Listed> = listed.into_iter().map(read).collect::<Result<_, _>>()?;
    let large = if device == "cpu" { &[][..] } else { &LARGE_CASES[..] };
    let mut products = BTreeMap::new();
    for &case in CASES.iter().chain(large) {
        say_aside(format_args!("speed of {case} on {device}"));
        let unit = listed.iter().find(|listed| listed.name == case);
        let unit = unit.with_context(|| format!("`grpo bench` has no case {case}"))?.unit.clone();
        let repetitions = repetitions(grpo, case, device);
        let rate = |of: fn(&Repetition) -> Option<f64>| {
            median(repetitions.iter().flatten().filter_map(of))
        };
        let flops = rate(|answer| Some(answer.flops? / answer.seconds));
        let limit = if case.ends_with("-bf16") { "matmul-medium-bf16" } else { "matmul-medium" };
        if let (true, Some(flops)) = (case == limit, flops) {
            products.insert(limit, flops);
        }
        let measured = rate(|answer| Some(answer.work / answer.seconds));
        let per_second = match (&repetitions, measured) {
            (Ok(_), measured) => measured.ok_or_else(|| "measured nothing".to_owned()),
            (Err(error), _) => Err(first_line(&error.to_string())),
        };
        let of_products = flops.zip(products.get(limit)).map(|(flops, most)| flops / most);
        let last = repetitions.iter().flatten().next_back();
        let device_bytes = last.and_then(|repetition| repetition.device_bytes);
        done(Speed { case, unit, per_second, of_products, limit, device_bytes })?;
    }
    Ok(())
}

fn repetitions(grpo: &Grpo, case: &str, device: &str) -> anyhow::Result<Vec<Repetition>> {
    let answers = grpo
        .json_lines_of_success(&["bench", "--case", case, "--repeat", "3", "--device", device])?;
    // The first line says that the case is ready.
    answers.into_iter().skip(1).map(read).collect()
}

/// Returns the beginning of an error message. A driver's message can fill pages.
fn first_line(message: &str) -> String {
    const MOST: usize = 300;
    let line = message.lines().next().unwrap_or_default();
    line.chars().take(MOST).collect()
}

fn read<T: for<'de> Deserialize<'de>>(line: Value) -> anyhow::Result<T> {
    let text = line.to_string();
    serde_json::from_value(line).with_context(|| format!("`grpo bench` printed `{text}`"))
}

/// Returns the median, or the larger of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(first_line("no memory\nstack backtrace:\n 0: …"), "no memory");
        assert_eq!(first_line(&"é".repeat(400)), "é".repeat(300));
    }

    #[test]
    fn a_rate_or_the_reason_in_json() {
        let speed = |per_second| Speed {
            case: "copy",
            unit: "bytes".to_owned(),
            per_second,
            of_products: None,
            limit: "matmul-medium",
            device_bytes: None,
        };
        let json = |speed: Speed| serde_json::to_value(speed).unwrap();
        assert_eq!(
            json(speed(Ok(2.0))),
            serde_json::json!({"case": "copy", "unit": "bytes", "per_second": 2.0, "of_products": null, "limit": "matmul-medium", "device_bytes": null})
        );
        assert_eq!(
            json(speed(Err("no memory".to_owned()))),
            serde_json::json!({"case": "copy", "unit": "bytes", "not_measured": "no memory", "of_products": null, "limit": "matmul-medium", "device_bytes": null})
        );
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }
}

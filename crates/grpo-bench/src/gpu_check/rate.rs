//! Rates of work, as measured by `grpo bench` and bench.py.

use anyhow::Context;
use grpo_run::thousands;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The keys of a rate in JSON.
#[derive(Serialize)]
#[serde(remote = "Result<f64, String>")]
pub(super) enum RateOrReason {
    #[serde(rename = "per_second")]
    Ok(f64),
    #[serde(rename = "not_measured")]
    Err(String),
}

/// A repetition as printed by `grpo bench --case` and bench.py.
#[derive(Deserialize)]
pub(super) struct Repetition {
    pub(super) seconds: f64,
    pub(super) work: f64,
    pub(super) flops: Option<f64>,
    pub(super) weight_bytes: Option<f64>,
    pub(super) device_bytes: Option<u64>,
}

/// Reads a line that a program has printed.
pub(super) fn read<T: for<'de> Deserialize<'de>>(line: Value) -> anyhow::Result<T> {
    let text = line.to_string();
    serde_json::from_value(line).with_context(|| format!("a benchmark printed `{text}`"))
}

/// Returns the beginning of an error message. A driver's message can fill pages.
pub(super) fn first_line(message: &str) -> String {
    const MOST: usize = 300;
    let line = message.lines().next().unwrap_or_default();
    line.chars().take(MOST).collect()
}

/// Returns the median of the work per second.
pub(super) fn median_rate(repetitions: &[Repetition]) -> Option<f64> {
    median(repetitions.iter().map(|answer| answer.work / answer.seconds))
}

/// Returns the median, or the larger of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns a rate for people, e.g. `42,807 tokens/s`, `3.91 steps/s` and `3.85 Tbytes/s`.
pub(super) fn rate_text(rate: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G")];
    let (rate, prefix) = prefixes
        .into_iter()
        .find(|(size, _)| rate >= *size)
        .map_or((rate, ""), |(size, prefix)| (rate / size, prefix));
    let number = match rate {
        ..1.0 => format!("{rate:.3}"),
        ..10.0 => format!("{rate:.2}"),
        ..100.0 => format!("{rate:.1}"),
        _ => thousands(rate.round() as usize),
    };
    format!("{number} {prefix}{unit}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_for_people() {
        for (rate, unit, text) in [
            (0.4838, "steps", "0.484 steps/s"),
            (3.908, "steps", "3.91 steps/s"),
            (39.04, "tokens", "39.0 tokens/s"),
            (170.4, "tokens", "170 tokens/s"),
            (42_806.7, "tokens", "42,807 tokens/s"),
            (1_234_567.0, "tokens", "1,234,567 tokens/s"),
            (31.25e9, "bytes", "31.2 Gbytes/s"),
            (3.8466e12, "bytes", "3.85 Tbytes/s"),
            (9.772e12, "FLOP", "9.77 TFLOP/s"),
        ] {
            assert_eq!(rate_text(rate, unit), text);
        }
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(first_line("no memory\nstack backtrace:\n 0: …"), "no memory");
        assert_eq!(first_line(&"é".repeat(400)), "é".repeat(300));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }
}

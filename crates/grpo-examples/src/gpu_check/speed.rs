//! Speed of a device, measured by `grpo bench`, each case in a process of its own.

use anyhow::Context;
use grpo_app::output::say_aside;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::runs::Grpo;

/// Cases for all devices. The first two are the limits of the others.
const CASES: [&str; 6] =
    ["copy", "matmul-medium", "sampling-small", "sampling-medium", "training-medium", "step-small"];
/// Cases for GPUs, with a model of 0.6 billion parameters. They take minutes on a CPU.
const LARGE_CASES: [&str; 2] = ["sampling-large", "adapter-step-large"];

/// The result of a case.
#[derive(Debug, Serialize)]
pub(super) struct Speed {
    pub(super) case: &'static str,
    pub(super) unit: String,
    /// Median over the repetitions.
    pub(super) per_second: f64,
    /// Rate of the operations that the matrix products of a model need, as a fraction of the rate
    /// of `matmul-medium`.
    pub(super) of_products: Option<f64>,
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
}

/// Measures all cases on a device.
pub(super) fn measure(grpo: &Grpo, device: &str) -> anyhow::Result<Vec<Speed>> {
    let listed = grpo.json_lines(&["bench", "--list"])?;
    let listed: Vec<Listed> = listed.into_iter().map(read).collect::<Result<_, _>>()?;
    let large = if device == "cpu" { &[][..] } else { &LARGE_CASES[..] };
    let mut products = None;
    let mut speeds = Vec::new();
    for &case in CASES.iter().chain(large) {
        say_aside(format_args!("speed of {case} on {device}"));
        let arguments = ["bench", "--case", case, "--repeat", "3", "--device", device];
        // The first line says that the case is ready.
        let answers = grpo.json_lines(&arguments)?.into_iter().skip(1);
        let answers: Vec<Repetition> = answers.map(read).collect::<Result<_, _>>()?;
        let rate = |of: fn(&Repetition) -> Option<f64>| median(answers.iter().filter_map(of));
        let flops = rate(|answer| Some(answer.flops? / answer.seconds));
        if case == "matmul-medium" {
            products = flops;
        }
        let unit = listed.iter().find(|listed| listed.name == case);
        speeds.push(Speed {
            case,
            unit: unit.with_context(|| format!("`grpo bench` has no case {case}"))?.unit.clone(),
            per_second: rate(|answer| Some(answer.work / answer.seconds))
                .with_context(|| format!("`grpo bench --case {case}` measured nothing"))?,
            of_products: flops.zip(products).map(|(flops, products)| flops / products),
        });
    }
    Ok(speeds)
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
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }
}

//! What `grpo eval` writes and prints.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use grpo_data::statistics::{mean, standard_error};
use grpo_task::eval::{FieldGroup, Measured};
use grpo_task::output::{FileInPlace, say_aside};
use grpo_task::visible::data_output;
use serde_json::{Map, Value, json};

use super::arguments::{EvalArguments, Gate, Groups};

/// Checks the gates of a file or model.
pub(super) fn checked(
    gates: &[Gate],
    measured: &Measured,
    of: &Path,
) -> anyhow::Result<Vec<Value>> {
    gates.iter().map(|gate| gate.check(measured, of)).collect()
}

/// Writes the metrics of all entries, and prints them or calls `show`. Returns what was written.
pub(super) fn report(
    arguments: &EvalArguments,
    mut entries: Vec<Map<String, Value>>,
    output: Option<FileInPlace>,
    show: impl FnOnce(),
) -> anyhow::Result<Map<String, Value>> {
    let gates = |entry: &Map<String, Value>| entry.get("gates").and_then(Value::as_array).cloned();
    let gates: Vec<Value> = entries.iter().filter_map(gates).flatten().collect();
    let mut result = match entries.len() {
        1 => entries.remove(0),
        _ => Map::from_iter([("files".to_owned(), entries.into())]),
    };
    if !gates.is_empty() {
        let passed = gates.iter().all(|gate| gate["passed"] == true);
        result.insert("passed".to_owned(), passed.into());
    }
    let text = serde_json::to_string_pretty(&result).context("the metrics are finite")? + "\n";
    if let Some(file) = output {
        file.write_text(&text)?;
    }
    match arguments.json {
        true => data_output().write_all(text.as_bytes()).context("cannot write the metrics")?,
        false => show(),
    }
    Ok(result)
}

/// Prints the gates.
///
/// # Errors
/// Returns an error if one is not passed.
pub(super) fn end(result: &Map<String, Value>) -> anyhow::Result<()> {
    for gate in gate_lines(result) {
        say_aside(format_args!("{gate}"));
    }
    let failed = result.get("passed").is_some_and(|passed| passed == false);
    anyhow::ensure!(!failed, "the evaluation did not pass its gates");
    Ok(())
}

/// Returns the fraction of completions that pass, with its standard error over the prompts.
pub(super) fn passed_line(file: &Path, measured: &Measured) -> Option<String> {
    let of_prompts = measured.per_prompt.get("pass_at_1").filter(|of| of.len() > 1)?;
    let n = of_prompts.len();
    Some(format!(
        "{}: {:.1} ± {:.1} % of completions pass (mean ± standard error over {n} prompts)",
        file.display(),
        100.0 * mean(of_prompts),
        100.0 * standard_error(of_prompts)
    ))
}

/// Returns a line for each gate.
fn gate_lines(result: &Map<String, Value>) -> Vec<String> {
    let gates_of = |entry: &Value, file: &str| -> Vec<(String, Value)> {
        let gates = entry["gates"].as_array().into_iter().flatten();
        gates.map(|gate| (file.to_owned(), gate.clone())).collect()
    };
    let gates: Vec<(String, Value)> = match result.get("files").and_then(Value::as_array) {
        None => gates_of(&Value::Object(result.clone()), ""),
        Some(files) => {
            let name = |entry: &Value| format!("{}: ", entry["file"].as_str().unwrap_or_default());
            files.iter().flat_map(|entry| gates_of(entry, &name(entry))).collect()
        }
    };
    gates
        .iter()
        .map(|(file, gate)| {
            let verdict = if gate["passed"] == true { "passed" } else { "failed" };
            format!(
                "gate {verdict}  {file}{} = {} (bound {})",
                gate["metric"].as_str().unwrap_or_default(),
                gate["value"],
                gate["bound"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

/// Returns the JSON entry of a file or model, which begins with the keys of `subject`.
pub(super) fn entry(
    subject: Vec<(&str, Value)>,
    measured: &Measured,
    groups: Option<&Groups>,
    gates: &[Value],
) -> Map<String, Value> {
    let errors = measured.standard_errors();
    let Measured { metrics, intervals, per_prompt, .. } = measured;
    let of_all = [
        ("metrics", json!(metrics)),
        ("intervals", json!(intervals)),
        ("standard_errors", json!(errors)),
        ("per_prompt", json!(per_prompt)),
    ];
    let keys = subject.into_iter().chain(of_all);
    let mut entry: Map<String, Value> = keys.map(|(key, value)| (key.to_owned(), value)).collect();
    if let Some((field, groups)) = groups {
        let group = |group: &FieldGroup| {
            let of = |index: usize| -> Map<String, Value> {
                let means = group.means.iter().filter(|(_, of)| of[index].is_finite());
                means.map(|(name, of)| (name.clone(), of[index].into())).collect()
            };
            let value =
                json!({"prompts": group.prompts, "metrics": of(0), "standard_errors": of(1)});
            (group.value.clone(), value)
        };
        let groups: Map<String, Value> = groups.iter().map(group).collect();
        entry.insert("by".to_owned(), json!({field: groups}));
    }
    if !gates.is_empty() {
        entry.insert("gates".to_owned(), json!(gates));
    }
    entry
}

//! Assembles the HTML page of a report.

use std::collections::BTreeMap;

use grpo_data::statistics::mean;
use grpo_run::{Event, EventKind, RecordedDevice, RunDevices};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::best_table::BestRows;
use crate::numbers::{duration, number};
use crate::panels::{Constant, Key, Panel, Panels, described};
use crate::samples::{CompletionTable, Gallery};
use crate::series::points_of;
use crate::story::Story;
use crate::validations::NumberTable;
use crate::{Outcome, RunData, Verdict, chart, command_of, html, transforms};

/// Renders a self-contained HTML page about `runs`. Styles, charts and the script for sorting
/// tables are embedded, and no external resources are loaded. The output is deterministic and
/// contains no dates except the runs' own.
///
/// # Panics
/// Panics if `runs` is empty.
pub fn render(runs: &[RunData]) -> String {
    assert!(!runs.is_empty(), "a report requires at least one run");
    let panels = Panels::of(runs);
    let single = if let [run] = runs { Some(run) } else { None };
    let page = Page {
        title: runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(" · "),
        style: html::STYLE,
        script: SCRIPT,
        script_hash: base64(&Sha256::digest(SCRIPT)),
        runs: runs.iter().enumerate().map(|(i, run)| about(i, run)).collect(),
        is_single: single.is_some(),
        compared: single.and_then(compared),
        galleries: single.map_or_else(Vec::new, Gallery::all),
        best: single.and_then(BestRows::new),
        panels: panels.main,
        more: panels.more,
        constant: panels.constant,
        transforms: single.map_or_else(Vec::new, |run| transforms::panels(&run.transforms)),
        numbers: numbers(runs),
        differences: differences(runs),
        completions: single.and_then(CompletionTable::new),
        events: single.map_or_else(Vec::new, |run| {
            // Routine events that occur in every run are not listed.
            let plain = |event: &&Event| {
                matches!(
                    event.what,
                    EventKind::Started {}
                        | EventKind::Saved {}
                        | EventKind::Checkpoint { best: false }
                )
            };
            run.events.iter().filter(|event| !plain(event)).map(row).collect()
        }),
    };
    html::render(TEMPLATE, page)
}

const TEMPLATE: &str = include_str!("report.html.j2");
const SCRIPT: &str = include_str!("report.js");

/// Template variables.
#[derive(Serialize)]
struct Page {
    title: String,
    style: &'static str,
    script: &'static str,
    /// Hash for the content security policy, which only allows this script.
    script_hash: String,
    runs: Vec<About>,
    is_single: bool,
    compared: Option<Compared>,
    galleries: Vec<Gallery>,
    best: Option<BestRows>,
    panels: Vec<Panel>,
    more: Vec<Panel>,
    constant: Vec<Constant>,
    transforms: Vec<Panel>,
    numbers: Vec<Row>,
    differences: Vec<(String, Vec<String>)>,
    completions: Option<CompletionTable>,
    events: Vec<(u64, String, &'static str, String)>,
}

/// Header section about a run.
#[derive(Serialize)]
struct About {
    key: Key,
    story: Story,
    /// The most important facts.
    brief: Vec<(&'static str, String)>,
    facts: Vec<(&'static str, String)>,
    outcome: Outcome,
    /// Whether `[success]` contains any criteria.
    has_limits: bool,
    verdict: Verdict,
}

fn about(i: usize, run: &RunData) -> About {
    let verdict = run.verdict();
    let key = Key { label: run.name.clone(), color: chart::css_color(i) };
    About {
        key,
        story: Story::new(run, &verdict),
        brief: brief(run),
        facts: facts(run),
        outcome: verdict.outcome(),
        has_limits: !run.is_supervised(),
        verdict,
    }
}

/// Table with the evaluations or validations of a run.
#[derive(Serialize)]
struct Compared {
    title: &'static str,
    note: String,
    table: NumberTable,
}

fn compared(run: &RunData) -> Option<Compared> {
    let (title, note, table) = match (&run.comparison, run.is_supervised()) {
        (Some(comparison), false) => (
            "Before and after",
            format!(
                "{} {} from the same prompts and random numbers, before training and after step {}.",
                comparison.count, comparison.samples, comparison.step
            ),
            NumberTable::of_comparison(run)?,
        ),
        (None, false) => return None,
        (_, true) => (
            "Validations",
            "On held-out data. The model with the lowest loss is kept.".to_owned(),
            NumberTable::of_validations(run)?,
        ),
    };
    Some(Compared { title, note, table })
}

fn brief(run: &RunData) -> Vec<(&'static str, String)> {
    let top = |key: &str| run.config.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let mut facts = vec![("command", format!("grpo {}", command_of(&run.config)))];
    facts.extend(top("model").map(|model| ("model", model)));
    facts.extend(top("adapter").map(|adapter| ("adapter", adapter)));
    facts.extend(run.setting("reward", "type").map(|reward| ("reward", plain(reward))));
    facts.extend(run.setting("loss", "preset").map(|preset| ("preset", plain(preset))));
    let done = run.last_step();
    let steps = match run.setting("train", "steps") {
        Some(all) => format!("{done} of {all}"),
        None => done.to_string(),
    };
    facts.push(("steps", steps));
    let seconds: f64 = points_of(&run.metrics, "step_time").iter().map(|point| point.1).sum();
    if seconds > 0.0 {
        facts.push(("time spent in steps", duration(seconds)));
    }
    facts.extend(slowest_reward(run).map(|slowest| ("slowest reward", slowest)));
    facts
}

/// Names the completion that an external reward took longest to score.
fn slowest_reward(run: &RunData) -> Option<String> {
    let of = |line: &Map<String, Value>, name: &str| {
        line.get(&format!("time/reward_item/{name}"))?.as_f64()
    };
    let slowest = run.metrics.iter().filter_map(|line| Some((of(line, "max")?, line)));
    let (seconds, line) = slowest.reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let [prompt, sample] = ["slowest_prompt", "slowest_sample"].map(|name| of(line, name));
    let step = line.get("step")?.as_u64()?;
    Some(format!("{} s: step {step}, prompt {}, sample {}", number(seconds), prompt?, sample?))
}

fn facts(run: &RunData) -> Vec<(&'static str, String)> {
    let devices = RunDevices::of(&run.info, &run.events);
    let mut facts = vec![
        ("folder", run.path.display().to_string()),
        ("started", run.info.started.clone()),
        ("device", format!("{devices}; {} threads", run.info.threads)),
        ("seed", run.info.seed.to_string()),
    ];
    let versions = run.info.versions.iter().map(|(name, version)| format!("{name} {version}"));
    facts.push(("versions", versions.collect::<Vec<_>>().join(", ")));
    facts.extend(run.info.git_revision.iter().map(|revision| ("git", revision.clone())));
    facts.extend(run.info.data.iter().map(|file| {
        let hash = file.sha256.get(..12).unwrap_or(&file.sha256);
        ("data", format!("{}: {} (SHA-256 {hash}…)", file.role, file.path.display()))
    }));
    facts.push(("command line", run.info.command.join(" ")));
    facts.extend(run.events.iter().rev().find_map(|event| match &event.what {
        EventKind::Best { best_step, reward, checkpoint } => {
            Some(("best evaluation", best(*best_step, *reward, checkpoint.as_deref())))
        }
        _ => None,
    }));
    facts
}

/// Encodes bytes as padded Base64, as required by a content security policy.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let of_three = |three: &[u8]| {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letter = move |i: usize| LETTERS[(bits >> (18 - 6 * i)) as usize & 63] as char;
        let count = three.len() + 1;
        (0..4).map(move |i| if i < count { letter(i) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(of_three).collect()
}

/// Describes the best evaluation and the location of its checkpoint.
fn best(step: u64, reward: f64, checkpoint: Option<&str>) -> String {
    let place = checkpoint.unwrap_or("its checkpoint was not kept");
    format!("after step {step}, mean reward {}: {place}", number(reward))
}

/// A metric with its mean over the first and the last tenth of the steps, for each run.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// What the metric is, or empty.
    meaning: String,
    values: Vec<(String, String)>,
}

fn numbers(runs: &[RunData]) -> Vec<Row> {
    const NAMES: [&str; 13] = [
        "step_train_loss",
        "eval_loss",
        "reward",
        "eval_reward",
        "rewards/valid/mean",
        "kl",
        "entropy",
        "completions/mean_length",
        "completions/unique_ratio",
        "frac_reward_zero_std",
        "grad_norm",
        "step_time",
        "tokens_per_second",
    ];
    let ends = |run: &RunData, name: &str| {
        let values: Vec<f64> = points_of(&run.metrics, name).iter().map(|point| point.1).collect();
        let n = values.len().div_ceil(10);
        match values.len() {
            0 => None,
            len => Some((number(mean(&values[..n])), number(mean(&values[len - n..])))),
        }
    };
    let row = |name: &'static str| {
        let values: Vec<_> = runs.iter().map(|run| ends(run, name)).collect();
        let dash = || ("–".to_owned(), "–".to_owned());
        values.iter().any(Option::is_some).then(|| Row {
            name,
            meaning: described(runs, name),
            values: values.into_iter().map(|value| value.unwrap_or_else(dash)).collect(),
        })
    };
    NAMES.into_iter().filter_map(row).collect()
}

/// Returns all configuration keys that differ between the runs, except the run folder.
fn differences(runs: &[RunData]) -> Vec<(String, Vec<String>)> {
    let mut flat: Vec<BTreeMap<String, String>> = Vec::new();
    for run in runs {
        let mut keys = BTreeMap::new();
        flatten("", &run.config, &mut keys);
        keys.remove("run");
        flat.push(keys);
    }
    let names: std::collections::BTreeSet<&String> = flat.iter().flat_map(BTreeMap::keys).collect();
    let values = |name: &String| -> Vec<String> {
        let value = |keys: &BTreeMap<_, _>| keys.get(name).cloned().unwrap_or("–".to_owned());
        flat.iter().map(value).collect()
    };
    names
        .into_iter()
        .map(|name| (name.clone(), values(name)))
        .filter(|(_, values)| values.iter().any(|value| *value != values[0]))
        .collect()
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, into),
            value => {
                into.insert(name, plain(value));
            }
        }
    }
}

/// Formats a TOML value without quotes around strings.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a row of the event table.
fn row(event: &Event) -> (u64, String, &'static str, String) {
    let (kind, text) = match &event.what {
        EventKind::Started {} => ("started", "The run started.".to_owned()),
        EventKind::Saved {} => ("saved", "The trained weights were saved.".to_owned()),
        EventKind::Resumed { device: None, .. } => {
            ("resumed", "The run resumed from this step.".to_owned())
        }
        EventKind::Resumed { device: Some(name), gpu } => {
            let device = RecordedDevice { name: name.clone(), gpu: gpu.clone() };
            ("resumed", format!("The run resumed from this step on {device}."))
        }
        EventKind::Interrupted {} => ("interrupted", "A signal ended the run.".to_owned()),
        EventKind::Checkpoint { best } => {
            ("checkpoint", if *best { "The best held-out reward so far." } else { "" }.to_owned())
        }
        EventKind::Reference { mix, .. } => {
            ("reference", format!("The reference was mixed with the policy (weight {mix})."))
        }
        EventKind::Guard { action, message, .. } => {
            ("guard", format!("{message} ({})", action.replace('_', " ")))
        }
        EventKind::RolledBack { from_step, learning_rate_factor, kl_coef, .. } => (
            "rolled back",
            format!(
                "Rolled back from step {from_step}: learning rates × {learning_rate_factor}, β = {kl_coef}."
            ),
        ),
        EventKind::Best { best_step, reward, checkpoint } => {
            ("best", best(*best_step, *reward, checkpoint.as_deref()))
        }
        EventKind::Stopped { reason } => ("stopped", reason.clone()),
        EventKind::Finished { ended_by: None } => {
            ("finished", "Training ended as configured.".to_owned())
        }
        EventKind::Finished { ended_by: Some(ended_by) } => ("finished", ended_by.reason.clone()),
    };
    (event.step, event.at.clone(), kind, text)
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_has_its_padding() {
        for (text, code) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), code);
        }
    }
}

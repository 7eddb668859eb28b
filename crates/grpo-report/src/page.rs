//! The page: everything that a report says, put into one HTML file.

use std::collections::BTreeMap;

use grpo_data::statistics::mean;
use grpo_run::{Event, EventKind};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use crate::numbers::{duration, number};
use crate::panels::{Constant, Key, Panel, Panels};
use crate::samples::{Drawing, Samples};
use crate::series::points_of;
use crate::{Outcome, RunData, Verdict, chart};

/// One self-contained page about `runs`: style and pictures are in it, it loads nothing and runs no script. The same runs
/// give the same page, byte for byte; its only dates are those of the runs.
///
/// `drawing` returns what draws samples that were scored by a reward of a type, if anything does.
///
/// # Panics
/// If `runs` is empty.
pub fn render(runs: &[RunData], drawing: &dyn Fn(&str) -> Option<Drawing>) -> String {
    assert!(!runs.is_empty(), "a report needs a run");
    let panels = Panels::of(runs);
    let mut environment = Environment::new();
    // Its name ends in `.html`, so that all text is escaped but what is marked as safe.
    environment.add_template("report.html", TEMPLATE).expect("the template is right");
    let template = environment.get_template("report.html").expect("it was added");
    let single = if let [run] = runs { Some(run) } else { None };
    let page = Page {
        title: runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(" · "),
        style: STYLE,
        runs: runs.iter().enumerate().map(|(i, run)| about(i, run)).collect(),
        is_single: single.is_some(),
        panels: panels.main,
        more: panels.more,
        constant: panels.constant,
        numbers: numbers(runs),
        differences: differences(runs),
        samples: single.map_or_else(Vec::new, |run| Samples::of(run, drawing)),
        events: single.map_or_else(Vec::new, |run| {
            // What every run has now and then is no event for a reader.
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
    template.render(Serde(page)).expect("the template finds all that it names")
}

const TEMPLATE: &str = include_str!("report.html.j2");
const STYLE: &str = include_str!("report.css");

/// All that the template names.
#[derive(Serialize)]
struct Page {
    title: String,
    style: &'static str,
    runs: Vec<About>,
    is_single: bool,
    panels: Vec<Panel>,
    more: Vec<Panel>,
    constant: Vec<Constant>,
    numbers: Vec<Row>,
    differences: Vec<(String, Vec<String>)>,
    samples: Vec<Samples>,
    events: Vec<(u64, String, &'static str, String)>,
}

/// A run at the head of the page.
#[derive(Serialize)]
struct About {
    key: Key,
    facts: Vec<(&'static str, String)>,
    outcome: Outcome,
    /// In a word.
    word: &'static str,
    verdict: Verdict,
}

fn about(i: usize, run: &RunData) -> About {
    let verdict = run.verdict();
    let outcome = verdict.outcome();
    let word = match outcome {
        Outcome::Passed => "Success",
        Outcome::Failed => "No success",
        Outcome::NotJudged => "Not judged",
    };
    let key = Key { label: run.name.clone(), color: chart::css_color(i) };
    About { key, facts: facts(run), outcome, word, verdict }
}

fn facts(run: &RunData) -> Vec<(&'static str, String)> {
    let top = |key: &str| run.config.get(key).map(plain);
    let mut facts = vec![("model", top("model").unwrap_or_default())];
    facts.extend(top("adapter").map(|adapter| ("adapter", adapter)));
    facts.extend(run.setting("loss", "preset").map(|preset| ("preset", plain(preset))));
    let done = run.metrics.last().map_or(0, |line| crate::series::step_of(line, 0));
    let steps = match run.setting("train", "steps") {
        Some(all) => format!("{done} of {all}"),
        None => done.to_string(),
    };
    facts.push(("steps", steps));
    let seconds: f64 = points_of(&run.metrics, "step_time").iter().map(|point| point.1).sum();
    facts.push(("time in steps", duration(seconds)));
    facts.push(("seed", run.info.seed.to_string()));
    facts.push(("device", format!("{}, {} threads", run.info.device, run.info.threads)));
    facts.push(("started", run.info.started.clone()));
    let versions = run.info.versions.iter().map(|(name, version)| format!("{name} {version}"));
    facts.push(("versions", versions.collect::<Vec<_>>().join(", ")));
    facts.extend(run.info.git_revision.iter().map(|revision| ("git", revision.clone())));
    facts.push(("folder", run.path.display().to_string()));
    facts.extend(run.events.iter().rev().find_map(|event| match &event.what {
        EventKind::Best { best_step, reward, checkpoint } => {
            Some(("best evaluation", best(*best_step, *reward, checkpoint.as_deref())))
        }
        _ => None,
    }));
    facts
}

/// The best evaluation, and where its policy is.
fn best(step: u64, reward: f64, checkpoint: Option<&str>) -> String {
    let place = checkpoint.unwrap_or("no checkpoint was kept");
    format!("after step {step}, mean reward {}: {place}", number(reward))
}

/// A metric in numbers: of each run, its mean over the first tenth of the steps and over the last.
#[derive(Serialize)]
struct Row {
    name: &'static str,
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
            values: values.into_iter().map(|value| value.unwrap_or_else(dash)).collect(),
        })
    };
    NAMES.into_iter().filter_map(row).collect()
}

/// Keys of the configurations that are not the same in all runs, but the folder's own name.
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

/// A value without the quotes of a string.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A row of the table of events.
fn row(event: &Event) -> (u64, String, &'static str, String) {
    let (kind, text) = match &event.what {
        EventKind::Started {} => ("started", "The run began.".to_owned()),
        EventKind::Saved {} => ("saved", "What was trained was written.".to_owned()),
        EventKind::Resumed {} => ("resumed", "The run goes on from this step.".to_owned()),
        EventKind::Interrupted {} => ("interrupted", "A signal asked the run to end.".to_owned()),
        EventKind::Checkpoint { best } => {
            ("checkpoint", if *best { "The best held-out reward so far." } else { "" }.to_owned())
        }
        EventKind::Reference { mix, .. } => {
            ("reference", format!("The reference takes in the policy with a share of {mix}."))
        }
        EventKind::Guard { action, message, .. } => {
            ("guard", format!("{message} ({})", action.replace('_', " ")))
        }
        EventKind::RolledBack { from_step, learning_rate_factor, kl_coef, .. } => (
            "rolled back",
            format!(
                "Back from step {from_step}: learning rates × {learning_rate_factor}, β = {kl_coef}."
            ),
        ),
        EventKind::Best { best_step, reward, checkpoint } => {
            ("best", best(*best_step, *reward, checkpoint.as_deref()))
        }
        EventKind::Stopped { reason } => ("stopped", reason.clone()),
        EventKind::Finished {} => ("finished", "All steps are done.".to_owned()),
    };
    (event.step, event.at.clone(), kind, text)
}

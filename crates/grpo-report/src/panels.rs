//! Defines the charts of a report.

use std::collections::BTreeSet;

use grpo_run::EventKind;
use serde::Serialize;

use crate::RunData;
use crate::chart::{Band, Chart, Curve, Mark, css_color};
use crate::series::{Points, points_of, smooth, span};

/// A chart with title, caption and legend.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Description of the chart in one sentence.
    pub(crate) caption: String,
    pub(crate) svg: String,
    pub(crate) legend: Vec<Key>,
}

/// A legend entry.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Key {
    pub(crate) label: String,
    pub(crate) color: String,
}

/// A metric that has the same value in all steps and therefore no chart.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// All charts of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panels {
    pub(crate) main: Vec<Panel>,
    /// Charts that few readers need.
    pub(crate) more: Vec<Panel>,
    /// Constant metrics. Only used in reports of a single run.
    pub(crate) constant: Vec<Constant>,
}

/// Definition of a chart with one or more related metrics.
struct Plan {
    title: &'static str,
    what: &'static str,
    /// Names of the metrics, each with its label in the legend.
    metrics: &'static [(&'static str, &'static str)],
    spread: Spread,
}

/// The shaded area around the first curve.
enum Spread {
    None,
    /// One standard deviation on each side. Contains the name of the metric.
    Deviation(&'static str),
    /// The range between two metrics.
    Between(&'static str, &'static str),
}

/// Creates a definition without a shaded area.
const fn plan(
    title: &'static str,
    what: &'static str,
    metrics: &'static [(&'static str, &'static str)],
) -> Plan {
    Plan { title, what, metrics, spread: Spread::None }
}

const PLANS: &[Plan] = &[
    Plan {
        spread: Spread::Deviation("reward_std"),
        ..plan(
            "Reward",
            "Mean over the completions of a step",
            &[("reward", "training"), ("eval_reward", "held out")],
        )
    },
    plan(
        "Supervised loss",
        "Mean over a step, and on held-out data",
        &[("step_train_loss", "training"), ("eval_loss", "validation")],
    ),
    plan(
        "KL to the reference",
        "Nats per token",
        &[("kl", "training"), ("eval_kl", "held out"), ("reward_kl", "in the reward")],
    ),
    plan("Entropy", "Nats per token", &[("entropy", "training"), ("eval_entropy", "held out")]),
    Plan {
        spread: Spread::Between("completions/min_length", "completions/max_length"),
        ..plan(
            "Completion length",
            "Mean, in tokens",
            &[
                ("completions/mean_length", "training"),
                ("eval_completions/mean_length", "held out"),
            ],
        )
    },
    plan(
        "Clipped tokens",
        "Fraction of tokens whose ratio was clipped",
        &[
            ("clip_ratio/low_mean", "below"),
            ("clip_ratio/high_mean", "above"),
            ("cispo_clip_ratio", "CISPO"),
        ],
    ),
    plan(
        "Groups without signal",
        "Fraction of groups with equal rewards",
        &[("frac_reward_zero_std", "")],
    ),
    plan(
        "Truncated completions",
        "Fraction that reached the token limit",
        &[("completions/clipped_ratio", "")],
    ),
    plan(
        "Unique completions",
        "Fraction of distinct completions per step",
        &[
            ("completions/unique_ratio", "in a step"),
            ("completions/collapsed_groups", "equal groups"),
        ],
    ),
    plan("Gradient norm", "Before clipping", &[("grad_norm", "")]),
    plan(
        "External reward time",
        "Seconds per completion",
        &[
            ("time/reward_item/p50", "median"),
            ("time/reward_item/p99", "99 %"),
            ("time/reward_item/max", "slowest"),
        ],
    ),
    plan(
        "Loss",
        "Mean over the updates of a step",
        &[("loss", "total"), ("policy_loss", "surrogate"), ("kl_penalty", "KL penalty")],
    ),
    plan("Learning rate", "After the schedule", &[("learning_rate", "")]),
    plan("KL coefficient", "β in the loss", &[("kl_coef", "")]),
];

/// Phases of a step in stacking order.
const PHASES: [(&str, &str); 3] =
    [("time/rollout", "rollout"), ("time/reward", "reward"), ("time/update", "update")];

/// Metrics that are plotted even if they are constant, because readers expect them.
const ALWAYS: [&str; 3] = ["reward", "kl", "entropy"];

/// Counters, and metrics that are already part of a different chart.
const NEVER: [&str; 11] = [
    "step",
    "train_step",
    "epoch",
    "num_tokens",
    "step_time",
    "reward_std",
    "completions/min_length",
    "completions/max_length",
    "clip_ratio/region_mean",
    "time/reward_item/slowest_prompt",
    "time/reward_item/slowest_sample",
];

impl Panels {
    pub(crate) fn of(runs: &[RunData]) -> Self {
        let mut panels = Self::default();
        let mut shown: BTreeSet<String> = NEVER.map(str::to_owned).into();
        for plan in PLANS {
            let metrics: Vec<(&str, &str)> = plan.metrics.to_vec();
            shown.extend(metrics.iter().map(|(name, _)| (*name).to_owned()));
            panels.main.extend(panels_of(runs, plan.title, plan.what, &metrics, &plan.spread));
        }
        let names = names(runs);
        panels.add_parts(runs, &names, &mut shown);
        panels.main.extend(distribution(runs));
        panels.main.extend(times(runs));
        shown.extend(PHASES.map(|(name, _)| name.to_owned()));
        for name in names.iter().filter(|name| !shown.contains(*name)) {
            panels.more.extend(panels_of(runs, name, "", &[(name, "")], &Spread::None));
        }
        if let [run] = runs {
            panels.constant = names.iter().filter_map(|name| constant(run, name)).collect();
        }
        panels
    }

    /// Adds a chart for each reward component, including its standard deviation.
    fn add_parts(&mut self, runs: &[RunData], names: &[String], shown: &mut BTreeSet<String>) {
        for name in names {
            let part = name.strip_prefix("rewards/").and_then(|rest| rest.strip_suffix("/mean"));
            let Some(part) = part else { continue };
            let (std, eval) = (format!("rewards/{part}/std"), format!("eval_{name}"));
            let metrics = [(name.as_str(), "training"), (eval.as_str(), "held out")];
            let title = format!("Reward component: {part}");
            let spread = Spread::None;
            self.main.extend(panels_of(runs, &title, "Mean over a step", &metrics, &spread));
            shown.extend([name.clone(), std, eval]);
        }
    }
}

/// Returns the names of all metrics in order of first appearance.
fn names(runs: &[RunData]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let lines = runs.iter().flat_map(|run| &run.metrics);
    let names = lines.flat_map(|line| line.keys());
    names.filter(|name| known.insert((*name).clone())).cloned().collect()
}

/// For a single run, creates one chart with all metrics. For several runs, creates one chart per
/// metric with all runs.
fn panels_of(
    runs: &[RunData],
    title: &str,
    what: &str,
    metrics: &[(&str, &str)],
    spread: &Spread,
) -> Vec<Panel> {
    let [run] = runs else {
        let panel = |(i, (name, label)): (usize, &(&str, &str))| {
            let title = if i > 0 { format!("{title}, {label}") } else { title.to_owned() };
            overlaid(runs, title, what, name)
        };
        return metrics.iter().enumerate().filter_map(panel).collect();
    };
    let mut chart = Chart { marks: marks(run), ..Chart::default() };
    let mut legend = Vec::new();
    for (name, label) in metrics {
        let points = points_of(&run.metrics, name);
        if points.is_empty() || (is_constant(&points) && !ALWAYS.contains(name)) {
            continue;
        }
        let color = legend.len();
        let line = line_of(name, &points);
        chart.curves.push(Curve { color, points, line });
        legend.push(Key { label: (*label).to_owned(), color: css_color(color) });
    }
    if chart.is_empty() {
        return Vec::new();
    }
    let mut caption = join(what, "");
    let words = match spread {
        Spread::None => None,
        Spread::Deviation(std) => {
            deviation(run, metrics[0].0, std).map(|band| (band, "Area: ± 1 standard deviation"))
        }
        Spread::Between(low, high) => {
            let [lower, upper] = [low, high].map(|name| points_of(&run.metrics, name));
            let is_whole = !lower.is_empty() && lower.len() == upper.len();
            is_whole.then_some(((lower, upper), "Area: minimum to maximum"))
        }
    };
    if let Some(((lower, upper), words)) = words {
        chart.bands.push(Band { color: 0, opacity: 0.14, lower, upper });
        caption = join(&caption, words);
    }
    if legend.len() == 1 {
        legend.clear();
    }
    vec![Panel { title: title.to_owned(), caption, svg: chart.svg(), legend }]
}

/// Plots the same metric of several runs.
fn overlaid(runs: &[RunData], title: String, what: &str, name: &str) -> Option<Panel> {
    let mut chart = Chart::default();
    let mut legend = Vec::new();
    for (color, run) in runs.iter().enumerate() {
        let points = points_of(&run.metrics, name);
        if points.is_empty() {
            continue;
        }
        let line = line_of(name, &points);
        chart.curves.push(Curve { color, points, line });
        legend.push(Key { label: run.name.clone(), color: css_color(color) });
    }
    let first = chart.curves.first()?.points.first()?.1;
    let all = chart.curves.iter().flat_map(|curve| &curve.points);
    // If all values are equal, a chart is not informative.
    if !ALWAYS.contains(&name) && all.into_iter().all(|point| point.1 == first) {
        return None;
    }
    Some(Panel { title, caption: join(what, ""), svg: chart.svg(), legend })
}

/// Returns the smoothed curve. Metrics without noise are not smoothed.
fn line_of(name: &str, points: &[(f64, f64)]) -> Points {
    let is_set = ["learning_rate", "kl_coef"].contains(&name) || name.starts_with("eval_");
    smooth(points, if is_set { 1 } else { span(points.len()) })
}

/// Joins two sentences and adds missing full stops.
fn join(first: &str, second: &str) -> String {
    let sentences = [first, second].into_iter().filter(|sentence| !sentence.is_empty());
    let ended = sentences.map(|sentence| format!("{}.", sentence.trim_end_matches('.')));
    ended.collect::<Vec<_>>().join(" ")
}

/// Returns the smoothed metric minus and plus its smoothed standard deviation.
fn deviation(run: &RunData, name: &str, std: &str) -> Option<(Points, Points)> {
    let (values, stds) = (points_of(&run.metrics, name), points_of(&run.metrics, std));
    let is_whole = !values.is_empty()
        && values.len() == stds.len()
        && values.iter().zip(&stds).all(|(value, std)| value.0 == std.0);
    if !is_whole {
        return None;
    }
    let span = span(values.len());
    let (values, stds) = (smooth(&values, span), smooth(&stds, span));
    let around = |sign: f64| {
        values.iter().zip(&stds).map(|(value, std)| (value.0, value.1 + sign * std.1)).collect()
    };
    Some((around(-1.0), around(1.0)))
}

/// Returns the steps at which a guard was triggered, the reference was updated, or the run was
/// rolled back or resumed.
fn marks(run: &RunData) -> Vec<Mark> {
    let seen = run.events.iter().filter(|event| {
        !matches!(
            event.what,
            EventKind::Started {}
                | EventKind::Saved {}
                | EventKind::Checkpoint { .. }
                | EventKind::Best { .. }
                | EventKind::Finished { .. }
        )
    });
    let mut steps: Vec<u64> = seen.map(|event| event.step).collect();
    steps.dedup();
    let first = run.metrics.first().map_or(0, |line| crate::series::step_of(line, 0));
    let mark = |step: u64| Mark { step: step as f64, label: String::new() };
    steps.into_iter().filter(|step| *step >= first).map(mark).collect()
}

fn is_constant(points: &[(f64, f64)]) -> bool {
    points.len() > 1 && points.iter().all(|point| point.1 == points[0].1)
}

fn constant(run: &RunData, name: &str) -> Option<Constant> {
    let points = points_of(&run.metrics, name);
    let is_index = name == "step" || name.starts_with("time/reward_item/slowest_");
    (is_constant(&points) && !ALWAYS.contains(&name) && !is_index)
        .then(|| Constant { name: name.to_owned(), value: crate::numbers::number(points[0].1) })
}

/// Plots the reward quantiles of the recorded steps. At least two steps are required.
fn distribution(runs: &[RunData]) -> Option<Panel> {
    let [run] = runs else { return None };
    if run.rewards.len() < 2 {
        return None;
    }
    let quantile = |i: usize| -> Points {
        run.rewards.iter().map(|step| (step.step as f64, step.quantiles[i])).collect()
    };
    let band = |low: usize, high: usize, opacity: f64| Band {
        color: 0,
        opacity,
        lower: quantile(low),
        upper: quantile(high),
    };
    let chart = Chart {
        bands: vec![band(0, 4, 0.16), band(1, 3, 0.3)],
        curves: vec![Curve { color: 0, points: quantile(2), line: quantile(2) }],
        marks: marks(run),
        ..Chart::default()
    };
    Some(Panel {
        title: "Rewards of individual completions".to_owned(),
        caption: format!(
            "Over {} recorded steps. Line: median. Dark area: 25 to 75 %. Light area: 5 to 95 %.",
            run.rewards.len()
        ),
        svg: chart.svg(),
        legend: Vec::new(),
    })
}

/// Plots the step time. For a single run, it is split into phases.
fn times(runs: &[RunData]) -> Vec<Panel> {
    let [run] = runs else {
        let what = "Seconds";
        return overlaid(runs, "Step time".to_owned(), what, "step_time").into_iter().collect();
    };
    let mut chart = Chart { marks: marks(run), from_zero: true, ..Chart::default() };
    let mut legend = Vec::new();
    let mut below: Points = Vec::new();
    for (name, label) in PHASES {
        let points = points_of(&run.metrics, name);
        if points.is_empty() {
            continue;
        }
        let at = |step: f64| {
            let found = below.binary_search_by(|point| point.0.total_cmp(&step));
            found.map_or(0.0, |place| below[place].1)
        };
        let upper: Points = points.iter().map(|&(step, value)| (step, at(step) + value)).collect();
        let lower: Points = points.iter().map(|&(step, _)| (step, at(step))).collect();
        let color = legend.len();
        legend.push(Key { label: label.to_owned(), color: css_color(color) });
        if upper.len() == 1 {
            // A single step has no area, so the sums are drawn as points.
            chart.curves.push(Curve { color, points: upper.clone(), line: Vec::new() });
        } else {
            chart.bands.push(Band { color, opacity: 0.75, lower, upper: upper.clone() });
        }
        below = upper;
    }
    if chart.is_empty() {
        return Vec::new();
    }
    let caption = "Seconds, stacked by phase.".to_owned();
    vec![Panel { title: "Step time".to_owned(), caption, svg: chart.svg(), legend }]
}

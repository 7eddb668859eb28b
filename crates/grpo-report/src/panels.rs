//! Defines the charts of a report.

use std::collections::BTreeSet;

use grpo_metrics::{MetricSpec, Role};
use grpo_run::EventKind;
use serde::Serialize;

use crate::RunData;
use crate::chart::{Band, Chart, Curve, Mark, css_color};
use crate::series::{Points, points_of, smooth, span};

/// A chart with title, caption and legend.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What the metric of the chart is, if it has one of its own.
    pub(crate) meaning: String,
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
    pub(crate) meaning: String,
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

/// A chart with several metrics that each report has, in this order. Metrics are assigned to charts by
/// [`Panel`](grpo_metrics::Panel).
struct Known {
    title: &'static str,
    caption: &'static str,
    /// Whether readers expect its first metric, so that it is drawn even if it is constant.
    is_expected: bool,
    /// Whether its metrics are set rather than measured, so that curves are not smoothed.
    is_exact: bool,
}

const fn known(title: &'static str, caption: &'static str) -> Known {
    Known { title, caption, is_expected: false, is_exact: false }
}

const fn expected(title: &'static str, caption: &'static str) -> Known {
    Known { is_expected: true, ..known(title, caption) }
}

const fn exact(title: &'static str, caption: &'static str) -> Known {
    Known { is_exact: true, ..known(title, caption) }
}

/// Charts with other titles follow.
const KNOWN: [Known; 15] = [
    expected("Reward", "Mean over the completions of a step"),
    known("Supervised loss", "Mean over a step, and on held-out data"),
    expected("KL to the reference", "Nats per token"),
    expected("Entropy", "Nats per token"),
    known("Completion length", "Mean, in tokens"),
    known("Clipped tokens", "Fraction of tokens whose ratio was clipped"),
    known("Groups without signal", "Fraction of groups with equal rewards"),
    known("Truncated completions", "Fraction that reached the token limit"),
    known("Unique completions", "Fraction of distinct completions per step"),
    known("Gradient norm", "Before clipping"),
    known("External reward time", "Seconds per completion"),
    known("Loss", "Mean over the updates of a step"),
    exact("Learning rate", "After the schedule"),
    exact("KL coefficient", "β in the loss"),
    known("Reward component: NAME", "Mean over a step"),
];

/// A chart with one or more related metrics.
struct Plan {
    title: String,
    /// Index in [`KNOWN`], or its length.
    place: usize,
    caption: &'static str,
    meaning: String,
    curves: Vec<Planned>,
    band: Vec<(Role, String)>,
    layers: Vec<Planned>,
    total: Option<String>,
}

/// A metric and its label in the legend.
struct Planned {
    name: String,
    label: &'static str,
    /// Position of the metric in the table.
    rank: usize,
    /// Whether it is the chart's first metric in the table.
    is_first: bool,
    /// Whether it is drawn even if it is constant.
    is_expected: bool,
    is_exact: bool,
}

impl Plan {
    /// Assigns metrics to charts. The last ones are those with a metric of their own.
    fn all(runs: &[RunData], names: &[String]) -> (Vec<Self>, Vec<Self>) {
        let (mut shared, mut own): (Vec<Self>, Vec<Self>) = (Vec::new(), Vec::new());
        for name in names {
            let Some((rank, spec)) = spec_of(runs, name) else {
                own.push(Self::own(name, String::new()));
                continue;
            };
            let (title, role) = match spec.panel {
                grpo_metrics::Panel::Hidden => continue,
                grpo_metrics::Panel::Own => {
                    own.push(Self::own(name, spec.description()));
                    continue;
                }
                grpo_metrics::Panel::Chart(title, role) => (title, role),
            };
            let named = spec.chart(name).unwrap_or_else(|| title.to_owned());
            let index = shared.iter().position(|plan| plan.title == named).unwrap_or_else(|| {
                shared.push(Self::new(title, named));
                shared.len() - 1
            });
            let is_first = is_first(runs, title, name);
            shared[index].add(name, rank, role, is_first);
        }
        shared.sort_by_key(|plan| plan.place);
        shared.iter_mut().for_each(Self::sort);
        (shared, own)
    }

    fn new(title: &str, named: String) -> Self {
        let place = KNOWN.iter().position(|known| known.title == title).unwrap_or(KNOWN.len());
        Self {
            title: named,
            place,
            caption: KNOWN.get(place).map_or("", |known| known.caption),
            meaning: String::new(),
            curves: Vec::new(),
            band: Vec::new(),
            layers: Vec::new(),
            total: None,
        }
    }

    fn own(name: &str, meaning: String) -> Self {
        let mut plan = Self { meaning, ..Self::new("", name.to_owned()) };
        plan.add(name, 0, Role::Curve(""), true);
        plan
    }

    fn add(&mut self, name: &str, rank: usize, role: Role, is_first: bool) {
        let known = KNOWN.get(self.place);
        let planned = |label| Planned {
            name: name.to_owned(),
            label,
            rank,
            is_first,
            is_expected: is_first && known.is_some_and(|known| known.is_expected),
            is_exact: name.starts_with("eval_") || known.is_some_and(|known| known.is_exact),
        };
        match role {
            Role::Curve(label) => self.curves.push(planned(label)),
            Role::Layer(label) => self.layers.push(planned(label)),
            Role::Total => self.total = Some(name.to_owned()),
            Role::Deviation | Role::Minimum | Role::Maximum => {
                self.band.push((role, name.to_owned()));
            }
        }
    }

    /// Brings the metrics into the order of the table.
    fn sort(&mut self) {
        self.curves.sort_by_key(|planned| planned.rank);
        self.layers.sort_by_key(|planned| planned.rank);
    }

    /// Returns the metric of the band with this role.
    fn of_role(&self, role: Role) -> Option<&str> {
        self.band.iter().find(|(known, _)| *known == role).map(|(_, name)| name.as_str())
    }
}

/// Returns the declaration of a metric and its position in the table of the first run that has one.
fn spec_of(runs: &[RunData], name: &str) -> Option<(usize, &'static MetricSpec)> {
    let of_run =
        |run: &RunData| run.table.specs().enumerate().find(|(_, spec)| spec.is_named(name));
    runs.iter().find_map(of_run)
}

/// Returns whether a metric is the first curve of the chart with this title in the table of a run.
fn is_first(runs: &[RunData], title: &str, name: &str) -> bool {
    let is_curve = |spec: &&MetricSpec| matches!(spec.panel, grpo_metrics::Panel::Chart(of, Role::Curve(_)) if of == title);
    let first = |run: &RunData| run.table.specs().find(is_curve);
    runs.iter().filter_map(first).any(|spec| spec.is_named(name))
}

/// Describes a metric in plain text. Returns an empty text if it is unknown.
pub(crate) fn described(runs: &[RunData], name: &str) -> String {
    spec_of(runs, name).map_or_else(String::new, |(_, spec)| spec.description())
}

impl Panels {
    pub(crate) fn of(runs: &[RunData]) -> Self {
        let names = names(runs);
        let (shared, own) = Plan::all(runs, &names);
        let mut panels = Self::default();
        let is_stack = |plan: &&Plan| !plan.layers.is_empty() || plan.total.is_some();
        let lines = shared.iter().filter(|plan| !is_stack(plan));
        panels.main = lines.flat_map(|plan| panels_of(runs, plan)).collect();
        panels.main.extend(distribution(runs));
        panels.main.extend(shared.iter().filter(is_stack).flat_map(|plan| stacked(runs, plan)));
        panels.more = own.iter().flat_map(|plan| panels_of(runs, plan)).collect();
        if let [run] = runs {
            let is_drawn = |name: &str| {
                shared.iter().flat_map(|plan| &plan.curves).any(|c| c.is_expected && c.name == name)
            };
            let drawn = names.iter().filter(|name| !is_drawn(name));
            panels.constant = drawn.filter_map(|name| constant(run, name)).collect();
        }
        panels
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
fn panels_of(runs: &[RunData], plan: &Plan) -> Vec<Panel> {
    let [run] = runs else {
        let panel = |planned: &Planned| {
            let title = match planned.is_first {
                true => plan.title.clone(),
                false => format!("{}, {}", plan.title, planned.label),
            };
            let panel = overlaid(runs, title, plan.caption, planned)?;
            Some(Panel { meaning: plan.meaning.clone(), ..panel })
        };
        return plan.curves.iter().filter_map(panel).collect();
    };
    let mut chart = Chart { marks: marks(run), ..Chart::default() };
    let mut legend = Vec::new();
    for planned in &plan.curves {
        let points = points_of(&run.metrics, &planned.name);
        if points.is_empty() || (is_constant(&points) && !planned.is_expected) {
            continue;
        }
        let color = legend.len();
        let line = line_of(planned, &points);
        chart.curves.push(Curve { color, points, line });
        legend.push(Key { label: planned.label.to_owned(), color: css_color(color) });
    }
    if chart.is_empty() {
        return Vec::new();
    }
    let mut caption = join(plan.caption, "");
    if let Some(((lower, upper), words)) = band(run, plan) {
        chart.bands.push(Band { color: 0, opacity: 0.14, lower, upper });
        caption = join(&caption, words);
    }
    if legend.len() == 1 {
        legend.clear();
    }
    let (title, meaning) = (plan.title.clone(), plan.meaning.clone());
    vec![Panel { title, meaning, caption, svg: chart.svg(), legend }]
}

/// Returns the shaded area around the first curve, and what it is.
fn band(run: &RunData, plan: &Plan) -> Option<((Points, Points), &'static str)> {
    if let Some(std) = plan.of_role(Role::Deviation) {
        let band = deviation(run, &plan.curves.first()?.name, std)?;
        return Some((band, "Area: ± 1 standard deviation"));
    }
    let ends = (plan.of_role(Role::Minimum)?, plan.of_role(Role::Maximum)?);
    let (lower, upper) = (points_of(&run.metrics, ends.0), points_of(&run.metrics, ends.1));
    let is_whole = !lower.is_empty() && lower.len() == upper.len();
    is_whole.then_some(((lower, upper), "Area: minimum to maximum"))
}

/// Plots the same metric of several runs.
fn overlaid(runs: &[RunData], title: String, what: &str, planned: &Planned) -> Option<Panel> {
    let mut chart = Chart::default();
    let mut legend = Vec::new();
    for (color, run) in runs.iter().enumerate() {
        let points = points_of(&run.metrics, &planned.name);
        if points.is_empty() {
            continue;
        }
        let line = line_of(planned, &points);
        chart.curves.push(Curve { color, points, line });
        legend.push(Key { label: run.name.clone(), color: css_color(color) });
    }
    let first = chart.curves.first()?.points.first()?.1;
    let all = chart.curves.iter().flat_map(|curve| &curve.points);
    // If all values are equal, a chart is not informative.
    if !planned.is_expected && all.into_iter().all(|point| point.1 == first) {
        return None;
    }
    let (caption, meaning) = (join(what, ""), String::new());
    Some(Panel { title, meaning, caption, svg: chart.svg(), legend })
}

/// Returns the smoothed curve. Metrics without noise are not smoothed.
fn line_of(planned: &Planned, points: &[(f64, f64)]) -> Points {
    smooth(points, if planned.is_exact { 1 } else { span(points.len()) })
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
    let spec = run.table.spec(name);
    let is_index = spec.is_some_and(|spec| spec.unit == "index");
    (is_constant(&points) && !is_index).then(|| Constant {
        name: name.to_owned(),
        meaning: spec.map_or_else(String::new, MetricSpec::description),
        value: crate::numbers::number(points[0].1),
    })
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
        meaning: String::new(),
        caption: format!(
            "Over {} recorded steps. Line: median. Dark area: 25 to 75 %. Light area: 5 to 95 %.",
            run.rewards.len()
        ),
        svg: chart.svg(),
        legend: Vec::new(),
    })
}

/// Plots layers on top of each other. For several runs, plots their sum.
fn stacked(runs: &[RunData], plan: &Plan) -> Vec<Panel> {
    let [run] = runs else {
        let total = plan.total.iter().map(|name| Planned {
            name: name.clone(),
            label: "",
            rank: 0,
            is_first: true,
            is_expected: false,
            is_exact: false,
        });
        let panel = |total: Planned| overlaid(runs, plan.title.clone(), "Seconds", &total);
        return total.filter_map(panel).collect();
    };
    let mut chart = Chart { marks: marks(run), from_zero: true, ..Chart::default() };
    let mut legend = Vec::new();
    let mut below: Points = Vec::new();
    for Planned { name, label, .. } in &plan.layers {
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
        legend.push(Key { label: (*label).to_owned(), color: css_color(color) });
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
    let (title, meaning) = (plan.title.clone(), String::new());
    vec![Panel { title, meaning, caption, svg: chart.svg(), legend }]
}

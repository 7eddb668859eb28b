//! The charts of a comparison.

use std::collections::{BTreeMap, BTreeSet};

use grpo_data::statistics::{mean, percentile_of_sorted};

use super::data::{
    ComparedMethod, ComparisonPage, FrontChart, MetricDirection, PhaseBoundary, in_natural_order,
};
use crate::axis::Horizontal;
use crate::chart::{Band, Chart, Curve, Dot, Mark};
use crate::distributions::{BINS, shares};
use crate::figure::{Figure, SIZE};
use crate::labels::shortened;
use crate::series::{MOST_STEPS, Points, is_drawable};

/// Returns all charts that have data.
pub(super) fn figures(page: &ComparisonPage) -> Vec<Figure> {
    let mut figures: Vec<Figure> = pass_at_k(page)
        .into_iter()
        .chain(page.front.as_ref().and_then(|of| front(page, of)))
        .collect();
    let metrics = page.methods.iter().flat_map(|of| &of.dynamics).flat_map(BTreeMap::keys);
    figures.extend(in_natural_order(metrics).into_iter().filter_map(|name| dynamics(page, name)));
    let properties = page.methods.iter().flat_map(|of| of.properties.keys());
    figures
        .extend(in_natural_order(properties).into_iter().filter_map(|name| property(page, name)));
    let mut files = BTreeSet::new();
    for figure in &mut figures {
        let file = figure.file.clone();
        let mut number = 1;
        while !files.insert(figure.file.clone()) {
            number += 1;
            figure.file = format!("{file}-{number}");
        }
    }
    figures
}

fn figure(file: &str, title: &str, caption: String, chart: Chart, page: &ComparisonPage) -> Figure {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let drawn: BTreeSet<usize> = chart
        .curves
        .iter()
        .map(|curve| curve.color)
        .chain(chart.dots.iter().map(|dot| dot.color))
        .collect();
    let legend = drawn.into_iter().map(|i| (i, page.methods[i].name.clone())).collect();
    let chart = Chart { size: SIZE, ..chart };
    let file = file.chars().take(80).map(safe).collect();
    Figure { file, title: title.to_owned(), caption, chart, legend }
}

/// Opacity of the bands of `methods` methods, which cover each other.
fn opacity(methods: usize) -> f64 {
    (0.5 / methods.max(1) as f64).clamp(0.05, 0.16)
}

/// Draws Pass@k of each method.
fn pass_at_k(page: &ComparisonPage) -> Option<Figure> {
    let k_of = |name: &str| name.strip_prefix("pass_at_")?.parse::<u32>().ok().filter(|k| *k > 0);
    let of_method = |method: &ComparedMethod| {
        let values = method.metrics.iter().filter_map(|(name, value)| Some((k_of(name)?, *value)));
        let values = values.filter(|(_, value)| is_drawable(value.mean));
        values.collect::<BTreeMap<_, _>>()
    };
    let methods: Vec<_> = page.methods.iter().map(of_method).collect();
    let ks: BTreeSet<u32> = methods.iter().flat_map(BTreeMap::keys).copied().collect();
    let (first, last) = (*ks.first()?, *ks.last()?);
    if first == last {
        return None;
    }
    let x = |k: u32| f64::from(k).ln();
    let mut chart =
        Chart { titles: ["k (logarithmic)".to_owned(), String::new()], ..Chart::default() };
    for (color, values) in methods.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
        let points: Points = values.iter().map(|(k, value)| (x(*k), value.mean)).collect();
        let ends = values.iter().filter_map(|(k, value)| {
            let interval = value.interval.filter(|ends| ends.iter().all(|end| is_drawable(*end)));
            interval.map(|[low, high]| ((x(*k), low), (x(*k), high)))
        });
        let (lower, upper): (Points, Points) = ends.unzip();
        if lower.len() > 1 {
            chart.bands.push(Band { color, opacity: opacity(methods.len()), lower, upper });
        }
        let dot = |at: &(f64, f64)| Dot { color, at: *at, name: String::new() };
        chart.dots.extend(points.iter().map(dot));
        chart.curves.push(Curve { color, points: Vec::new(), line: points });
    }
    // Labels that are close to each other are left out.
    let apart = 0.06 * (x(last) - x(first));
    let mut labels: Vec<(f64, String)> = Vec::new();
    for k in ks {
        if labels.last().is_none_or(|(before, _)| x(k) - before >= apart) {
            labels.push((x(k), k.to_string()));
        }
    }
    chart.horizontal = Horizontal::Labels(labels);
    let mut caption = "Estimated probability that at least one of k completions passes.".to_owned();
    if !chart.bands.is_empty() {
        caption += &format!(" Bands: {}.", page.interval);
    }
    Some(figure("pass_at_k", "Pass@k", caption, chart, page))
}

/// Draws the methods as points, and the border of what the methods of the front dominate.
fn front(page: &ComparisonPage, of: &FrontChart) -> Option<Figure> {
    let point = |method: &ComparedMethod| {
        let [x, y] = of.objectives.each_ref().map(|name| method.metrics.get(name));
        let (x, y) = (x?.mean, y?.mean);
        (is_drawable(x) && is_drawable(y)).then_some((x, y))
    };
    let points: Vec<Option<(f64, f64)>> = page.methods.iter().map(point).collect();
    let dots = points.iter().zip(&page.methods).enumerate().filter_map(|(color, (at, method))| {
        Some(Dot { color, at: (*at)?, name: shortened(&method.name, 24) })
    });
    let dots: Vec<Dot> = dots.collect();
    if dots.is_empty() {
        return None;
    }
    let is_lower = of
        .objectives
        .each_ref()
        .map(|name| page.direction(name) == Some(MetricDirection::LowerIsBetter));
    let mut optimal: Points = of.optimal.iter().filter_map(|index| points[*index]).collect();
    optimal.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    optimal.dedup();
    let worse = |is_lower: bool, a: f64, b: f64| if is_lower { a.max(b) } else { a.min(b) };
    let mut line = Points::new();
    for pair in optimal.windows(2) {
        let corner =
            (worse(is_lower[0], pair[0].0, pair[1].0), worse(is_lower[1], pair[0].1, pair[1].1));
        line.extend([pair[0], corner]);
    }
    line.extend(optimal.last());
    let titles = [0, 1].map(|axis| {
        let better = if is_lower[axis] { "lower" } else { "higher" };
        format!("{} ({better} is better)", shortened(&of.objectives[axis], 30))
    });
    let names: Vec<&str> = of.optimal.iter().map(|i| page.methods[*i].name.as_str()).collect();
    let names = if names.len() > 4 { String::new() } else { format!(": {}", names.join(", ")) };
    let caption = format!("Means of each method. No method dominates those on the line{names}.");
    let chart = Chart {
        guides: vec![line],
        dots,
        titles,
        horizontal: Horizontal::Numbers,
        ..Chart::default()
    };
    let [x, y] = &of.objectives;
    Some(figure("pareto_front", &format!("Pareto front of {x} and {y}"), caption, chart, page))
}

/// Draws a metric during training.
fn dynamics(page: &ComparisonPage, metric: &str) -> Option<Figure> {
    let mut chart = Chart { titles: ["step".to_owned(), String::new()], ..Chart::default() };
    let mut without = Vec::new();
    for (color, method) in page.methods.iter().enumerate() {
        let runs = method.dynamics.iter().filter_map(|run| run.get(metric));
        let runs: Vec<&Vec<(u64, f64)>> = runs.filter(|run| !run.is_empty()).collect();
        let Some(Seeds { mean, low, high }) = over_seeds(&runs) else {
            continue;
        };
        if mean.is_empty() {
            without.push(method.name.as_str());
            continue;
        }
        if runs.len() > 1 && mean.len() > 1 {
            let opacity = opacity(page.methods.len());
            chart.bands.push(Band { color, opacity, lower: low, upper: high });
        }
        chart.curves.push(Curve { color, points: mean.clone(), line: mean });
    }
    if chart.curves.is_empty() {
        return None;
    }
    let mark = |phase: &PhaseBoundary| Mark {
        step: phase.step as f64,
        label: shortened(&phase.label, 40),
    };
    chart.marks = page.phases.iter().map(mark).collect();
    let mut caption = "During training.".to_owned();
    if !chart.bands.is_empty() {
        caption += " Lines are means over seeds, at the steps that all seeds have; bands reach from the lowest to the highest seed.";
    }
    if !page.phases.is_empty() {
        caption += " Dashed vertical lines are boundaries between phases.";
    }
    if !without.is_empty() {
        caption += &format!(" Without common steps and not drawn: {}.", without.join(", "));
    }
    Some(figure(
        &format!("training_{metric}"),
        &format!("{metric} during training"),
        caption,
        chart,
        page,
    ))
}

/// A curve over the seeds of a method.
struct Seeds {
    mean: Points,
    low: Points,
    high: Points,
}

/// Summarises runs at the steps at which all have a value. Returns `None` without runs.
fn over_seeds(runs: &[&Vec<(u64, f64)>]) -> Option<Seeds> {
    let by_step = |run: &&Vec<(u64, f64)>| -> BTreeMap<u64, f64> {
        let points = run.iter().copied();
        points.filter(|(step, value)| *step < MOST_STEPS && is_drawable(*value)).collect()
    };
    let runs: Vec<BTreeMap<u64, f64>> = runs.iter().map(by_step).collect();
    let mut of = Seeds { mean: Points::new(), low: Points::new(), high: Points::new() };
    for step in runs.first()?.keys() {
        let values: Option<Vec<f64>> = runs.iter().map(|run| run.get(step).copied()).collect();
        let Some(values) = values else { continue };
        let step = *step as f64;
        of.mean.push((step, mean(&values)));
        of.low.push((step, values.iter().copied().fold(f64::INFINITY, f64::min)));
        of.high.push((step, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
    }
    Some(of)
}

/// Draws the histogram of a property for each method as an outline.
fn property(page: &ComparisonPage, property: &str) -> Option<Figure> {
    let of_method = |method: &ComparedMethod| -> Vec<f64> {
        let values = method.properties.get(property).into_iter().flatten().copied();
        values.filter(|value| is_drawable(*value)).collect()
    };
    let methods: Vec<Vec<f64>> = page.methods.iter().map(of_method).collect();
    let mut all: Vec<f64> = methods.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let (low, high) = range_of_sorted(&all)?;
    let is_filled = methods.iter().filter(|values| !values.is_empty()).count() <= 4;
    let mut chart = Chart {
        from_zero: true,
        horizontal: Horizontal::Bins,
        titles: [shortened(property, 40), String::new()],
        ..Chart::default()
    };
    let width = (high - low) / BINS as f64;
    for (color, values) in methods.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
        let inside: Vec<f64> =
            values.iter().copied().filter(|value| (low..=high).contains(value)).collect();
        // Shares are those of all values, also of the ones that are not drawn.
        let scale = inside.len() as f64 / values.len() as f64;
        let mut outline: Points = vec![(low, 0.0)];
        for (bin, share) in shares(&inside, low, high).into_iter().enumerate() {
            let end = |bin: usize| (low + bin as f64 * width).min(high);
            outline.extend([(end(bin), share * scale), (end(bin + 1), share * scale)]);
        }
        outline.push((high, 0.0));
        if is_filled {
            let lower = vec![(low, 0.0), (high, 0.0)];
            let opacity = opacity(page.methods.len());
            chart.bands.push(Band { color, opacity, lower, upper: outline.clone() });
        }
        chart.curves.push(Curve { color, points: Vec::new(), line: outline });
    }
    let outside = all.iter().filter(|value| !(low..=high).contains(*value)).count();
    let mut caption = format!("Share of the outputs of each method, in {BINS} bins.");
    if outside > 0 {
        caption += &format!(" {outside} of {} values are outside of the axis.", all.len());
    }
    Some(figure(
        &format!("distribution_{property}"),
        &format!("Distribution of {property}"),
        caption,
        chart,
        page,
    ))
}

/// Returns the range of a histogram: that of all values, or without the lowest and the highest 0.5 %
/// if these would take more than half of it. It is never empty.
fn range_of_sorted(values: &[f64]) -> Option<(f64, f64)> {
    let (first, last) = (*values.first()?, *values.last()?);
    let [low, high] = [0.005, 0.995].map(|share| percentile_of_sorted(values, share));
    let (low, high) =
        if high > low && last - first > 2.0 * (high - low) { (low, high) } else { (first, last) };
    let is_flat = high - low <= 1e-12 * low.abs().max(high.abs());
    let margin = if is_flat { (0.1 * high.abs()).max(0.5) } else { 0.0 };
    Some((low - margin, high + margin))
}

//! The table of metrics, the marks in it, and the table of tests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::data::{
    BaselineTest, ComparedMethod, ComparisonPage, MetricDirection, Significance, in_natural_order,
};
use crate::numbers::{number, tabular};

/// A row of the table of metrics.
#[derive(Serialize)]
pub(super) struct MetricRow {
    metric: String,
    /// `↑` or `↓`: which values are better. Empty if unknown.
    arrow: &'static str,
    cells: Vec<Cell>,
}

/// A metric of a method, as text. Absent parts are empty.
#[derive(Serialize)]
struct Cell {
    mean: String,
    spread: String,
    difference: String,
    mark: Mark,
}

/// The mark of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Better,
    Worse,
    BetterSmall,
    WorseSmall,
    Different,
    DifferentSmall,
    NotSignificant,
    #[default]
    NotTested,
}

impl Mark {
    fn new(test: &BaselineTest) -> Self {
        match (test.significance, test.is_better) {
            (Significance::NotSignificant, _) => Self::NotSignificant,
            (Significance::Significant, Some(true)) => Self::Better,
            (Significance::Significant, Some(false)) => Self::Worse,
            (Significance::Significant, None) => Self::Different,
            (Significance::SignificantSmall, Some(true)) => Self::BetterSmall,
            (Significance::SignificantSmall, Some(false)) => Self::WorseSmall,
            (Significance::SignificantSmall, None) => Self::DifferentSmall,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Better => "▲",
            Self::Worse => "▼",
            Self::Different => "≠",
            Self::BetterSmall => "(▲)",
            Self::WorseSmall => "(▼)",
            Self::DifferentSmall => "(≠)",
            Self::NotSignificant => "≈",
            Self::NotTested => "",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Better => "significantly better than the baseline",
            Self::Worse => "significantly worse than the baseline",
            Self::Different => "significantly different from the baseline",
            Self::BetterSmall => "better, small effect",
            Self::WorseSmall => "worse, small effect",
            Self::DifferentSmall => "different, small effect",
            Self::NotSignificant => "not significant",
            Self::NotTested => "",
        }
    }

    fn tone(self) -> &'static str {
        match self {
            Self::Better | Self::BetterSmall => "good",
            Self::Worse | Self::WorseSmall => "bad",
            _ => "",
        }
    }
}

impl Serialize for Mark {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            text: &'static str,
            meaning: &'static str,
            tone: &'static str,
        }
        Fields { text: self.text(), meaning: self.meaning(), tone: self.tone() }
            .serialize(serializer)
    }
}

/// Returns a row per metric.
pub(super) fn rows(page: &ComparisonPage) -> Vec<MetricRow> {
    let names = page.methods.iter().flat_map(|method| method.metrics.keys());
    let row = |name: &str| MetricRow {
        metric: name.to_owned(),
        arrow: page.direction(name).map_or("", |direction| match direction {
            MetricDirection::HigherIsBetter => "↑",
            MetricDirection::LowerIsBetter => "↓",
        }),
        cells: (0..page.methods.len()).map(|index| cell(page, index, name)).collect(),
    };
    in_natural_order(names).into_iter().map(row).collect()
}

fn cell(page: &ComparisonPage, index: usize, metric: &str) -> Cell {
    let method = &page.methods[index];
    let Some(value) = method.metrics.get(metric).filter(|value| value.mean.is_finite()) else {
        return Cell {
            mean: "–".to_owned(),
            spread: String::new(),
            difference: String::new(),
            mark: Mark::NotTested,
        };
    };
    let spread = match (value.deviation, value.interval) {
        (Some(deviation), _) => format!("± {}", tabular(deviation)),
        (None, Some(ends)) => interval(ends),
        (None, None) => String::new(),
    };
    let baseline = page.methods[0].metrics.get(metric).filter(|_| index > 0);
    let test = method.tests.get(metric).filter(|_| index > 0);
    let difference = test.map_or_else(
        || baseline.map(|of| difference(value.mean, of.mean)),
        |test| Some(test.difference),
    );
    Cell {
        mean: tabular(value.mean),
        spread,
        difference: difference.map_or_else(String::new, change),
        mark: test.map_or(Mark::NotTested, Mark::new),
    }
}

/// Subtracts means. Means that differ by rounding errors alone are equal.
fn difference(mean: f64, baseline: f64) -> f64 {
    let difference = mean - baseline;
    if difference.abs() <= 1e-12 * baseline.abs() { 0.0 } else { difference }
}

/// Formats a difference with its sign.
fn change(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", tabular(value))
}

fn interval([low, high]: [f64; 2]) -> String {
    match low.is_finite() && high.is_finite() {
        true => format!("[{}, {}]", tabular(low), tabular(high)),
        false => String::new(),
    }
}

/// Explains what is in the table and nothing else: symbols with their meanings.
pub(super) fn legend(page: &ComparisonPage) -> Vec<(&'static str, String)> {
    let values = || page.methods.iter().flat_map(|method| method.metrics.values());
    let has_deviation = values().any(|value| value.deviation.is_some());
    let has_interval = values().any(|value| value.deviation.is_none() && value.interval.is_some());
    let marks = marks(page);
    let has = |mark: Mark| marks.contains_key(&mark);
    let name = |metric: &String| page.direction(metric);
    let directions: BTreeSet<&'static str> = page
        .methods
        .iter()
        .flat_map(|method| method.metrics.keys().filter_map(name))
        .map(|direction| match direction {
            MetricDirection::HigherIsBetter => "↑",
            MetricDirection::LowerIsBetter => "↓",
        })
        .collect();
    let has_absent = rows(page).iter().any(|row| row.cells.iter().any(|cell| cell.mean == "–"));
    let baseline = &page.methods[0].name;
    let entries = [
        (has_deviation, "±", "sample standard deviation over seeds".to_owned()),
        (has_interval, "[…]", page.interval.clone()),
        (page.methods.len() > 1, "+ −", format!("difference to {baseline}, the baseline")),
        (has(Mark::Better), "▲", format!("better: {}", page.test)),
        (has(Mark::Worse), "▼", format!("worse: {}", page.test)),
        (has(Mark::Different), "≠", format!("different: {}", page.test)),
        (has(Mark::BetterSmall), "(▲)", "better, but with a small effect".to_owned()),
        (has(Mark::WorseSmall), "(▼)", "worse, but with a small effect".to_owned()),
        (has(Mark::DifferentSmall), "(≠)", "different, but with a small effect".to_owned()),
        (has(Mark::NotSignificant), "≈", "tested, not significant".to_owned()),
        (has(Mark::NotTested) && marks.len() > 1, "no mark", "not tested".to_owned()),
        (directions.contains("↑"), "↑", "higher values are better".to_owned()),
        (directions.contains("↓"), "↓", "lower values are better".to_owned()),
        (has_absent, "–", "not available".to_owned()),
    ];
    let shown = entries.into_iter().filter(|(is_shown, _, _)| *is_shown);
    shown.map(|(_, symbol, meaning)| (symbol, meaning)).collect()
}

/// Counts the marks of a method.
pub(super) fn marks_of(method: &ComparedMethod) -> BTreeMap<Mark, usize> {
    let mut counts = BTreeMap::new();
    for name in method.metrics.keys() {
        let test = method.tests.get(name);
        let mark = test.map_or(Mark::NotTested, Mark::new);
        *counts.entry(mark).or_insert(0) += 1;
    }
    counts
}

/// Returns all marks of the table.
fn marks(page: &ComparisonPage) -> BTreeMap<Mark, usize> {
    let methods = page.methods.iter().skip(1);
    methods.flat_map(marks_of).collect()
}

/// A row of the table of tests.
#[derive(Serialize)]
pub(super) struct TestRow {
    metric: String,
    method: String,
    difference: String,
    interval: String,
    p_value: String,
    effect: String,
    mark: Mark,
}

/// Returns a row per test.
pub(super) fn tests(page: &ComparisonPage) -> Vec<TestRow> {
    let others = || page.methods.iter().skip(1);
    let names = others().flat_map(|method| method.tests.keys());
    let row = |name: &str, method: &ComparedMethod| {
        let test = method.tests.get(name)?;
        Some(TestRow {
            metric: name.to_owned(),
            method: method.name.clone(),
            difference: change(test.difference),
            interval: test.interval.map_or_else(String::new, interval),
            p_value: p_value(test.p_value),
            effect: test.effect.map_or_else(|| "–".to_owned(), number),
            mark: Mark::new(test),
        })
    };
    let names = in_natural_order(names);
    names.into_iter().flat_map(|name| others().filter_map(move |of| row(name, of))).collect()
}

fn p_value(value: f64) -> String {
    if value < 1e-4 { "< 0.0001".to_owned() } else { number(value) }
}

//! Validations of a supervised run.

use grpo_metrics::Panel;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RunData;
use crate::numbers::{fixed, number, signed};
use crate::series::{points_of, step_of};

/// The first, best and last validation of a run. They may coincide.
pub(crate) struct Validations<'a> {
    pub(crate) count: usize,
    pub(crate) first: Validation<'a>,
    /// The validation whose model was kept.
    pub(crate) kept: Validation<'a>,
    pub(crate) last: Validation<'a>,
}

/// A line of `metrics.jsonl` with a finite `eval_loss`.
#[derive(Clone, Copy)]
pub(crate) struct Validation<'a> {
    pub(crate) step: u64,
    pub(crate) loss: f64,
    line: &'a Map<String, Value>,
}

impl<'a> Validations<'a> {
    /// Collects the validations. Returns `None` if the run has none.
    pub(crate) fn of(run: &'a RunData) -> Option<Self> {
        let validation = |(i, line): (usize, &'a Map<String, Value>)| {
            let loss = line.get("eval_loss")?.as_f64().filter(|loss| loss.is_finite())?;
            Some(Validation { step: step_of(line, i), loss, line })
        };
        let all: Vec<Validation<'a>> =
            run.metrics.iter().enumerate().filter_map(validation).collect();
        let is_best = |v: &&Validation<'_>| v.line.get("best") == Some(&Value::Bool(true));
        // Older versions did not mark the best validation.
        let lowest = all.iter().copied().reduce(|a, b| if b.loss < a.loss { b } else { a })?;
        Some(Self {
            count: all.len(),
            first: *all.first()?,
            kept: all.iter().rfind(is_best).copied().unwrap_or(lowest),
            last: *all.last()?,
        })
    }
}

/// A table with column names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NumberTable {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<NumberRow>,
}

/// A table row with a name and formatted values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NumberRow {
    pub(crate) name: String,
    /// What the number is, or empty.
    pub(crate) meaning: String,
    pub(crate) cells: Vec<String>,
    /// `good`, `bad` or empty.
    pub(crate) tone: &'static str,
}

impl NumberTable {
    /// Creates a table of all validation metrics. Returns `None` if the run has no validations.
    pub(crate) fn of_validations(run: &RunData) -> Option<Self> {
        let validations = Validations::of(run)?;
        let mut columns = vec![
            ("first", validations.first),
            ("kept", validations.kept),
            ("last", validations.last),
        ];
        // Columns for the same step are only shown once.
        columns.retain(|(name, of)| *name == "kept" || of.step != validations.kept.step);
        let is_measure = |name: &&String| {
            let spec = run.table.spec(name);
            !spec.is_some_and(|spec| spec.panel == Panel::Hidden || spec.is_of_machine)
                && !points_of(&run.metrics, name).is_empty()
        };
        let rows = validations.kept.line.keys().filter(is_measure).map(|name| {
            let value = |line: &Map<String, Value>| {
                line.get(name).and_then(Value::as_f64).map_or_else(|| "–".to_owned(), number)
            };
            let cells = columns.iter().map(|(_, validation)| value(validation.line)).collect();
            NumberRow { name: name.clone(), meaning: run.table.description(name), cells, tone: "" }
        });
        let header =
            columns.iter().map(|(name, validation)| format!("{name} (step {})", validation.step));
        Some(Self { header: header.collect(), rows: rows.collect() })
    }

    /// Creates a table of the evaluations before and after training. Returns `None` if the run has
    /// not finished them.
    pub(crate) fn of_comparison(run: &RunData) -> Option<Self> {
        let comparison = run.comparison.as_ref()?;
        let rows = comparison.reward.iter().chain(&comparison.measures).map(|measure| {
            let value = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), four);
            let change = measure.before.zip(measure.after).map(|(before, after)| after - before);
            let change = match (change, measure.error) {
                (None, _) => "–".to_owned(),
                (Some(change), None) => signed(change, 4),
                (Some(change), Some(error)) => format!("{} ± {}", signed(change, 4), four(error)),
            };
            let lost = measure.diversity_lost().unwrap_or(0.0);
            NumberRow {
                name: measure.name.clone(),
                meaning: String::new(),
                cells: vec![value(measure.before), value(measure.after), change],
                tone: if lost > run.criteria.max_diversity_drop { "bad" } else { "" },
            }
        });
        let header = ["before", "after", "change"].map(str::to_owned).into();
        Some(Self { header, rows: rows.collect() })
    }
}

fn four(value: f64) -> String {
    fixed(value, 4)
}

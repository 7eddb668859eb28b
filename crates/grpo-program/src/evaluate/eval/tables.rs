//! Tables of metrics.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use grpo_eval::stats::Direction;
use grpo_task::eval::{FieldGroup, Measured, Suite};
use grpo_task::output::{four_decimals, say, table};

/// Prints a table with a column per file.
pub(super) fn show(all: &[(&PathBuf, &Suite, &Measured)]) {
    let mut names: Vec<&String> = all.iter().flat_map(|(.., of)| of.metrics.keys()).collect();
    names.sort();
    names.dedup();
    let file_names = all.iter().map(|(file, ..)| {
        let name = |file: &PathBuf| file.file_name().map(OsStr::to_os_string);
        let is_unique = all.iter().filter(|(other, ..)| name(other) == name(file)).count() < 2;
        let short = name(file).filter(|_| is_unique);
        short.unwrap_or_else(|| file.as_os_str().to_owned()).to_string_lossy().into_owned()
    });
    let header: Vec<String> = std::iter::once("metric".to_owned())
        .chain(file_names)
        .chain(["better", "unit or range"].map(str::to_owned))
        .collect();
    let rows = names.iter().map(|name| {
        let cell = |suite: &Suite, of: &Measured| {
            let shown = |value: &f64| suite.shown(name, *value);
            match (of.metrics.get(*name), of.intervals.get(*name)) {
                (Some(value), Some([low, high])) => {
                    format!("{} [{}, {}]", shown(value), shown(low), shown(high))
                }
                (Some(value), None) => shown(value),
                (None, _) => String::new(),
            }
        };
        let suite = all.iter().find(|(.., of)| of.metrics.contains_key(*name));
        let better = match suite.and_then(|(_, suite, _)| suite.direction(name)) {
            Some(Direction::HigherIsBetter) => "↑ higher",
            Some(Direction::LowerIsBetter) => "↓ lower",
            None => "",
        };
        let unit = suite.and_then(|(_, suite, _)| suite.unit(name)).unwrap_or_default();
        std::iter::once((*name).clone())
            .chain(all.iter().map(|&(_, suite, of)| cell(suite, of)))
            .chain([better, unit].map(str::to_owned))
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    say(format_args!("{}", table(header, rows, 1..=all.len())));
}

/// Prints a table with a row for each metric of a model's completions, which pass by the rule `pass`.
pub(super) fn show_accuracy(measured: &Measured, prompts: usize, pass: &str) {
    let errors = measured.standard_errors();
    let rows = metrics_in_order(measured.metrics.keys()).into_iter().map(|name| {
        let error = errors.get(name.as_str()).copied().unwrap_or(f64::NAN);
        [name.clone(), with_error(measured.metrics[name], error), meaning(name, pass)]
    });
    let header = ["metric", &format!("mean ± standard error over {prompts} prompts"), "meaning"];
    say(format_args!("{}", table(header, rows, 1..=1)));
}

/// Prints a table with a row for each value of a field.
pub(super) fn show_groups(title: Option<&str>, field: &str, groups: &[FieldGroup]) {
    let names: BTreeSet<&String> = groups.iter().flat_map(|group| group.means.keys()).collect();
    let names = metrics_in_order(names);
    let header: Vec<String> = [field.to_owned(), "prompts".to_owned()]
        .into_iter()
        .chain(names.iter().map(|name| (*name).clone()))
        .collect();
    let rows = groups.iter().map(|group| {
        let cell = |name: &&String| match group.means.get(*name) {
            Some([mean, error]) => with_error(*mean, *error),
            None => String::new(),
        };
        [group.value.clone(), group.prompts.to_string()]
            .into_iter()
            .chain(names.iter().map(cell))
            .collect::<Vec<String>>()
    });
    title.into_iter().for_each(|title| say(format_args!("{title}")));
    say(format_args!("{}", table(header, rows, 1..)));
}

/// Formats a mean with its standard error, if it has one.
fn with_error(mean: f64, error: f64) -> String {
    match error.is_finite() {
        true => format!("{} ± {}", four_decimals(mean), four_decimals(error)),
        false => four_decimals(mean),
    }
}

/// Returns those of these metrics that are means over prompts: the score, its components, Pass@k and
/// Majority@k.
fn metrics_in_order<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
    let place = |name: &str| {
        let k = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
        match name {
            "score/mean" => Some((0, 0)),
            _ if name.starts_with("rewards/") => Some((1, 0)),
            _ => k("pass_at_").map(|k| (2, k)).or_else(|| k("majority_at_").map(|k| (3, k))),
        }
    };
    let mut placed: Vec<_> =
        names.into_iter().filter_map(|name| Some((place(name)?, name))).collect();
    placed.sort();
    placed.into_iter().map(|(_, name)| name).collect()
}

/// Returns what a metric is, in words.
fn meaning(name: &str, pass: &str) -> String {
    let component = name.strip_prefix("rewards/").and_then(|name| name.strip_suffix("/mean"));
    match (component, name.strip_prefix("pass_at_"), name.strip_prefix("majority_at_")) {
        (Some(part), ..) => format!("component {part} of the reward"),
        (_, Some("1"), _) => format!("a completion passes ({pass})"),
        (_, Some(k), _) => format!("at least one of {k} completions passes"),
        (.., Some(k)) => format!("most of {k} completions agree on the right answer"),
        _ => "reward".to_owned(),
    }
}

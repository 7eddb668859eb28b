//! Metrics of the prompts whose records share the value of a field.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::Context;
use grpo_data::statistics::{mean, standard_error};
use grpo_data::{nested_field, short_text};
use serde_json::Value;

use super::records::as_text;
use super::{Generations, Measured, PromptGenerations};

/// Means over the prompts with a value of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldGroup {
    /// The value as text.
    pub value: String,
    /// Number of prompts with this value.
    pub prompts: usize,
    /// Means by the name of their metric, with their standard errors over these prompts. Undefined ones
    /// are missing, and the error of a single prompt is NaN.
    pub means: BTreeMap<String, [f64; 2]>,
}

/// Metrics that are told apart by a field. A `*` at the end stands for any ending.
const METRICS: [&str; 3] = ["score/mean", "pass_at_*", "majority_at_*"];

/// Returns the scores, Pass@k and Majority@k of the prompts with each value of a field, in ascending order
/// of the values. A dot leads into nested objects. The field is that of a prompt's first text.
///
/// # Errors
/// Returns an error if a prompt lacks the field, or if the texts have no prompts.
pub fn by_field(
    all: &Generations,
    field: &str,
    measured: &Measured,
) -> anyhow::Result<Vec<FieldGroup>> {
    anyhow::ensure!(
        all.prompts.iter().any(|of| !of.prompt.is_empty()),
        "--by {field} requires a prompt for each completion; add `prompt` to each record"
    );
    let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, prompt) in all.prompts.iter().enumerate() {
        members.entry(value_of(prompt, field)?).or_default().push(index);
    }
    let names =
        measured.metrics.keys().filter(|name| METRICS.iter().any(|of| super::fits(of, name)));
    let values: Vec<(&String, Vec<Option<f64>>)> =
        names.filter_map(|name| Some((name, measured.of_prompts(name)?))).collect();
    let group = |(value, members): (String, Vec<usize>)| {
        let mean_of = |(name, of): &(&String, Vec<Option<f64>>)| {
            let own: Vec<f64> = members.iter().filter_map(|index| of[*index]).collect();
            (!own.is_empty()).then(|| ((*name).clone(), [mean(&own), standard_error(&own)]))
        };
        let means = values.iter().filter_map(mean_of).collect();
        FieldGroup { value, prompts: members.len(), means }
    };
    let mut groups: Vec<FieldGroup> = members.into_iter().map(group).collect();
    groups.sort_by(|a, b| order(&a.value, &b.value));
    Ok(groups)
}

fn value_of(prompt: &PromptGenerations, field: &str) -> anyhow::Result<String> {
    let none = serde_json::Map::new();
    let fields = prompt.generations.first().map_or(&none, |of| &of.fields);
    let value: &Value = nested_field(fields, field).with_context(|| {
        format!(
            "--by {field}: the record of the prompt \"{}\" has no field `{field}`; it has {}",
            short_text(&prompt.prompt),
            short_text(&fields.keys().cloned().collect::<Vec<_>>().join(", "))
        )
    })?;
    Ok(as_text(value))
}

/// Orders numbers by their value, before texts.
fn order(one: &str, other: &str) -> Ordering {
    let number = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite());
    match (number(one), number(other)) {
        (Some(a), Some(b)) => a.total_cmp(&b).then_with(|| one.cmp(other)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::eval::{Columns, SuiteOptions, accuracy};

    fn all(records: Value) -> Generations {
        let records = records.as_array().unwrap().iter();
        let records: Vec<_> = records.map(|record| record.as_object().unwrap().clone()).collect();
        let columns = Columns { whole: true, ..Columns::default() };
        Generations::of_records(Path::new("r.jsonl"), &records, &columns).unwrap().0
    }

    fn groups(all: &Generations, field: &str) -> anyhow::Result<Vec<FieldGroup>> {
        let k = if all.prompts.iter().all(|of| of.generations.len() > 1) { 2 } else { 1 };
        let options = SuiteOptions { k: (1..=k).collect(), ..SuiteOptions::default() };
        by_field(all, field, &accuracy(all, &options.with_pass_for(all.are_judged())).unwrap())
    }

    #[test]
    fn prompts_count_once_in_each_group() {
        let record = |prompt: &str, level: u32, reward: f64| json!({"prompt": prompt, "completion": "x", "reward": reward, "of": {"level": level}});
        let all = all(json!([
            record("a", 10, 1.0),
            record("a", 10, 1.0),
            record("b", 9, 0.0),
            record("b", 9, 1.0),
            record("c", 10, 0.0),
            record("c", 10, 1.0),
        ]));
        let [nine, ten] = &groups(&all, "of.level").unwrap()[..] else { panic!("two levels") };
        assert_eq!((nine.value.as_str(), nine.prompts), ("9", 1));
        assert_eq!((ten.value.as_str(), ten.prompts), ("10", 2));
        // The means of the two prompts are 1 and 0.5, and their standard deviation is 0.5 / √2.
        assert_eq!(ten.means["score/mean"], [0.75, 0.25]);
        assert_eq!(ten.means["pass_at_1"], [0.75, 0.25]);
        assert_eq!(ten.means["pass_at_2"], [1.0, 0.0]);
        let [mean, error] = nine.means["score/mean"];
        assert!(mean == 0.5 && error.is_nan());
    }

    #[test]
    fn a_prompt_without_the_field_is_named() {
        let all = all(json!([
            {"prompt": "a", "completion": "x", "level": "easy"},
            {"prompt": "a", "completion": "y", "level": "easy"},
            {"prompt": "b", "completion": "x"},
            {"prompt": "b", "completion": "y"},
        ]));
        assert_eq!(
            groups(&all, "level").unwrap_err().to_string(),
            "--by level: the record of the prompt \"b\" has no field `level`; it has prompt, completion"
        );
        let texts = self::all(json!([
            {"completion": "x", "level": 1},
            {"completion": "y", "level": 1},
        ]));
        assert_eq!(
            groups(&texts, "level").unwrap_err().to_string(),
            "--by level requires a prompt for each completion; add `prompt` to each record"
        );
    }

    #[test]
    fn numbers_are_ordered_by_their_value() {
        let mut values = ["b", "10", "a", "9", "-1"];
        values.sort_by(|one, other| order(one, other));
        assert_eq!(values, ["-1", "9", "10", "a", "b"]);
    }
}

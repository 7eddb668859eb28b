//! Compares the policy before and after training. Both complete the same prompts with the same
//! random numbers.

use std::collections::BTreeSet;

use grpo_data::statistics::{CLEAR, is_clear};
use grpo_data::{Codec, Group, Prompt, Sample, counted};
use grpo_eval::{Change, RewardChange, RewardSummary};
use grpo_rewards::{Identity, Outcome, PartName};
use grpo_run::{ComparedSample, Comparison, DiversityScale, Measure};
use grpo_task::output::{four_decimals, labelled, table};
use grpo_task::task::{Measures, Tasks};
use grpo_train::{Evaluated, GroupDiversity};

/// Returns the before/after table. It shows the task's own measures if it defines any, otherwise
/// rewards and diversity.
pub(crate) fn comparison(
    tasks: &Tasks,
    codec: &Codec,
    before: Option<&Evaluated>,
    after: Option<&Evaluated>,
) -> String {
    let Some((before, after)) = before.zip(after) else {
        return "no comparison: eval.samples = 0".to_owned();
    };
    match tasks.iter().find_map(|task| task.measures(codec)) {
        Some(measures) => of_measures(&measures, before, after),
        None => of_completions(before, after),
    }
}

/// Returns the outcomes of all scored samples.
fn outcomes(evaluated: &Evaluated) -> Vec<Outcome> {
    evaluated.samples().filter_map(|sample| sample.outcome.clone()).collect()
}

fn of_measures(measures: &Measures, before: &Evaluated, after: &Evaluated) -> String {
    let Measures { samples, measure, .. } = measures;
    let of = |evaluated: &Evaluated| {
        let texts: Vec<String> = evaluated.samples().map(|s| s.text.clone()).collect();
        measure(&texts, &outcomes(evaluated))
    };
    let rows = of(before).into_iter().zip(of(after)).map(|((name, old), (_, new))| {
        let change = new - old;
        let change = if change.is_nan() { "–".to_owned() } else { format!("{change:+.4}") };
        [name.to_owned(), four_decimals(old), four_decimals(new), change]
    });
    let samples = format!("{} {samples}", before.samples().count());
    table([&samples, "before", "after", "change"], rows, 1..).to_string()
}

/// Returns the table of rewards and diversity. The same prompts and random numbers are used before
/// and after, so each change is a mean of paired differences.
fn of_completions(before: &Evaluated, after: &Evaluated) -> String {
    let group_size = after.groups.first().map_or(0, |group| group.samples.len());
    let diversity = before.diversity().zip(after.diversity());
    let [before, after] = [before, after].map(outcomes);
    let change = RewardChange::of(&before, &after, group_size);
    let [before, after] = [before, after].map(|outcomes| RewardSummary::of(&outcomes));
    let mut unclear = Vec::new();
    let mut row = |name: String, before: f64, after: f64, change: Change| {
        let Change { mean, error } = change;
        if may_be_chance(change) {
            unclear.push(name.clone());
        }
        let change = match mean.is_nan() {
            true => "–".to_owned(),
            false => format!("{mean:+.4} ± {}", four_decimals(error)),
        };
        [name, four_decimals(before), four_decimals(after), change]
    };
    let mut rows = vec![row("mean reward".to_owned(), before.reward, after.reward, change.reward)];
    for (name, value) in &before.parts {
        let after = after.parts.get(name).copied().unwrap_or(f64::NAN);
        rows.push(row(format!("mean {name}"), *value, after, change.parts[name]));
    }
    for (name, of) in DIVERSITY {
        let Some((before, after)) = &diversity else { continue };
        let mean =
            |groups: &[GroupDiversity]| groups.iter().map(of).sum::<f64>() / groups.len() as f64;
        let change = Change::of_pairs(before.iter().map(of).zip(after.iter().map(of)));
        rows.push(row(name.to_owned(), mean(before), mean(after), change));
    }
    let samples = counted(before.samples, "completion");
    let table = table([&samples, "before", "after", "change ± its error"], rows, 1..);
    match unclear.is_empty() {
        true => table.to_string(),
        false => format!(
            "{table}\nno clear change: {} (less than {CLEAR} standard errors)",
            unclear.join(", ")
        ),
    }
}

/// Returns whether a change may be due to chance. A measure that is the same for every prompt did not
/// change at all.
fn may_be_chance(Change { mean, error }: Change) -> bool {
    let is_unchanged = mean == 0.0 && error == 0.0;
    error.is_finite() && !is_unchanged && !is_clear(mean, error)
}

/// Number of prompts shown with their completions before and after training.
const SHOWN: usize = 4;

/// Returns the first completion before and after training for a few evenly spaced prompts. Runs
/// without prompts have no pairs to compare. For them, [`best_samples`] is more informative.
pub(crate) fn examples(
    tasks: &Tasks,
    codec: &Codec,
    before: &Evaluated,
    after: &Evaluated,
) -> Vec<String> {
    let shown = SHOWN.min(before.groups.len());
    (0..shown)
        .flat_map(|number| {
            let index = number * before.groups.len() / shown;
            let completion = |seen: &Evaluated| seen.groups[index].samples[0].text.clone();
            let (name, text) = match prompt_text(tasks, codec, &before.groups[index].prompt) {
                Some((name, text)) => (name, text),
                None => ("sample", (index + 1).to_string()),
            };
            let rows =
                [(name, text), ("  before", completion(before)), ("  after", completion(after))];
            rows.map(|(name, text)| labelled(name, &text))
        })
        .collect()
}

/// Returns the prompt with its display name, or `None` if it consists only of the
/// beginning-of-sequence token.
fn prompt_text(tasks: &Tasks, codec: &Codec, prompt: &Prompt) -> Option<(&'static str, String)> {
    let fields = tasks.iter().filter_map(|task| task.prompt_field());
    let mut of_task =
        fields.filter_map(|field| Some((field, prompt.fields.get(field)?.as_str()?.to_owned())));
    let text = of_task.next().unwrap_or_else(|| ("prompt", prompt.text(|ids| codec.decode(ids))));
    (!text.1.trim().is_empty()).then_some(text)
}

/// Returns whether any prompt has text besides the beginning-of-sequence token.
pub(crate) fn has_prompts(tasks: &Tasks, codec: &Codec, evaluated: &Evaluated) -> bool {
    evaluated.groups.iter().any(|group| prompt_text(tasks, codec, &group.prompt).is_some())
}

/// Number of rows in the table of best samples.
const BEST: usize = 5;

/// Returns a table of the samples with the highest rewards after training and their reward
/// components. Duplicates are listed once.
pub(crate) fn best_samples(tasks: &Tasks, codec: &Codec, after: &Evaluated) -> Option<String> {
    let best = best_of(tasks, codec, after, BEST);
    let first = best.first()?;
    let parts: Vec<String> = first.parts.keys().filter(|name| *name != "valid").cloned().collect();
    let samples = name_of_samples(tasks, codec);
    let header = ["reward".to_owned()].into_iter().chain(parts.clone());
    let header = header.chain([format!("best {samples}")]);
    let rows = best.iter().map(|sample| {
        let value = |value: Option<f64>| value.map_or("–".to_owned(), four_decimals);
        let parts = parts.iter().map(|name| value(sample.parts.get(name).copied()));
        let text = grpo_task::output::shortened(&sample.text, LONGEST_BEST);
        [value(sample.reward)].into_iter().chain(parts).chain([text]).collect::<Vec<_>>()
    });
    Some(table(header.collect::<Vec<_>>(), rows, ..=parts.len()).to_string())
}

/// Maximum width of a sample in the table, in columns. It is large because a truncated SMILES
/// string cannot be copied.
const LONGEST_BEST: usize = 120;

/// Returns the plural noun for samples, e.g. "molecules".
fn name_of_samples(tasks: &Tasks, codec: &Codec) -> &'static str {
    let measures = tasks.iter().find_map(|task| task.measures(codec));
    measures.map_or("completions", |measures| measures.samples)
}

/// Returns the samples with the highest rewards in descending order, without duplicates. If the task
/// identifies completions, they are written in their canonical form, duplicates are those with the
/// same form, and invalid ones are left out.
fn best_of(
    tasks: &Tasks,
    codec: &Codec,
    evaluated: &Evaluated,
    most: usize,
) -> Vec<ComparedSample> {
    let mut samples: Vec<(&Group, &Sample)> = all_samples(evaluated);
    samples.retain(|(_, sample)| sample.reward().is_some_and(f64::is_finite));
    samples.sort_by(|a, b| b.1.reward().partial_cmp(&a.1.reward()).expect("finite rewards"));
    let texts: Vec<&str> = samples.iter().map(|(_, sample)| sample.text.as_str()).collect();
    let forms: Vec<Option<String>> = match tasks.identify(codec) {
        Some(identify) => identify(&texts)
            .into_iter()
            .zip(texts)
            .map(|(identity, text)| match identity {
                Identity::Canonical(form) => Some(form),
                Identity::Unknown => Some(text.to_owned()),
                Identity::Invalid => None,
            })
            .collect(),
        None => texts.into_iter().map(|text| Some(text.to_owned())).collect(),
    };
    let mut seen = BTreeSet::new();
    let valid = samples.into_iter().zip(forms).filter_map(|(sample, form)| Some((sample, form?)));
    let distinct = valid.filter(|(_, form)| seen.insert(form.clone()));
    let best = distinct.take(most).map(|((group, sample), text)| ComparedSample {
        text,
        ..compared(tasks, codec, group, sample)
    });
    best.collect()
}

fn all_samples(evaluated: &Evaluated) -> Vec<(&Group, &Sample)> {
    let groups = evaluated.groups.iter();
    groups.flat_map(|group| group.samples.iter().map(move |sample| (group, sample))).collect()
}

fn compared(tasks: &Tasks, codec: &Codec, group: &Group, sample: &Sample) -> ComparedSample {
    let outcome = sample.outcome.iter();
    ComparedSample {
        prompt: prompt_text(tasks, codec, &group.prompt).map(|(_, text)| text),
        text: sample.text.clone(),
        reward: sample.reward().filter(|reward| reward.is_finite()),
        parts: outcome
            .flat_map(Outcome::parts)
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
    }
}

/// Number of samples per evaluation in a report, and number of best samples.
const RECORDED: usize = 6;
const RECORDED_BEST: usize = 12;

/// Returns the comparison in the format that reports read.
pub(crate) fn recorded(
    tasks: &Tasks,
    codec: &Codec,
    step: u32,
    before: &Evaluated,
    after: &Evaluated,
) -> Comparison {
    let group_size = after.groups.first().map_or(1, |group| group.samples.len());
    let [old, new] = [before, after].map(outcomes);
    let change = RewardChange::of(&old, &new, group_size);
    let [old, new] = [old, new].map(|outcomes| RewardSummary::of(&outcomes));
    let reward = measure("mean reward", old.reward, new.reward, Some(change.reward));
    let part = |name: &PartName, shown: &str| {
        let value = |of: &RewardSummary| of.parts.get(name).copied().unwrap_or(f64::NAN);
        measure(shown, value(&old), value(&new), change.parts.get(name).copied())
    };
    let mut measures = match tasks.iter().find_map(|task| task.measures(codec)) {
        Some(measures) => recorded_measures(&measures, before, after),
        None => {
            let parts = old.parts.keys().map(|name| part(name, &format!("mean {name}")));
            parts.chain(recorded_diversity(before, after)).collect()
        }
    };
    // A task may list the reward among its measures.
    measures.retain(|row| (row.before, row.after) != (reward.before, reward.after));
    let is_paired = has_prompts(tasks, codec, before);
    let [shown_before, shown_after] = [before, after].map(|evaluated| {
        let shown = if is_paired { of_prompts(evaluated) } else { of_ranks(evaluated) };
        shown.into_iter().map(|(group, sample)| compared(tasks, codec, group, sample)).collect()
    });
    Comparison {
        step: step.into(),
        samples: name_of_samples(tasks, codec).to_owned(),
        count: before.samples().count(),
        reward: (reward.before.is_some() || reward.after.is_some()).then_some(reward),
        parts: old.parts.keys().map(|name| part(name, name)).collect(),
        measures,
        before: shown_before,
        after: shown_after,
        best: best_of(tasks, codec, after, RECORDED_BEST),
    }
}

fn measure(name: &str, before: f64, after: f64, change: Option<Change>) -> Measure {
    let finite = |value: f64| value.is_finite().then_some(value);
    Measure {
        name: name.to_owned(),
        before: finite(before),
        after: finite(after),
        error: change.and_then(|change| finite(change.error)),
        diversity: None,
    }
}

/// Returns the measures of a task, without indented rows.
fn recorded_measures(measures: &Measures, before: &Evaluated, after: &Evaluated) -> Vec<Measure> {
    let of = |evaluated: &Evaluated| {
        let texts: Vec<String> = evaluated.samples().map(|s| s.text.clone()).collect();
        (measures.measure)(&texts, &outcomes(evaluated))
    };
    let rows = of(before).into_iter().zip(of(after));
    let rows = rows.filter(|((name, _), _)| !name.starts_with(' '));
    rows.map(|((name, old), (_, new))| {
        let is_diversity = measures.diversity.contains(&name);
        let diversity = is_diversity.then_some(DiversityScale::HigherIsDiverse);
        Measure { diversity, ..measure(name, old, new, None) }
    })
    .collect()
}

fn recorded_diversity(before: &Evaluated, after: &Evaluated) -> Vec<Measure> {
    let Some((before, after)) = before.diversity().zip(after.diversity()) else {
        return Vec::new();
    };
    let scales = [DiversityScale::LowerIsDiverse, DiversityScale::HigherIsDiverse];
    let row = |((name, of), scale): (OfGroup, DiversityScale)| {
        let mean =
            |groups: &[GroupDiversity]| groups.iter().map(of).sum::<f64>() / groups.len() as f64;
        let change = Change::of_pairs(before.iter().map(of).zip(after.iter().map(of)));
        Measure {
            diversity: Some(scale),
            ..measure(name, mean(&before), mean(&after), Some(change))
        }
    };
    DIVERSITY.into_iter().zip(scales).map(row).collect()
}

/// Returns the first completion of evenly spaced prompts.
fn of_prompts(evaluated: &Evaluated) -> Vec<(&Group, &Sample)> {
    let count = evaluated.groups.len();
    let shown = RECORDED.min(count);
    let groups = (0..shown).map(|number| &evaluated.groups[number * count / shown]);
    groups.filter_map(|group| Some((group, group.samples.first()?))).collect()
}

/// Returns samples at evenly spaced ranks between the 10th and the 90th percentile of the reward.
fn of_ranks(evaluated: &Evaluated) -> Vec<(&Group, &Sample)> {
    let mut samples = all_samples(evaluated);
    let rank = |sample: &Sample| sample.reward().unwrap_or(f64::NEG_INFINITY);
    samples.sort_by(|a, b| rank(a.1).total_cmp(&rank(b.1)));
    let last = samples.len().saturating_sub(1) as f64;
    let shown = RECORDED.min(samples.len());
    let share = |number: usize| 0.1 + 0.8 * number as f64 / (shown.max(2) - 1) as f64;
    (0..shown).map(|number| samples[(last * share(number)).round() as usize]).collect()
}

/// Name of a table row and the function that computes its value for one prompt's completions.
type OfGroup = (&'static str, fn(&GroupDiversity) -> f64);

/// Diversity metrics of a prompt's completions, averaged over prompts.
const DIVERSITY: [OfGroup; 2] = [
    ("self-BLEU within a prompt", |group| group.self_bleu),
    ("distinct-2 within a prompt", |group| group.distinct_2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_that_may_be_due_to_chance_are_listed() {
        for (mean, error, is_listed) in [
            (0.1, 0.05, true),
            (-0.1, 0.05, true),
            (0.0, 0.05, true),
            (0.3, 0.05, false),
            (0.1, 0.0, false),
            (0.0, 0.0, false),
            (0.1, f64::NAN, false),
            (f64::NAN, f64::NAN, false),
        ] {
            assert_eq!(may_be_chance(Change { mean, error }), is_listed, "{mean} ± {error}");
        }
    }
}

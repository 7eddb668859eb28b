//! A look at a policy before and after its training: completions of the same prompts with the same random numbers, and
//! what the reward says of them.

use grpo_data::{Codec, Prompt};
use grpo_eval::{Change, RewardChange, RewardSummary};
use grpo_rewards::Outcome;
use grpo_train::{Evaluated, GroupDiversity};

use crate::output::{four_decimals, labelled, table};
use crate::task::{Measures, Tasks};

/// The table before/after: what a task measures, or else the rewards and how different completions are.
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

/// The verdicts on all samples.
fn outcomes(evaluated: &Evaluated) -> Vec<Outcome> {
    evaluated.samples().filter_map(|sample| sample.outcome.clone()).collect()
}

fn of_measures(measures: &Measures, before: &Evaluated, after: &Evaluated) -> String {
    let Measures { samples, measure } = measures;
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

/// Prompts and random numbers are the same before and after, so that a change is a mean of paired differences.
fn of_completions(before: &Evaluated, after: &Evaluated) -> String {
    let group_size = after.groups.first().map_or(0, |group| group.samples.len());
    let diversity = before.diversity().zip(after.diversity());
    let [before, after] = [before, after].map(outcomes);
    let change = RewardChange::of(&before, &after, group_size);
    let [before, after] = [before, after].map(|outcomes| RewardSummary::of(&outcomes));
    let row = |name: String, before: f64, after: f64, change: Change| {
        let Change { mean, error } = change;
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
    let samples = format!("{} completions", before.samples);
    table([&samples, "before", "after", "change ± its error"], rows, 1..).to_string()
}

/// So many prompts are shown with a completion before and after.
const SHOWN: usize = 4;

/// Some prompts, spread over all of the evaluation's, with the first completion of each before and after.
pub(crate) fn examples(
    tasks: &Tasks,
    codec: &Codec,
    prompts: &[Prompt],
    before: &Evaluated,
    after: &Evaluated,
) -> Vec<String> {
    let shown = SHOWN.min(prompts.len());
    (0..shown)
        .flat_map(|number| {
            let place = number * prompts.len() / shown;
            let completion = |seen: &Evaluated| seen.groups[place].samples[0].text.clone();
            let prompt = &prompts[place];
            let of_task = tasks
                .iter()
                .filter_map(|task| task.prompt_field())
                .find_map(|field| Some((field, prompt.fields.get(field)?.as_str()?.to_owned())));
            let (name, text) = of_task.unwrap_or_else(|| match codec.decode(&prompt.ids) {
                // Drawn without a prompt.
                text if text.is_empty() => ("sample", (place + 1).to_string()),
                text => ("prompt", text),
            });
            let rows =
                [(name, text), ("  before", completion(before)), ("  after", completion(after))];
            rows.map(|(name, text)| labelled(name, &text))
        })
        .collect()
}

/// A row of the table: its name, and which number of a prompt's completions it shows.
type OfGroup = (&'static str, fn(&GroupDiversity) -> f64);

/// How different the completions of a prompt are, as a mean over prompts.
const DIVERSITY: [OfGroup; 2] = [
    ("self-BLEU within a prompt", |group| group.self_bleu),
    ("distinct-2 within a prompt", |group| group.distinct_2),
];

//! The suite `infill` of `grpo eval`: how well blanks are filled, from the output of
//! `grpo fill --json`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use grpo_data::statistics::mean;
use grpo_eval::stats::spearman_test;
use grpo_eval::{calibration_curve, expected_calibration_error};
use grpo_task::eval::{Generation, Generations, Measured, PromptGenerations, Suite, SuiteOptions};
use serde_json::Value;

use crate::BLANK;

/// Metrics of filled blanks.
pub(crate) const SUITE: Suite = Suite {
    name: "infill",
    about: "recovery of blanks, calibration, entropy, judges",
    keys: &["text", "logprobs", "judge_reward", "second_judge_reward", "iterations"],
    of_columns: &["filled"],
    of_text: None,
    of_endings: &[],
    of_model_files: &[],
    higher_is_better: &[
        "recovery",
        "recovery/*",
        "exact_match",
        "judge/mean",
        "second_judge/mean",
        "distinct_texts",
        "character_entropy",
    ],
    lower_is_better: &["calibration_error"],
    units: &[
        ("texts", "texts"),
        ("completions", "fillings"),
        ("blanks", "blanks"),
        ("perplexity", "1 or more"),
        ("judges/spearman", "-1 to 1"),
        ("character_entropy", "nats"),
        ("iterations", "passes"),
        ("score/unscored", "texts"),
        ("rewards/*", "of the reward"),
        ("*", "0 to 1"),
    ],
    has_prompts: true,
    dynamics: &["judge/mean", "character_entropy", "distinct_texts"],
    prepare: |_| (),
    measure,
};

/// Runs of blanks that are at least this long are counted together.
const LONG: usize = 8;

/// Number of bins of the calibration error.
const BINS: usize = 10;

/// A blank that was filled.
struct Blank {
    /// Number of blanks in a row of which this is one.
    run: usize,
    filled: char,
    /// The character of the original text, if it is known.
    original: Option<char>,
    /// Log-probability of the filled character, in nats.
    logprob: Option<f64>,
}

impl Blank {
    fn is_right(&self) -> Option<bool> {
        self.original.map(|original| original == self.filled)
    }
}

/// A filled text.
struct FilledText {
    blanks: Vec<Blank>,
    /// Fraction of the text that was blank.
    ratio: f64,
    judge: Option<f64>,
    second_judge: Option<f64>,
    iterations: Option<f64>,
}

fn measure(all: &Generations, options: &SuiteOptions) -> anyhow::Result<Measured> {
    options.refuse_text_options()?;
    anyhow::ensure!(
        options.references.is_none() && options.training.is_none(),
        "--references and --training are not used by the suite `infill`; remove them"
    );
    let mut texts: Vec<Vec<FilledText>> = Vec::new();
    for prompt in &all.prompts {
        let read = |of: &Generation| filled_text(prompt, of);
        texts.push(prompt.generations.iter().map(read).collect::<anyhow::Result<_>>()?);
    }
    let flat = || texts.iter().flatten();
    type Has = fn(&FilledText) -> bool;
    let optional: [(&str, Has); 4] = [
        ("judge_reward", |text| text.judge.is_some()),
        ("second_judge_reward", |text| text.second_judge.is_some()),
        ("logprobs", |text| text.blanks.iter().all(|blank| blank.logprob.is_some())),
        ("text", |text| text.blanks.iter().all(|blank| blank.original.is_some())),
    ];
    for (key, has) in optional {
        let count = flat().filter(|text| has(text)).count();
        anyhow::ensure!(
            [0, flat().count()].contains(&count),
            "only {count} of {} records have `{key}`; add it to the others, or remove it",
            flat().count()
        );
    }
    let mut measured = Measured::default();
    measured.add("texts", all.prompts.len() as f64);
    measured.add("completions", flat().count() as f64);
    measured.add("blanks", flat().map(|text| text.blanks.len()).sum::<usize>() as f64);
    let blanks: Vec<&Blank> = flat().flat_map(|text| &text.blanks).collect();
    recovery(&mut measured, &texts);
    certainty(&mut measured, &blanks)?;
    judges(&mut measured, &texts);
    measured.add("character_entropy", character_entropy(&blanks));
    let distinct = |prompt: &PromptGenerations| {
        let different: BTreeSet<&str> = prompt.texts().collect();
        different.len() as f64 / prompt.generations.len() as f64
    };
    let shares: Vec<f64> = all.prompts.iter().map(distinct).collect();
    measured.add_mean("distinct_texts", shares);
    let iterations: Option<Vec<f64>> = flat().map(|text| text.iterations).collect();
    measured.add("iterations", iterations.map(|all| mean(&all)));
    measured.add_intervals(options.seed)?;
    Ok(measured)
}

/// Reads a record: the blanked text is the prompt, and the filled one the completion.
fn filled_text(prompt: &PromptGenerations, of: &Generation) -> anyhow::Result<FilledText> {
    let blanked: Vec<char> = prompt.prompt.chars().collect();
    let filled: Vec<char> = of.text.chars().collect();
    let place = || format!("the text \"{}\"", grpo_data::short_text(&prompt.prompt));
    anyhow::ensure!(
        blanked.contains(&BLANK),
        "{} has no blank `{BLANK}`; the suite `infill` expects records of `grpo fill --json`, with `blanked` and `filled`",
        place()
    );
    let is_kept = |(blanked, filled): (&char, &char)| *blanked == BLANK || blanked == filled;
    anyhow::ensure!(
        blanked.len() == filled.len() && blanked.iter().zip(&filled).all(is_kept),
        "{} has a filled text that differs from it outside the blanks",
        place()
    );
    let original: Option<Vec<char>> = match of.fields.get("text") {
        None | Some(Value::Null) => None,
        Some(text) => {
            let text = text.as_str().unwrap_or_default();
            let text: Vec<char> = text.chars().collect();
            anyhow::ensure!(
                text.len() == blanked.len(),
                "{} has {} characters, but its original `text` has {}",
                place(),
                blanked.len(),
                text.len()
            );
            Some(text)
        }
    };
    let places: Vec<usize> = (0..blanked.len()).filter(|at| blanked[*at] == BLANK).collect();
    let logprobs = match of.fields.get("logprobs") {
        None | Some(Value::Null) => None,
        Some(values) => Some(logprobs(values, places.len()).with_context(place)?),
    };
    let runs = runs(&blanked);
    let blank = |(index, at): (usize, &usize)| Blank {
        run: runs[*at],
        filled: filled[*at],
        original: original.as_ref().map(|original| original[*at]),
        logprob: logprobs.as_ref().map(|all| all[index]),
    };
    let number = |key: &str| match of.fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let text = value.as_str().and_then(|text| text.trim().parse().ok());
            let number = value.as_f64().or(text).filter(|number: &f64| number.is_finite());
            number.map(Some).with_context(|| format!("{}: `{key}` is not a number", place()))
        }
    };
    Ok(FilledText {
        ratio: places.len() as f64 / blanked.len() as f64,
        blanks: places.iter().enumerate().map(blank).collect(),
        judge: number("judge_reward")?,
        second_judge: number("second_judge_reward")?,
        iterations: number("iterations")?,
    })
}

/// Returns the log-probability of each blank.
fn logprobs(values: &Value, blanks: usize) -> anyhow::Result<Vec<f64>> {
    let values = values.as_array().context("`logprobs` is not a list")?;
    let values: Option<Vec<f64>> =
        values.iter().map(|value| value.as_f64().filter(|value| *value <= 0.0)).collect();
    let values = values.context("`logprobs` contains a value that is not a log-probability")?;
    anyhow::ensure!(
        values.len() == blanks,
        "`logprobs` has {} values for {blanks} blanks",
        values.len()
    );
    Ok(values)
}

/// Returns the length of the run of blanks at each position, or 0.
fn runs(blanked: &[char]) -> Vec<usize> {
    let mut lengths = Vec::with_capacity(blanked.len());
    for run in blanked.chunk_by(|a, b| (*a == BLANK) == (*b == BLANK)) {
        let length = if run[0] == BLANK { run.len() } else { 0 };
        lengths.extend(std::iter::repeat_n(length, run.len()));
    }
    lengths
}

/// Adds the fraction of blanks that were filled like the original, as the mean over texts, and over
/// blanks by the number of blanks in a row and by the fraction of the text that was blank. Also adds
/// the fraction of texts without any wrong blank.
fn recovery(measured: &mut Measured, texts: &[Vec<FilledText>]) {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut each: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for group in texts {
        let (mut shares, mut exact) = (Vec::new(), Vec::new());
        for text in group {
            let right: Option<Vec<bool>> = text.blanks.iter().map(Blank::is_right).collect();
            let Some(right) = right else { continue };
            let right: Vec<f64> = right.iter().map(|right| f64::from(u8::from(*right))).collect();
            let tenth = ((text.ratio * 10.0).floor() as usize).min(9);
            let by_ratio = format!("recovery/ratio_0.{tenth}");
            for (blank, right) in text.blanks.iter().zip(&right) {
                let by_run = match blank.run {
                    LONG.. => format!("recovery/run_{LONG}+"),
                    run => format!("recovery/run_{run}"),
                };
                for name in [by_run, by_ratio.clone()] {
                    groups.entry(name).or_default().push(*right);
                }
            }
            exact.push(if right.contains(&0.0) { 0.0 } else { 1.0 });
            shares.push(mean(&right));
        }
        if !shares.is_empty() {
            each.entry("recovery").or_default().push(mean(&shares));
            each.entry("exact_match").or_default().push(mean(&exact));
        }
    }
    for (name, values) in &groups {
        measured.add(name, mean(values));
    }
    for (name, values) in each {
        match values.len() == texts.len() {
            true => measured.add_mean(name, values),
            false => measured.add(name, mean(&values)),
        }
    }
}

/// Adds how certain the model was, and whether rightly so: perplexity, and the expected calibration
/// error of the probabilities of the filled characters.
fn certainty(measured: &mut Measured, blanks: &[&Blank]) -> anyhow::Result<()> {
    let logprobs: Option<Vec<f64>> = blanks.iter().map(|blank| blank.logprob).collect();
    let Some(logprobs) = logprobs.filter(|all| !all.is_empty()) else { return Ok(()) };
    measured.add("perplexity", (-mean(&logprobs)).exp());
    let right: Option<Vec<bool>> = blanks.iter().map(|blank| blank.is_right()).collect();
    if let Some(right) = right {
        let probabilities: Vec<f64> = logprobs.iter().map(|logprob| logprob.exp()).collect();
        measured.add("mean_probability", mean(&probabilities));
        let curve = calibration_curve(&probabilities, &right, BINS)?;
        let error = expected_calibration_error(&probabilities, &right, BINS)?;
        measured.add("calibration_error", error);
        for bin in &curve {
            measured.add(&format!("calibration/observed_{:.1}", bin.from), bin.observed);
        }
    }
    Ok(())
}

/// Adds the rewards of the judges, how much they agree, and whether they prefer the original.
fn judges(measured: &mut Measured, texts: &[Vec<FilledText>]) {
    type Value = fn(&FilledText) -> Option<f64>;
    let judges: [(&str, Value); 2] =
        [("judge/mean", |text| text.judge), ("second_judge/mean", |text| text.second_judge)];
    let mut rewards = Vec::new();
    for (name, value) in judges {
        let groups: Option<Vec<Vec<f64>>> =
            texts.iter().map(|group| group.iter().map(value).collect()).collect();
        let Some(groups) = groups else { continue };
        let each: Vec<f64> = groups.iter().map(|group| mean(group)).collect();
        measured.add_mean(name, each);
        rewards.push(groups.concat());
    }
    if let [first, second] = &rewards[..] {
        measured.add("judges/spearman", spearman_test(first, second).ok().map(|of| of.statistic));
    }
}

/// Returns the entropy of the filled characters in nats. A model that fills everything with the same
/// character has 0.
fn character_entropy(blanks: &[&Blank]) -> f64 {
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    for blank in blanks {
        *counts.entry(blank.filled).or_default() += 1;
    }
    let total = blanks.len() as f64;
    let shares = counts.values().map(|count| *count as f64 / total);
    shares.map(|share| share * -share.ln()).sum()
}

//! The summary at the top of the page, which states whether the run learned and at what cost.

use grpo_data::statistics::{CLEAR, is_clear};
use grpo_run::{Comparison, Measure};
use serde::Serialize;

use crate::numbers::{capitalized, fixed, number, short, signed};
use crate::series::points_of;
use crate::success::Shift;
use crate::validations::Validations;
use crate::{Outcome, RunData, Verdict};

/// Summary of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Story {
    /// CSS class that sets the colour: `passed`, `mixed`, `failed` or `not_judged`.
    pub(crate) tone: &'static str,
    pub(crate) headline: &'static str,
    pub(crate) sentences: Vec<String>,
    pub(crate) tiles: Vec<Tile>,
}

/// A highlighted number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tile {
    pub(crate) label: String,
    pub(crate) value: String,
    /// Short note on how the number was obtained.
    pub(crate) detail: String,
    /// `good`, `bad` or empty.
    pub(crate) tone: &'static str,
}

impl Story {
    pub(crate) fn new(run: &RunData, verdict: &Verdict) -> Self {
        let (tone, headline) = verdict.tone_and_headline();
        let (sentences, tiles) = match run.is_supervised() {
            true => supervised(run),
            false => rewarded(run),
        };
        let mut sentences = sentences;
        let names = |outcome: Outcome| -> Vec<&str> {
            let criteria = verdict.criteria.iter().filter(|judged| judged.outcome == outcome);
            criteria.map(|judged| &*judged.name).collect()
        };
        let missed = names(Outcome::Failed);
        if !missed.is_empty() {
            let criteria = if missed.len() == 1 { "Missed criterion" } else { "Missed criteria" };
            sentences.push(format!("{criteria}: {}.", missed.join(", ")));
        }
        let warnings = verdict.criteria.iter().filter(|of| of.outcome == Outcome::Warning);
        sentences.extend(warnings.map(|of| format!("Warning: {}.", of.sentence)));
        Self { tone, headline, sentences, tiles }
    }
}

/// Returns sentences and tiles for a `grpo train` run.
fn rewarded(run: &RunData) -> (Vec<String>, Vec<Tile>) {
    let last = run.last_step();
    // A resumed run may have an evaluation of an earlier end.
    let comparison = run.comparison.as_ref().filter(|comparison| comparison.step == last);
    let (mut sentences, mut tiles) = (Vec::new(), Vec::new());
    let rise = Shift::of_steps(&run.metrics, "reward").ok();
    if let Some((comparison, measure)) = comparison.and_then(|c| Some((c, c.reward.as_ref()?))) {
        add_reward(comparison, measure, &mut sentences, &mut tiles);
    } else if let Some(rise) = rise {
        let change = with_error(rise.change(), Some(rise.error));
        sentences.push(format!(
            "Mean reward {} {} ({change}{}).",
            verb(rise.change()),
            rise.ends(short),
            unclear(rise.change(), Some(rise.error))
        ));
        tiles.push(Tile {
            label: "Reward".to_owned(),
            value: short(rise.last),
            detail: format!("from {}, {change}", short(rise.first)),
            tone: tone(rise.change(), rise.error),
        });
    }
    let mut price = Vec::new();
    for measure in comparison.iter().flat_map(|comparison| &comparison.measures) {
        let Some((lost, before, after)) = lost_of(measure) else { continue };
        if lost > 0.02 {
            price.push(format!(
                "{} {} from {} to {}",
                measure.name,
                verb(after - before),
                short(before),
                short(after)
            ));
        }
        tiles.push(Tile {
            label: capitalized(&measure.name),
            value: short(after),
            detail: match short(before) == short(after) {
                true => "unchanged".to_owned(),
                false => format!("from {}, {:+.0} %", short(before), -100.0 * lost),
            },
            tone: if lost > run.criteria.max_diversity_drop { "bad" } else { "" },
        });
    }
    if let Ok(valid) = Shift::of_component(&run.metrics, comparison, "valid") {
        if valid.change() < -0.005 {
            price.push(format!(
                "validity fell from {} to {}",
                short(valid.first),
                short(valid.last)
            ));
        }
        tiles.push(Tile {
            label: "Validity".to_owned(),
            value: short(valid.last),
            detail: format!("from {}", short(valid.first)),
            tone: if valid.last < run.criteria.min_validity { "bad" } else { "" },
        });
    }
    if !price.is_empty() {
        sentences.push(format!("The price: {}.", listed(&price)));
    }
    let kl = points_of(&run.metrics, "kl");
    if let Some(&(_, last)) = kl.last() {
        let highest = kl.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
        sentences
            .push(format!("The KL to the reference reached {} nats per token.", short(highest)));
        tiles.push(Tile {
            label: "KL to the reference".to_owned(),
            value: short(last),
            detail: format!("nats per token, at most {}", short(highest)),
            tone: if highest >= run.criteria.max_kl { "bad" } else { "" },
        });
    }
    (sentences, tiles)
}

fn add_reward(
    comparison: &Comparison,
    measure: &Measure,
    sentences: &mut Vec<String>,
    tiles: &mut Vec<Tile>,
) {
    let (Some(before), Some(after)) = (measure.before, measure.after) else { return };
    let change = with_error(after - before, measure.error);
    sentences.push(format!(
        "Mean reward {} from {} to {} ({change}{}) on {} {}, evaluated before and after training.",
        verb(after - before),
        short(before),
        short(after),
        unclear(after - before, measure.error),
        comparison.count,
        comparison.samples
    ));
    tiles.push(Tile {
        label: "Mean reward".to_owned(),
        value: short(after),
        detail: format!("from {}, {change}", short(before)),
        tone: tone(after - before, measure.error.unwrap_or(0.0)),
    });
}

/// Returns the fraction of diversity lost, together with the values before and after.
fn lost_of(measure: &Measure) -> Option<(f64, f64, f64)> {
    Some((measure.diversity_lost()?, measure.before?, measure.after?))
}

/// Returns sentences and tiles for a supervised run.
fn supervised(run: &RunData) -> (Vec<String>, Vec<Tile>) {
    let (mut sentences, mut tiles) = (Vec::new(), Vec::new());
    if let Some(validations) = Validations::of(run) {
        let Validations { count, first, kept, last } = validations;
        let [(first_step, first), (step, lowest), (last_step, last)] =
            [first, kept, last].map(|line| (line.step, line.loss));
        sentences.push(if count == 1 {
            format!("The only validation, after step {step}, has a loss of {}.", number(first))
        } else if step == first_step {
            format!(
                "The validation loss did not fall: the first of {count} validations, after step {step}, has the lowest loss ({}).",
                number(first)
            )
        } else {
            format!(
                "The validation loss fell from {} after step {first_step} to {} after step {step}, the lowest of {count} validations.",
                number(first), number(lowest)
            )
        });
        if last_step != step {
            sentences.push(format!(
                "The last validation, after step {last_step}, has a loss of {}. The model from step {step} was kept.",
                number(last)
            ));
        }
        tiles.push(Tile {
            label: "Lowest validation loss".to_owned(),
            value: number(lowest),
            detail: format!("from {}", number(first)),
            tone: if lowest < first { "good" } else { "" },
        });
        tiles.push(Tile {
            label: "Best step".to_owned(),
            value: step.to_string(),
            detail: format!("of {}", run.last_step()),
            tone: "",
        });
    } else {
        sentences.push("No validation has run yet.".to_owned());
    }
    if let Ok(loss) = Shift::of_steps(&run.metrics, "step_train_loss") {
        tiles.push(Tile {
            label: "Training loss".to_owned(),
            value: number(loss.last),
            detail: loss.ends(number),
            tone: "",
        });
    }
    (sentences, tiles)
}

fn verb(change: f64) -> &'static str {
    if change > 0.0 {
        "rose"
    } else if change < 0.0 {
        "fell"
    } else {
        "stayed"
    }
}

/// Formats the remark that a change may be due to chance.
fn unclear(change: f64, error: Option<f64>) -> String {
    let error = error.filter(|error| error.is_finite() && !is_clear(change, *error));
    error.map_or(String::new(), |_| format!("; no clear change: less than {CLEAR} standard errors"))
}

/// Clear changes are good or bad.
fn tone(change: f64, error: f64) -> &'static str {
    match is_clear(change, error) {
        false => "",
        true if change > 0.0 => "good",
        true => "bad",
    }
}

/// Formats a change and its error, e.g. `+0.166 ± 0.007`.
fn with_error(change: f64, error: Option<f64>) -> String {
    match error.filter(|error| error.is_finite()) {
        Some(error) => format!("{} ± {}", signed(change, 3), fixed(error, 3)),
        None => signed(change, 3),
    }
}

/// Joins words, e.g. `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

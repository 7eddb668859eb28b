//! Samples in a report: a few cards near the top of the page and a table with the completions of
//! two steps.

use std::collections::BTreeSet;

use grpo_data::Finish;
use grpo_run::{ComparedSample, CompletionRecord};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RunData;
use crate::drawing::Drawing;
use crate::numbers::{capitalized, number, short};
use crate::validations::Validations;

/// A row of cards.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gallery {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) cards: Vec<Card>,
}

/// A card with a single completion, or with two completions of the same prompt.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Card {
    pub(crate) prompt: Option<String>,
    pub(crate) sides: Vec<Side>,
}

/// A completion on a card.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Side {
    /// `before` or `after` if the card shows both, otherwise empty.
    pub(crate) when: &'static str,
    /// Drawing of the text, if it can be drawn.
    pub(crate) drawing: Option<String>,
    pub(crate) text: String,
    /// Formatted reward, or a dash.
    pub(crate) reward: String,
    pub(crate) parts: Vec<(String, String)>,
}

/// Maximum number of cards per gallery.
const CARDS: usize = 6;
/// Maximum number of cards with the best samples.
const BEST: usize = 12;
/// Maximum number of characters per text.
const LONGEST: usize = 600;

impl Gallery {
    /// Returns galleries with samples from before and after training and with the best samples. If
    /// the run has no final evaluation, the first and the last recorded step are used instead.
    pub(crate) fn all(run: &RunData) -> Vec<Self> {
        let draw = run.drawing;
        match &run.comparison {
            Some(comparison) if !comparison.before.is_empty() => {
                let name = capitalized(&comparison.samples);
                let after = format!("after step {}", comparison.step);
                Self::between(
                    &name,
                    ["before the training", &after],
                    [&comparison.before, &comparison.after],
                    &comparison.best,
                    draw,
                )
            }
            _ if run.is_supervised() => Self::of_validation(run),
            _ => Self::of_steps(run, draw),
        }
    }

    /// Returns a gallery with completions of validation prompts by the best model, next to the
    /// original texts.
    fn of_validation(run: &RunData) -> Vec<Self> {
        let Some(kept) = Validations::of(run).map(|validations| validations.kept) else {
            return Vec::new();
        };
        let text = |row: &Map<String, Value>, key: &str| {
            row.get(key).and_then(Value::as_str).map(shortened).unwrap_or_default()
        };
        let side = |when, text| Side {
            when,
            drawing: None,
            text,
            reward: String::new(),
            parts: Vec::new(),
        };
        let is_kept = |row: &&Map<String, Value>| {
            row.get("train_step").and_then(Value::as_u64) == Some(kept.step)
        };
        let rows = run.validation_samples.iter().filter(is_kept);
        let cards: Vec<Card> = rows
            .map(|row| Card {
                prompt: Some(text(row, "prompt")),
                sides: vec![
                    side("generated", text(row, "generated")),
                    side("data", text(row, "ground_truth")),
                ],
            })
            .collect();
        let title = format!("Completions after step {}", kept.step);
        let note = "From the kept model, next to the data.".to_owned();
        if cards.is_empty() { Vec::new() } else { vec![Self { title, note, cards }] }
    }

    fn of_steps(run: &RunData, draw: Option<Drawing>) -> Vec<Self> {
        let steps: Vec<_> = run.samples.iter().filter(|(_, records)| !records.is_empty()).collect();
        let Some((last_step, last)) = steps.last() else { return Vec::new() };
        let ranked = |records: &[CompletionRecord]| -> Vec<ComparedSample> {
            let mut sorted: Vec<&CompletionRecord> = records.iter().collect();
            let rank = |record: &CompletionRecord| record.reward.unwrap_or(f64::NEG_INFINITY);
            sorted.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
            let count = CARDS.min(sorted.len());
            let last = sorted.len() - 1;
            (0..count).map(|i| compared(sorted[i * last / (count - 1).max(1)])).collect()
        };
        let mut all: Vec<&CompletionRecord> =
            last.iter().filter(|record| record.reward.is_some()).collect();
        all.sort_by(|a, b| b.reward.unwrap_or(0.0).total_cmp(&a.reward.unwrap_or(0.0)));
        let mut seen = BTreeSet::new();
        all.retain(|record| seen.insert(&record.text));
        let best: Vec<_> = all.into_iter().take(BEST).map(compared).collect();
        let note = "evenly spaced from the lowest to the highest reward";
        let mut galleries: Vec<Self> = steps
            .iter()
            .map(|(step, records)| Self {
                title: format!("Completions of step {step}"),
                note: format!("{} of {}, {note}.", CARDS.min(records.len()), records.len()),
                cards: ranked(records).iter().map(|sample| card(sample, draw)).collect(),
            })
            .collect();
        galleries.push(Self::best(&format!("Best completions of step {last_step}"), &best, draw));
        galleries.retain(|gallery| !gallery.cards.is_empty());
        galleries
    }

    fn between(
        name: &str,
        [first, last]: [&str; 2],
        [before, after]: [&[ComparedSample]; 2],
        best: &[ComparedSample],
        draw: Option<Drawing>,
    ) -> Vec<Self> {
        let is_paired = before.iter().any(|sample| sample.prompt.is_some());
        let mut galleries = match is_paired {
            true => {
                let pairs = before.iter().zip(after).map(|(before, after)| Card {
                    prompt: before.prompt.as_deref().map(shortened),
                    sides: vec![side("before", before, draw), side("after", after, draw)],
                });
                vec![Self {
                    title: format!("{name} before and after"),
                    note: "Same prompts and random numbers.".to_owned(),
                    cards: pairs.collect(),
                }]
            }
            false => [(first, before), (last, after)]
                .map(|(when, samples)| Self {
                    title: format!("{name} {when}"),
                    note: "From the 10th to the 90th percentile of the reward.".to_owned(),
                    cards: samples.iter().map(|sample| card(sample, draw)).collect(),
                })
                .into(),
        };
        galleries.push(Self::best(&format!("Best {} {last}", name.to_lowercase()), best, draw));
        galleries.retain(|gallery| !gallery.cards.is_empty());
        galleries
    }

    fn best(title: &str, best: &[ComparedSample], draw: Option<Drawing>) -> Self {
        let cards: Vec<Card> = best.iter().take(BEST).map(|sample| card(sample, draw)).collect();
        Self {
            title: title.to_owned(),
            note: "Highest rewards, without duplicates.".to_owned(),
            cards,
        }
    }
}

fn compared(record: &CompletionRecord) -> ComparedSample {
    ComparedSample {
        prompt: record.prompt_text.clone().filter(|text| !text.trim().is_empty()),
        text: record.text.clone(),
        reward: record.reward,
        parts: record.parts.clone(),
    }
}

fn card(sample: &ComparedSample, draw: Option<Drawing>) -> Card {
    let prompt = sample.prompt.as_deref().map(shortened);
    Card { prompt, sides: vec![side("", sample, draw)] }
}

fn side(when: &'static str, sample: &ComparedSample, draw: Option<Drawing>) -> Side {
    Side {
        when,
        drawing: draw.and_then(|draw| draw(&sample.text)),
        text: shortened(&sample.text),
        reward: sample.reward.map_or_else(|| "–".to_owned(), short),
        // Cards only list distinguishing reward components. The table lists all of them.
        parts: sample
            .parts
            .iter()
            .filter(|(name, value)| *name != "valid" || **value != 1.0)
            .take(4)
            .map(|(name, value)| (name.clone(), short(*value)))
            .collect(),
    }
}

/// Table with the completions of the first and the last recorded step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CompletionTable {
    pub(crate) steps: Vec<u64>,
    pub(crate) parts: Vec<String>,
    pub(crate) has_prompts: bool,
    pub(crate) rows: Vec<TableRow>,
    /// Number of completions in these steps that do not fit in the table.
    pub(crate) left_out: usize,
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TableRow {
    pub(crate) step: u64,
    pub(crate) prompt: u32,
    /// Formatted reward, or the reason why there is none.
    pub(crate) reward: String,
    pub(crate) advantage: String,
    pub(crate) parts: Vec<String>,
    pub(crate) tokens: u32,
    /// Whether the completion reached the length limit.
    pub(crate) cut: bool,
    pub(crate) prompt_text: String,
    pub(crate) text: String,
    pub(crate) reason: Option<String>,
}

/// Maximum number of rows per step.
const ROWS: usize = 300;
/// Maximum number of characters per table cell.
const CELL: usize = 300;

impl CompletionTable {
    /// Creates the table. Returns `None` if the run has no recorded completions.
    pub(crate) fn new(run: &RunData) -> Option<Self> {
        let records = || run.samples.iter().flat_map(|(_, records)| records.iter().take(ROWS));
        let parts: BTreeSet<&String> = records().flat_map(|record| record.parts.keys()).collect();
        let has_prompts = records().any(|record| {
            record.prompt_text.as_deref().is_some_and(|text| !text.trim().is_empty())
        });
        let rows: Vec<TableRow> = records().map(|record| row(record, &parts)).collect();
        let all: usize = run.samples.iter().map(|(_, records)| records.len()).sum();
        (!rows.is_empty()).then(|| Self {
            steps: run.samples.iter().map(|(step, _)| *step).collect(),
            parts: parts.into_iter().cloned().collect(),
            has_prompts,
            left_out: all - rows.len(),
            rows,
        })
    }
}

fn row(record: &CompletionRecord, parts: &BTreeSet<&String>) -> TableRow {
    let part = |name: &&String| record.parts.get(*name).map_or("–".to_owned(), |v| number(*v));
    TableRow {
        step: record.step,
        prompt: record.prompt,
        reward: record.reward.map_or_else(|| record.outcome.name().to_owned(), number),
        advantage: number(record.advantage),
        parts: parts.iter().map(part).collect(),
        tokens: record.actions,
        cut: record.finish == Finish::Length,
        prompt_text: cut_at(record.prompt_text.as_deref().unwrap_or_default(), CELL),
        text: cut_at(&record.text, CELL),
        reason: record.reason.as_deref().map(shortened),
    }
}

/// Returns the beginning of a long text.
fn shortened(text: &str) -> String {
    cut_at(text, LONGEST)
}

fn cut_at(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

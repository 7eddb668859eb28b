//! What the policy wrote at the beginning, and what it writes now.

use grpo_data::Finish;
use grpo_run::CompletionRecord;
use serde::Serialize;

use crate::RunData;
use crate::numbers::number;

/// Draws a sample as an element `<svg>`; `None` for a sample that cannot be drawn.
pub type Drawing = fn(&str) -> Option<String>;

/// Completions of a step, from the worst to the best.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Samples {
    pub(crate) step: u64,
    /// Completions that were recorded of the step.
    pub(crate) recorded: usize,
    pub(crate) cards: Vec<Card>,
}

/// A completion.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Card {
    /// The text as a picture; `None` where there is none.
    pub(crate) drawing: Option<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) text: String,
    /// A number, or why there is none.
    pub(crate) reward: String,
    pub(crate) reason: Option<String>,
    pub(crate) advantage: String,
    pub(crate) parts: Vec<(String, String)>,
    /// Where it did not end by itself.
    pub(crate) cut: bool,
}

/// Completions that are shown of a step.
const CARDS: usize = 6;
/// Characters of a text that are shown.
const LONGEST: usize = 600;

impl Samples {
    /// Of the first and of the last recorded step.
    pub(crate) fn of(run: &RunData, drawing: &dyn Fn(&str) -> Option<Drawing>) -> Vec<Self> {
        let reward = run.setting("reward", "type").and_then(toml::Value::as_str);
        let draw = reward.and_then(drawing);
        run.samples
            .iter()
            .filter(|(_, records)| !records.is_empty())
            .map(|(step, records)| Self {
                step: *step,
                recorded: records.len(),
                cards: chosen(records).into_iter().map(|r| card(r, draw)).collect(),
            })
            .collect()
    }
}

/// From the best reward to the worst, at equal distances; those without a reward come last.
fn chosen(records: &[CompletionRecord]) -> Vec<&CompletionRecord> {
    let mut sorted: Vec<&CompletionRecord> = records.iter().collect();
    let rank = |record: &CompletionRecord| record.reward.unwrap_or(f64::NEG_INFINITY);
    sorted.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    let last = sorted.len() - 1;
    let count = CARDS.min(sorted.len());
    (0..count).map(|i| sorted[i * last / (count - 1).max(1)]).collect()
}

fn card(record: &CompletionRecord, draw: Option<Drawing>) -> Card {
    Card {
        drawing: draw.and_then(|draw| draw(&record.text)),
        prompt: record.prompt_text.as_deref().map(shortened),
        text: shortened(&record.text),
        reward: record.reward.map_or_else(|| record.outcome.name().to_owned(), number),
        reason: record.reason.as_deref().map(shortened),
        advantage: number(record.advantage),
        parts: record.parts.iter().map(|(name, v)| (name.clone(), number(*v))).collect(),
        cut: record.finish == Finish::Length,
    }
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

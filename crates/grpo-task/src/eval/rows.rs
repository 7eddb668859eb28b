//! Completions of a file one by one, for rewards.

use std::path::Path;

use grpo_rewards::{Identify, RewardInput};

use super::generations::{Columns, Generation, Generations, last_recorded};

/// A completion with everything that a reward reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompletionRow {
    /// The completion with the fields of its record.
    pub input: RewardInput,
    /// What tells the row apart for a reader, e.g. the name of a molecule or the prompt.
    pub label: String,
}

/// Rows of a file.
pub type CompletionRows = Box<dyn Iterator<Item = anyhow::Result<CompletionRow>>>;

/// How to read the completions of a file and to call them.
#[derive(Clone, Copy)]
pub struct RowFormat {
    /// Plural noun for the completions.
    pub holds: &'static str,
    /// Name of the column of completions in tables of scores.
    pub column: &'static str,
    /// Name of the column of labels.
    pub label: &'static str,
    /// Opens a file. The second argument is the chosen column.
    pub open: fn(&Path, Option<&str>) -> anyhow::Result<CompletionRows>,
    /// Returns why a completion is invalid.
    pub invalid: Option<fn(&str) -> Option<String>>,
    /// Tells which completions are equivalent.
    pub identify: Option<Identify>,
}

/// Any file of generated text.
pub const TEXT_ROWS: RowFormat = RowFormat {
    holds: "completions",
    column: "completion",
    label: "prompt",
    open: open_texts,
    invalid: None,
    identify: None,
};

fn open_texts(path: &Path, column: Option<&str>) -> anyhow::Result<CompletionRows> {
    let completion = column.map(str::to_owned);
    let columns = Columns { completion, whole: true, ..Columns::default() };
    let recorded = path.is_dir().then(|| last_recorded(path)).transpose()?;
    let recorded = recorded.map(|(run, step)| run.completions_path(step));
    let path = recorded.as_deref().unwrap_or(path);
    let mut rows = Vec::new();
    Generations::read_each(path, &columns, |prompt, _, generation| {
        rows.push(Ok(row(prompt.as_deref().unwrap_or_default(), generation)));
    })?;
    Ok(Box::new(rows.into_iter()))
}

/// Returns what a reward sees of a generation that was read with all keys.
pub fn row(prompt: &str, generation: Generation) -> CompletionRow {
    let Generation { text, fields, .. } = generation;
    let input = RewardInput { text, fields, prompt: prompt.to_owned(), ..RewardInput::default() };
    CompletionRow { input, label: prompt.to_owned() }
}

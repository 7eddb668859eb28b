//! What `grpo judge` reads.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Context;
use grpo_data::{regular_file, short_text};
use grpo_eval::judge::{JudgedPair, Pair, ScoredText, check_same_pairs};
use grpo_task::eval::{Columns, Generations};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What makes an answer good, unless `--criteria` says something else.
const CRITERIA: &str =
    "The better answer fits the prompt, is interesting to read, and sounds like a person wrote it.";

/// Pairs to judge.
pub(super) struct Pairs {
    pub(super) pairs: Vec<Pair>,
    /// Number of pairs of each prompt.
    pub(super) per_prompt: Vec<usize>,
}

/// Reads what makes an answer good.
pub(super) fn criteria(path: Option<&Path>) -> anyhow::Result<String> {
    let Some(path) = path else { return Ok(CRITERIA.to_owned()) };
    let text = regular_file::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        !text.trim().is_empty(),
        "--criteria {} is empty; write what makes an answer good",
        path.display()
    );
    Ok(text)
}

/// Reads answers with their prompts.
pub(super) fn answers(path: &Path, columns: &Columns) -> anyhow::Result<Generations> {
    let answers = Generations::read(path, columns)?;
    anyhow::ensure!(
        answers.prompts.iter().all(|prompt| !prompt.prompt.is_empty()),
        "{}: grpo judge needs a prompt for each answer; add the prompts, or name their key with --prompt-column",
        path.display()
    );
    Ok(answers)
}

/// Returns the first `per_prompt` answers to each prompt in both files, which must have the same
/// prompts.
pub(super) fn pairs(
    [file, other]: [&Path; 2],
    columns: &Columns,
    per_prompt: usize,
) -> anyhow::Result<Pairs> {
    let (answers, others) = (answers(file, columns)?, answers(other, columns)?);
    let only_in = |prompt: &str, one: &Path, other: &Path| {
        format!(
            "the prompt \"{}\" is in {}, but not in {}; judge answers to the same prompts",
            short_text(prompt),
            one.display(),
            other.display()
        )
    };
    let prompts: HashSet<&str> = answers.prompts.iter().map(|of| of.prompt.as_str()).collect();
    if let Some(of) = others.prompts.iter().find(|of| !prompts.contains(of.prompt.as_str())) {
        anyhow::bail!(only_in(&of.prompt, other, file));
    }
    let by_prompt: HashMap<&str, _> =
        others.prompts.iter().map(|of| (of.prompt.as_str(), of)).collect();
    let mut found = Pairs { pairs: Vec::new(), per_prompt: Vec::new() };
    for (index, of) in answers.prompts.iter().enumerate() {
        let same = by_prompt.get(of.prompt.as_str());
        let same = same.with_context(|| only_in(&of.prompt, file, other))?;
        let before = found.pairs.len();
        let both = of.texts().zip(same.texts()).take(per_prompt).enumerate();
        found.pairs.extend(both.map(|(sample, (a, b))| Pair {
            id: format!("{index}-{sample}"),
            prompt: of.prompt.clone(),
            a: a.to_owned(),
            b: b.to_owned(),
        }));
        found.per_prompt.push(found.pairs.len() - before);
    }
    Ok(found)
}

/// Reads a list of a file that `grpo judge -o` wrote.
fn results<T: DeserializeOwned>(path: &Path, key: &str, what: &str) -> anyhow::Result<Vec<T>> {
    let bytes =
        regular_file::read_data(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = serde_json::from_slice(&bytes)
        .ok()
        .and_then(|mut all: Value| serde_json::from_value(all.get_mut(key)?.take()).ok());
    found.with_context(|| {
        format!("{} has no {what}; use a file that `grpo judge -o` wrote", path.display())
    })
}

/// Reads what another judge said about the same answers.
pub(super) fn other_ratings(
    path: &Path,
    answers: &Generations,
    per_prompt: usize,
) -> anyhow::Result<Vec<ScoredText>> {
    let rated: Vec<ScoredText> = results(path, "texts", "rated texts")?;
    let own = answers.prompts.iter().flat_map(|of| {
        of.texts().take(per_prompt).map(|text| (of.prompt.as_str(), text)).collect::<Vec<_>>()
    });
    let is_same = own.eq(rated.iter().map(|of| (of.prompt.as_str(), of.text.as_str())));
    anyhow::ensure!(
        is_same,
        "--agreement-with {}: it has other answers; both judges must rate the same ones in the same order",
        path.display()
    );
    Ok(rated)
}

/// Reads what another judge said about the same pairs.
pub(super) fn other_judge(path: &Path, pairs: &[Pair]) -> anyhow::Result<Vec<JudgedPair>> {
    let judged: Vec<JudgedPair> = results(path, "pairs", "judged pairs")?;
    check_same_pairs(pairs, &judged)
        .with_context(|| format!("--agreement-with {}", path.display()))?;
    Ok(judged)
}

//! `grpo explain`: explains what moved the policy in a step of a run.

use std::collections::BTreeSet;

use anyhow::Context;
use comfy_table::Table;
use grpo_core::TokenOutcome;
use grpo_data::Codec;
use grpo_run::RunFolder;
use serde_json::Value;

use crate::args::ExplainArguments;
use crate::explanation::{Explained, Explanation, Token, Unrecorded, Wanted, meaning_of};
use crate::output::{say, table};
use crate::recorded::of_step;
use crate::task::Tasks;
use crate::train_file::TrainFile;

pub(crate) fn run(arguments: &ExplainArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let file = TrainFile::of_run(&folder, tasks)?.value;
    let step = u64::from(arguments.step);
    let records = of_step(&folder, &file, step)?;
    let lines = folder.read_metrics()?;
    let line = lines.iter().find(|line| line.get("step").and_then(Value::as_u64) == Some(step));
    // Without the initial model, ids are shown.
    let codec = tasks.codec(&file.model).filter(Codec::is_text);
    let piece = |id: u32| codec.as_ref().map(|codec| codec.decode(&[id]));
    let wanted = Wanted {
        updates: file.train.updates_per_rollout,
        prompt: arguments.prompt,
        sample: arguments.sample,
        unrecorded: unrecorded(&file)?,
    };
    let explanation = Explanation::of(step, &records, line, wanted, &piece)
        .with_context(|| format!("`{}`", folder.completions_path(step).display()))?;
    if arguments.json {
        say(format_args!("{}", serde_json::to_string_pretty(&explanation)?));
    } else {
        show(&explanation);
    }
    Ok(())
}

/// Returns the parts of the loss that are not recorded.
fn unrecorded(file: &TrainFile) -> anyhow::Result<Unrecorded> {
    let loss = file.loss.resolve()?;
    let combined = file.combined.as_ref();
    Ok(Unrecorded {
        examples: combined.is_some_and(|combined| combined.supervised_weight > 0.0),
        diversity: combined.is_some_and(|combined| combined.diversity_weight > 0.0),
        exact_kl: loss.kl.in_loss() && loss.kl.estimator.is_exact(),
        entropy_bonus: loss.entropy_bonus.is_some(),
    })
}

fn show(explanation: &Explanation) {
    say(format_args!("step {}", explanation.step));
    explanation.answer.iter().for_each(|sentence| say(format_args!("{sentence}")));
    let numbers = explanation.metrics.iter();
    let numbers = numbers.map(|(name, value)| format!(", {name} {}", number(*value)));
    say(format_args!(
        "reward {} ± {}{}",
        number(explanation.reward),
        number(explanation.reward_std),
        numbers.collect::<String>()
    ));
    for group in &explanation.groups {
        let text = group.prompt_text.as_ref().map(|text| format!("  {text:?}"));
        let rewards = match (group.constant, group.reward, group.reward_std) {
            (Some(reward), ..) => format!("all rewards are {}", number(reward)),
            (None, Some(mean), Some(std)) => format!("reward {} ± {}", number(mean), number(std)),
            _ => "no rewards".to_owned(),
        };
        say(format_args!("\nprompt {}{}  {rewards}", group.prompt, text.unwrap_or_default()));
        say(format_args!("{}", of_completions(&group.completions)));
        for completion in &group.completions {
            if let Some(tokens) = &completion.tokens {
                say(format_args!(
                    "\nprompt {}, sample {}  {:?}",
                    group.prompt, completion.sample, completion.text
                ));
                say(format_args!("{}", of_tokens(tokens)));
            }
        }
    }
    legend(explanation);
}

/// Explains the words of the tables; of the outcomes, those that occur.
fn legend(explanation: &Explanation) {
    let line = |word: &str, meaning: &str| say(format_args!("  {word:<15} {meaning}"));
    say(format_args!("\nin the tables:"));
    line("advantage", "how much better (above 0) or worse than its group the completion was");
    line("push", "how strongly the rewards made the completion likelier (above 0) or less likely");
    line("KL pull", "what the KL penalty added to that, which holds the policy near its reference");
    let completions = || explanation.groups.iter().flat_map(|group| &group.completions);
    if completions().any(|completion| completion.tokens.is_some()) {
        line(
            "log π",
            "logarithm of the probability that the policy gave the token; π_ref: the reference",
        );
        line("entropy", "how open the choice of the token was; 0: there was none");
        line(
            "∂loss/∂log π",
            "push and KL pull on the token, with the other sign: below 0 it became likelier",
        );
        line("of the rewards", "the same without the KL pull");
    }
    for fate in TokenOutcome::ALL {
        let is_there = completions().any(|completion| completion.fates.contains_key(fate.name()));
        if is_there {
            line(fate.name(), meaning_of(fate));
        }
    }
}

fn of_completions(completions: &[Explained]) -> Table {
    let parts: BTreeSet<&String> = completions.iter().flat_map(|one| one.parts.keys()).collect();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let has_bonus = completions.iter().any(|one| one.bonus.is_some());
    let mut header = words(&["sample", "completion", "reward"]);
    header.extend(has_bonus.then(|| "bonus".to_owned()));
    header.extend(parts.iter().map(|part| (*part).clone()));
    header.extend(words(&["advantage", "tokens", "push", "KL pull", "what became of it"]));
    let right = 2..header.len() - 1;
    let row = |one: &Explained| {
        let mut row = vec![one.sample.to_string(), cut(&one.text), optional(one.reward)];
        row.extend(has_bonus.then(|| optional(one.bonus)));
        row.extend(parts.iter().map(|part| optional(one.parts.get(*part).copied())));
        row.extend([
            format!("{:+.4}", one.advantage),
            one.actions.to_string(),
            signed(one.push),
            signed(one.kl_pull),
            one.why.clone(),
        ]);
        row
    };
    table(header, completions.iter().map(row), right)
}

fn of_tokens(tokens: &[Token]) -> Table {
    let header = [
        "place",
        "id",
        "token",
        "log π",
        "log π_ref",
        "entropy",
        "∂loss/∂log π",
        "of the rewards",
        "fate",
    ];
    let row = |(place, token): (usize, &Token)| {
        // A special token has no text.
        let piece = token.piece.as_ref().filter(|piece| !piece.is_empty());
        [
            place.to_string(),
            token.id.to_string(),
            piece.map_or_else(String::new, |piece| format!("{piece:?}")),
            format!("{:.4}", token.logprob),
            format!("{:.4}", token.ref_logprob),
            format!("{:.4}", token.entropy),
            signed(f64::from(token.gradient)),
            signed(f64::from(token.surrogate_gradient)),
            token.fate.clone(),
        ]
    };
    table(header, tokens.iter().enumerate().map(row), 3..8)
}

/// Formats a number with a sign; 0 without one.
fn signed(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:+.2e}") }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value.abs() < 1e-3 => format!("{value:.2e}"),
        _ => format!("{value:.4}"),
    }
}

/// Returns the beginning of a text, on one line.
fn cut(text: &str) -> String {
    const MOST: usize = 40;
    let line = text.escape_debug().to_string();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

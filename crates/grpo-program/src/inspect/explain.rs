//! `grpo explain`: explains what moved the policy in one step.

use std::collections::BTreeSet;

use anyhow::Context;
use comfy_table::Table;
use grpo_core::TokenOutcome;
use grpo_data::Codec;
use grpo_run::RunFolder;
use grpo_task::output::{say, say_data, table};
use grpo_task::task::Tasks;
use serde_json::Value;

use crate::args::ExplainArguments;
use crate::inspect::explanation::{Explained, Explanation, Token, Unrecorded, Wanted, meaning_of};
use crate::inspect::recorded::of_step;
use crate::train_file::TrainFile;

pub(crate) fn run(arguments: &ExplainArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let file = TrainFile::of_run(&folder, tasks)?.value;
    let step = u64::from(arguments.step);
    let records = of_step(&folder, &file, step)?;
    let lines = folder.read_metrics()?;
    let line = lines.iter().find(|line| line.get("step").and_then(Value::as_u64) == Some(step));
    // Token ids are shown if the initial model is not available.
    let codec = tasks.codec(&file.settings.model).filter(Codec::is_text);
    let piece = |id: u32| codec.as_ref().map(|codec| codec.decode(&[id]));
    let wanted = Wanted {
        updates: file.trainer.train.updates_per_rollout,
        prompt: arguments.prompt,
        sample: arguments.sample,
        unrecorded: unrecorded(&file)?,
    };
    let explanation = Explanation::of(step, &records, line, &wanted, &piece)
        .with_context(|| format!("`{}`", folder.completions_path(step).display()))?;
    if arguments.json {
        say_data(format_args!("{}", serde_json::to_string_pretty(&explanation)?));
    } else {
        show(&explanation, codec.as_ref().map_or(&[], |codec| codec.end_ids()));
    }
    Ok(())
}

/// Returns the loss terms without recorded gradients.
fn unrecorded(file: &TrainFile) -> anyhow::Result<Unrecorded> {
    let loss = file.trainer.loss.resolve()?;
    let has_exact_kl = loss.kl.in_loss() && loss.kl.estimator.is_exact();
    let of_loss = [
        (has_exact_kl, "exact KL penalty (loss.kl_estimator = \"exact\")"),
        (loss.entropy_bonus.is_some(), "entropy bonus (loss.entropy_bonus)"),
    ];
    let of_loss = of_loss.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name);
    Ok(Unrecorded(of_loss.chain(file.extensions.pulls()).collect()))
}

fn show(explanation: &Explanation, end_ids: &[u32]) {
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
            if let Some(info) = &completion.info {
                say(format_args!("info of sample {}: {info}", completion.sample));
            }
        }
        for completion in &group.completions {
            if let Some(tokens) = &completion.tokens {
                say(format_args!(
                    "\nprompt {}, sample {}  {:?}",
                    group.prompt, completion.sample, completion.text
                ));
                say(format_args!("{}", of_tokens(tokens, end_ids)));
            }
        }
    }
    legend(explanation);
}

/// Prints a legend for the tables, limited to the outcomes that occur.
fn legend(explanation: &Explanation) {
    let line = |word: &str, meaning: &str| say(format_args!("  {word:<15} {meaning}"));
    say(format_args!("\nColumns:"));
    line("advantage", "how much better (above 0) or worse than its group the completion is");
    line("push", "how strongly the rewards make the completion more (above 0) or less likely");
    line(
        "KL pull",
        "the contribution of the KL penalty, which keeps the policy near its reference; 0 if the penalty is part of the advantage",
    );
    let completions = || explanation.groups.iter().flat_map(|group| &group.completions);
    if completions().any(|completion| completion.tokens.is_some()) {
        line("log π", "log-probability of the token under the policy; π_ref: the reference policy");
        line(
            "entropy",
            "entropy of the distribution from which the token was sampled; 0: no choice",
        );
        line("∂loss/∂log π", "gradient of the loss; below 0, the token becomes more likely");
        line("rewards only", "the same without the KL penalty");
        line(
            "on the logit",
            "∂loss/∂log π · (1 − π): the effective gradient, close to 0 for an almost certain token",
        );
        line(
            "certain",
            "the token has a probability of 0.999 or more, so the step hardly changes it",
        );
    }
    for outcome in TokenOutcome::ALL.into_iter().filter(|outcome| *outcome != TokenOutcome::Moved) {
        let is_there =
            completions().any(|completion| completion.outcomes.contains_key(outcome.name()));
        if is_there {
            line(outcome.name(), meaning_of(outcome));
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
    header.extend(words(&["advantage", "tokens", "push", "KL pull", "effect"]));
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

fn of_tokens(tokens: &[Token], end_ids: &[u32]) -> Table {
    let mut header: Vec<String> = ["position", "id", "token"].map(str::to_owned).to_vec();
    header.extend(SHOWN.iter().map(|(_, title)| (*title).to_owned()));
    // Further numbers of the trace have their own names.
    let is_further = |name: &&String| SHOWN.iter().all(|(shown, _)| shown != name);
    let further: Vec<&String> =
        tokens.first().iter().flat_map(|token| token.numbers.keys()).filter(is_further).collect();
    header.extend(further.iter().map(|name| (*name).clone()));
    header.extend(["on the logit", "effect"].map(str::to_owned));
    let right = 3..header.len() - 1;
    let row = |(position, token): (usize, &Token)| {
        let piece = token.piece.as_ref().map(|piece| match piece.as_str() {
            // Special tokens decode to an empty string.
            "" if end_ids.contains(&token.id) => "(end)".to_owned(),
            "" => "(special)".to_owned(),
            piece => format!("{piece:?}"),
        });
        let mut row = vec![position.to_string(), token.id.to_string(), piece.unwrap_or_default()];
        row.extend(SHOWN.iter().map(|(name, _)| match name.ends_with("gradient") {
            true => signed(token.number(name).into()),
            false => format!("{:.4}", token.number(name)),
        }));
        row.extend(further.iter().map(|name| format!("{:.4}", token.number(name))));
        row.extend([signed(on_the_logit(token)), effect(token)]);
        row
    };
    table(header, tokens.iter().enumerate().map(row), right)
}

/// Numbers per token with their titles.
const SHOWN: [(&str, &str); 5] = [
    ("logprob", "log π"),
    ("ref_logprob", "log π_ref"),
    ("entropy", "entropy"),
    ("gradient", "∂loss/∂log π"),
    ("surrogate_gradient", "rewards only"),
];

/// Returns the gradient of the loss with respect to the token's own logit. Through the softmax,
/// this is the gradient with respect to its log-probability times 1 − π.
fn on_the_logit(token: &Token) -> f64 {
    f64::from(token.number("gradient")) * -f64::from(token.number("logprob")).exp_m1()
}

/// Describes the effect of the step on a token in one or two words.
fn effect(token: &Token) -> String {
    match token.outcome.as_str() {
        outcome if outcome != TokenOutcome::Moved.name() => outcome.to_owned(),
        _ if token.number("logprob") > ALMOST_CERTAIN => "certain".to_owned(),
        _ if token.number("gradient") < 0.0 => "likelier".to_owned(),
        _ if token.number("gradient") > 0.0 => "less likely".to_owned(),
        outcome => outcome.to_owned(),
    }
}

/// Log-probability above which a token is almost certain to be sampled: ln 0.999.
const ALMOST_CERTAIN: f32 = -0.001;

/// Formats a number with its sign. Zero has none.
fn signed(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:+.2e}") }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        // E.g. the standard deviation of a single completion.
        _ if value.is_nan() => "–".to_owned(),
        _ if value.abs() < 1e-3 => format!("{value:.2e}"),
        _ => format!("{value:.4}"),
    }
}

/// Returns the beginning of a text on a single line.
fn cut(text: &str) -> String {
    const MOST: usize = 40;
    let line = text.escape_debug().to_string();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(logprob: f32, gradient: f32, outcome: &str) -> Token {
        let outcome = outcome.to_owned();
        let (id, piece) = (1, Some("C".to_owned()));
        let numbers = [("logprob", logprob), ("gradient", gradient)];
        let numbers = numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Token { id, piece, numbers, outcome }
    }

    #[test]
    fn a_certain_token_is_not_called_moved() {
        for (logprob, gradient, outcome, expected) in [
            (-0.5, -1e-4, "moved", "likelier"),
            (-0.5, 1e-4, "moved", "less likely"),
            (-0.0005, -1e-4, "moved", "certain"),
            (-0.0005, 0.0, "clipped", "clipped"),
            (-0.5, 1e-4, "moved+clipped", "moved+clipped"),
        ] {
            assert_eq!(effect(&token(logprob, gradient, outcome)), expected, "{logprob} {outcome}");
        }
        // At a probability of 0.5, half of the gradient reaches the logit.
        let half = on_the_logit(&token(0.5f32.ln(), -2.0, "moved"));
        assert!((half + 1.0).abs() < 1e-6, "{half}");
        assert_eq!(number(f64::NAN), "–");
    }
}

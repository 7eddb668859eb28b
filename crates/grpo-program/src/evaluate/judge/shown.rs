//! What `grpo judge` prints.

use std::collections::HashSet;

use grpo_eval::judge::{JudgedPair, PairwiseSummary, ScoreSummary};
use grpo_eval::stats::Estimate;
use grpo_servers::Usage;
use grpo_task::output::{four_decimals, say};

/// Returns whether no prompt has two judged pairs, which the sign test assumes.
pub(super) fn is_one_per_prompt(judged: &[JudgedPair]) -> bool {
    let mut prompts = HashSet::new();
    let mut judged = judged.iter().filter(|judged| judged.outcome().is_some());
    judged.all(|judged| prompts.insert(judged.pair.prompt.as_str()))
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), four_decimals)
}

fn interval(estimate: Option<&Estimate>) -> String {
    let shown = |of: &Estimate| format!(" [{}, {}]", four_decimals(of.low), four_decimals(of.high));
    estimate.map_or(String::new(), shown)
}

pub(super) fn show_pairs(of: &PairwiseSummary, is_one_per_prompt: bool) {
    say(format_args!(
        "pairs        {}: {} won, {} tied, {} lost; {} answers unparsable, {} truncated, {} missing",
        of.pairs, of.wins, of.ties, of.losses, of.unparsable, of.truncated, of.unanswered
    ));
    say(format_args!(
        "win rate     {}{}, sign test p = {}",
        number(of.win_rate),
        interval(of.interval.as_ref()),
        number(of.p_value.filter(|_| is_one_per_prompt))
    ));
    say(format_args!(
        "order        agreement {}, kappa {}; the first response won both times in {}, the second in {}",
        number(of.orders.agreement),
        number(of.orders.kappa),
        number(of.first_position),
        number(of.second_position)
    ));
}

pub(super) fn show_scores(of: &ScoreSummary) {
    say(format_args!(
        "score        {}{} over {} of {} texts; {} answers unparsable, {} truncated, {} missing",
        number(of.mean),
        interval(of.interval.as_ref()),
        of.scored,
        of.texts,
        of.unparsable,
        of.truncated,
        of.unanswered
    ));
}

/// Prints how many answers per prompt were judged, if some prompts have fewer than asked for.
pub(super) fn show_per_prompt(counts: &[usize], per_prompt: usize) {
    let fewer = counts.iter().filter(|count| **count < per_prompt).count();
    let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else { return };
    if fewer > 0 {
        say(format_args!(
            "answers      {least} to {most} per prompt; fewer than --per-prompt {per_prompt} for {fewer} of {} prompts",
            counts.len()
        ));
    }
}

pub(super) fn show_usage(usage: &Usage, cost: Option<f64>) {
    let at_least = if usage.uncounted_answers > 0 { "at least " } else { "" };
    say(format_args!(
        "requests     {} ({} retried, {} answers from the cache), {at_least}{} + {} tokens{}",
        usage.requests,
        usage.retries,
        usage.cache_hits,
        usage.prompt_tokens,
        usage.completion_tokens,
        cost.map_or(String::new(), |cost| format!(", cost {at_least}{cost:.4}"))
    ));
}

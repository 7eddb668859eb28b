//! Uses the files of a run to explain what moved the policy in a step.

use std::collections::BTreeMap;

use anyhow::Context;
use grpo_core::{MeanAndStd, TokenOutcome};
use grpo_data::Finish;
use grpo_run::{CompletionRecord, RecordedOutcome};
use serde::Serialize;
use serde_json::{Map, Value};

/// Explanation of a step.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) step: u64,
    /// Sentences about what moved the policy. If nothing did or the loss is 0, the first sentence
    /// says so.
    pub(crate) answer: Vec<String>,
    /// Mean and sample standard deviation of the rewards.
    pub(crate) reward: f64,
    pub(crate) reward_std: f64,
    /// Metrics of the step from metrics.jsonl.
    pub(crate) metrics: BTreeMap<&'static str, f64>,
    /// Total number of groups and number of groups with equal rewards.
    pub(crate) group_count: usize,
    pub(crate) constant_groups: usize,
    /// Number of tokens and of token outcomes. Each token counts once per update.
    pub(crate) tokens: u64,
    pub(crate) updates: u32,
    pub(crate) outcomes: OutcomeCounts,
    /// Explanations of the requested groups.
    pub(crate) groups: Vec<Group>,
}

/// Explanation of the completions of one prompt.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) prompt: u32,
    pub(crate) prompt_text: Option<String>,
    /// Mean and sample standard deviation of the rewards, or `None` if no completion has one.
    pub(crate) reward: Option<f64>,
    pub(crate) reward_std: Option<f64>,
    /// The reward of every completion, if all are equal.
    pub(crate) constant: Option<f64>,
    pub(crate) completions: Vec<Explained>,
}

/// Explanation of a completion.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    pub(crate) sample: u32,
    pub(crate) text: String,
    pub(crate) reward: Option<f64>,
    /// Bonus added to the reward before computing advantages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bonus: Option<f64>,
    pub(crate) parts: BTreeMap<String, f64>,
    pub(crate) advantage: f64,
    pub(crate) actions: u32,
    pub(crate) finish: Finish,
    /// −Σ ∂surrogate/∂log π over all tokens. Positive if the rewards made the completion more
    /// likely.
    pub(crate) push: f64,
    /// −Σ ∂penalty/∂log π over all tokens, i.e. the contribution of the KL penalty.
    pub(crate) kl_pull: f64,
    pub(crate) outcomes: OutcomeCounts,
    /// Explanation in words.
    pub(crate) why: String,
    /// What an external reward said about the completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) info: Option<String>,
    /// Explanation of each token, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<Vec<Token>>,
}

/// Explanation of a token.
#[derive(Debug, Serialize)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// Decoded text, if a tokenizer is available.
    pub(crate) piece: Option<String>,
    /// Its recorded numbers by name, in the singular: `logprob`, `ref_logprob`, `entropy`, `gradient`,
    /// `surrogate_gradient` and what else was traced.
    #[serde(flatten)]
    pub(crate) numbers: BTreeMap<String, f32>,
    pub(crate) outcome: String,
}

impl Token {
    /// Returns the number with this name in the singular. Every record has those that are asked for.
    pub(crate) fn number(&self, name: &str) -> f32 {
        self.numbers.get(name).copied().unwrap_or(f32::NAN)
    }
}

/// Returns the name of a single number in a column.
fn singular(column: &str) -> String {
    match column.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => column.strip_suffix('s').unwrap_or(column).to_owned(),
    }
}

/// Number of tokens per outcome. Outcomes that do not occur are omitted.
pub(crate) type OutcomeCounts = BTreeMap<&'static str, u64>;

/// Selects what to explain.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Number of policy updates per step.
    pub(crate) updates: u32,
    /// Prompt whose tokens are explained.
    pub(crate) prompt: Option<u32>,
    pub(crate) sample: Option<u32>,
    /// Loss terms without recorded gradients.
    pub(crate) unrecorded: Unrecorded,
}

/// What else changes the policy. Its gradients are not recorded, e.g. because they depend on more than
/// the log-probability of the sampled token.
#[derive(Clone, Debug)]
pub(crate) struct Unrecorded(pub(crate) Vec<&'static str>);

impl Unrecorded {
    fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|name| {
            format!("The {name} also changes the policy; these numbers do not include it.")
        })
    }
}

/// Decodes a single token if a tokenizer is available.
pub(crate) type Piece<'a> = &'a dyn Fn(u32) -> Option<String>;

impl Explanation {
    /// Explains a step. `records` are its completions and `line` is its line in `metrics.jsonl`.
    ///
    /// # Errors
    /// Returns an error if a record contains an unknown outcome.
    pub(crate) fn of(
        step: u64,
        records: &[CompletionRecord],
        line: Option<&Map<String, Value>>,
        wanted: &Wanted,
        piece: Piece<'_>,
    ) -> anyhow::Result<Self> {
        let mut groups: Vec<Group> = Vec::new();
        for of_group in records.chunk_by(|a, b| a.prompt == b.prompt) {
            groups.push(Group::of(of_group, wanted, piece)?);
        }
        let rewards: Vec<f64> = records.iter().filter_map(|record| record.reward).collect();
        let reward = MeanAndStd::of(&rewards);
        let mut outcomes = OutcomeCounts::new();
        for completion in groups.iter().flat_map(|group| &group.completions) {
            for (outcome, count) in &completion.outcomes {
                *outcomes.entry(outcome).or_default() += count;
            }
        }
        let tokens = records.iter().map(|record| u64::from(record.actions)).sum::<u64>();
        let mut explanation = Self {
            step,
            answer: Vec::new(),
            reward: reward.mean,
            reward_std: reward.std,
            metrics: METRICS
                .into_iter()
                .filter_map(|name| Some((name, line?.get(name)?.as_f64()?)))
                .collect(),
            group_count: groups.len(),
            constant_groups: groups.iter().filter(|group| group.constant.is_some()).count(),
            tokens,
            updates: wanted.updates,
            outcomes,
            groups,
        };
        explanation.answer = explanation.answer(&wanted.unrecorded);
        explanation.keep(wanted)?;
        Ok(explanation)
    }

    /// Removes groups and completions that were not requested.
    fn keep(&mut self, wanted: &Wanted) -> anyhow::Result<()> {
        let Some(prompt) = wanted.prompt else { return Ok(()) };
        let last = self.groups.last().map_or(0, |group| group.prompt);
        self.groups.retain(|group| group.prompt == prompt);
        let group = self.groups.first_mut().with_context(|| {
            format!("--prompt {prompt} is out of range; step {} has prompts 0 to {last}", self.step)
        })?;
        let Some(sample) = wanted.sample else { return Ok(()) };
        let last = group.completions.last().map_or(0, |completion| completion.sample);
        group.completions.retain(|completion| completion.sample == sample);
        anyhow::ensure!(
            !group.completions.is_empty(),
            "--sample {sample} is out of range; prompt {prompt} of step {} has samples 0 to {last}",
            self.step
        );
        Ok(())
    }

    fn answer(&self, unrecorded: &Unrecorded) -> Vec<String> {
        let moved = self.count(TokenOutcome::Moved);
        let all: u64 = self.outcomes.values().sum();
        let metric = |name: &str| self.metrics.get(name).copied();
        let mut answer = Vec::new();
        if metric("learning_rate") == Some(0.0) {
            answer.push(
                "The learning rate of the step is 0: gradients were computed, but the weights did not change."
                    .to_owned(),
            );
        }
        if moved == 0 {
            answer.push(format!("The rewards did not move any token: {}.", self.standstill(all)));
            let is_pulled = self.completions().any(|completion| completion.kl_pull != 0.0);
            match (is_pulled, unrecorded.0.is_empty()) {
                (true, true) => answer.push("Only the KL penalty changed the policy.".to_owned()),
                (true, false) => answer.push("The KL penalty changed the policy.".to_owned()),
                (false, true) => answer.push("There was no KL penalty either: the loss and its gradient with respect to every token are 0.".to_owned()),
                (false, false) => {}
            }
            answer.extend(unrecorded.sentences());
            return answer;
        }
        if let Some(loss) = metric("loss").filter(|loss| loss.abs() < NO_LOSS) {
            answer.push(format!(
                "The loss is 0 ({loss:.1e}), but the policy changed: while every ratio is 1, the advantages of a group sum to 0 and so does the loss, but not its gradient (grad_norm {:.4}). Track the reward, not the loss.",
                metric("grad_norm").unwrap_or(f64::NAN)
            ));
        }
        let often = if self.updates > 1 {
            format!(" (each counted in {} updates)", self.updates)
        } else {
            String::new()
        };
        let rest = words_of_rest(&self.outcomes, None);
        let rest = if rest.is_empty() { rest } else { format!("; {rest}") };
        answer.push(format!(
            "{moved} of {all} tokens{often} {} moved by the rewards{rest}.",
            if moved == 1 { "was" } else { "were" }
        ));
        if self.constant_groups > 0 {
            answer.push(format!(
                "In {} of {} groups, all rewards are equal.",
                self.constant_groups, self.group_count
            ));
        }
        answer.extend(unrecorded.sentences());
        answer
    }

    /// Explains why the rewards did not move any token.
    fn standstill(&self, all: u64) -> String {
        if all == 0 {
            return "no completion of the step has tokens".to_owned();
        }
        if self.count(TokenOutcome::NotScored) == all {
            return "the reward abstained or failed for every completion".to_owned();
        }
        if self.count(TokenOutcome::ZeroAdvantage) == all
            && self.constant_groups == self.group_count
        {
            let mut constants = self.groups.iter().filter_map(|group| group.constant);
            let first = constants.next().unwrap_or(f64::NAN);
            return match constants.all(|other| other == first) {
                true if self.group_count == 1 => format!("all rewards are {first}"),
                true => format!("in all {} groups, all rewards are {first}", self.group_count),
                false => format!("in all {} groups, the rewards are equal", self.group_count),
            };
        }
        format!("of {all} tokens, {}", words_of_rest(&self.outcomes, None))
    }

    fn count(&self, outcome: TokenOutcome) -> u64 {
        self.outcomes.get(outcome.name()).copied().unwrap_or(0)
    }

    fn completions(&self) -> impl Iterator<Item = &Explained> {
        self.groups.iter().flat_map(|group| &group.completions)
    }
}

/// Losses below this value are displayed as 0.
const NO_LOSS: f64 = 1e-6;

const METRICS: [&str; 5] = ["loss", "grad_norm", "learning_rate", "kl", "entropy"];

impl Group {
    fn of(records: &[CompletionRecord], wanted: &Wanted, piece: Piece<'_>) -> anyhow::Result<Self> {
        let rewards: Vec<f64> = records.iter().filter_map(|record| record.reward).collect();
        // Advantages are computed from rewards including bonuses.
        let with_bonus =
            |record: &CompletionRecord| Some(record.reward? + record.bonus.unwrap_or(0.0));
        let mut totals = records.iter().filter_map(with_bonus);
        let first = totals.next();
        let constant = first.filter(|first| totals.all(|total| total == *first));
        let reward = first.map(|_| MeanAndStd::of(&rewards));
        let is_wanted = |record: &CompletionRecord| {
            wanted.prompt == Some(record.prompt)
                && wanted.sample.is_none_or(|sample| sample == record.sample)
        };
        let explain = |record: &CompletionRecord| {
            let piece = is_wanted(record).then_some(piece);
            Explained::of(record, constant, wanted.updates, piece).with_context(|| {
                format!("step {}, prompt {}, sample {}", record.step, record.prompt, record.sample)
            })
        };
        Ok(Self {
            prompt: records[0].prompt,
            prompt_text: records[0].prompt_text.clone(),
            reward: reward.map(|reward| reward.mean),
            reward_std: reward.map(|reward| reward.std),
            constant,
            completions: records.iter().map(explain).collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Explained {
    fn of(
        record: &CompletionRecord,
        constant: Option<f64>,
        updates: u32,
        piece: Option<Piece<'_>>,
    ) -> anyhow::Result<Self> {
        let mut outcomes = OutcomeCounts::new();
        for words in &record.outcomes {
            let of_token = TokenOutcome::split(words).map_err(anyhow::Error::msg)?;
            // A single outcome applies to all updates.
            let often = if of_token.len() == 1 { u64::from(updates) } else { 1 };
            for outcome in of_token {
                *outcomes.entry(outcome.name()).or_default() += often;
            }
        }
        let sum = |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>();
        // Avoids negative zero.
        let push = 0.0 - sum(&record.tokens["surrogate_gradients"]);
        let tokens = piece.map(|piece| {
            (0..record.outcomes.len())
                .map(|i| Token {
                    id: record.completion_ids[i],
                    piece: piece(record.completion_ids[i]),
                    numbers: {
                        let columns = record.tokens.iter();
                        columns.map(|(name, values)| (singular(name), values[i])).collect()
                    },
                    outcome: record.outcomes[i].clone(),
                })
                .collect()
        });
        Ok(Self {
            sample: record.sample,
            text: record.text.clone(),
            reward: record.reward,
            bonus: record.bonus,
            parts: record.parts.clone(),
            advantage: record.advantage,
            actions: record.actions,
            finish: record.finish,
            push,
            kl_pull: 0.0 - sum(&record.tokens["gradients"]) - push,
            why: why(record, constant, push, &outcomes),
            outcomes,
            info: record.info.clone(),
            tokens,
        })
    }
}

/// Describes in words what happened to a completion.
fn why(
    record: &CompletionRecord,
    constant: Option<f64>,
    push: f64,
    outcomes: &OutcomeCounts,
) -> String {
    let all: u64 = outcomes.values().sum();
    let moved = outcomes.get(TokenOutcome::Moved.name()).copied().unwrap_or(0);
    let rest = || words_of_rest(outcomes, Some(all));
    let mut why = match record.outcome {
        RecordedOutcome::Failed => {
            format!("the reward failed: {}", record.reason.as_deref().unwrap_or_default())
        }
        RecordedOutcome::Abstained => "the reward abstained".to_owned(),
        RecordedOutcome::Scored if record.advantage == 0.0 => match constant {
            Some(reward) => format!("all rewards of its group are {reward}"),
            None => "its reward is its baseline".to_owned(),
        },
        RecordedOutcome::Scored if moved == 0 => rest(),
        RecordedOutcome::Scored => {
            let direction = if push > 0.0 { "likelier" } else { "less likely" };
            let rest = rest();
            if rest.is_empty() { direction.to_owned() } else { format!("{direction}; {rest}") }
        }
    };
    if record.finish == Finish::Length {
        why.push_str("; truncated at the token limit");
    }
    why
}

/// Describes how many tokens were not moved and why. Writes "all" if the count equals `all`.
fn words_of_rest(outcomes: &OutcomeCounts, all: Option<u64>) -> String {
    let rest = TokenOutcome::ALL.into_iter().filter(|outcome| *outcome != TokenOutcome::Moved);
    let words = rest.filter_map(|outcome| {
        let count = *outcomes.get(outcome.name())?;
        let count = if Some(count) == all { "all".to_owned() } else { count.to_string() };
        Some(format!("{count} {}", words_of(outcome)))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Describes an outcome for readers who do not know the loss function.
pub(crate) fn meaning_of(outcome: TokenOutcome) -> &'static str {
    match outcome {
        TokenOutcome::Moved => "the rewards made the token more or less likely",
        TokenOutcome::NotScored => "the completion has no reward, so nothing is learned from it",
        TokenOutcome::ZeroAdvantage => {
            "the completion was as good as its group, so nothing is learned from it"
        }
        TokenOutcome::OffPolicy => {
            "the completion has become too unlikely under the current policy"
        }
        TokenOutcome::LowEntropy => {
            "the policy was certain of the token; only uncertain tokens are learned from"
        }
        TokenOutcome::Mismatch => {
            "sampler and trainer disagree on the probability of the token, so it is masked"
        }
        TokenOutcome::Clipped => "the token has moved as far as a step allows",
    }
}

fn words_of(outcome: TokenOutcome) -> &'static str {
    match outcome {
        TokenOutcome::Moved => "moved",
        TokenOutcome::NotScored => "of completions without a score",
        TokenOutcome::ZeroAdvantage => "without an advantage",
        TokenOutcome::OffPolicy => "dropped by the off-policy mask",
        TokenOutcome::LowEntropy => "dropped by the high-entropy mask",
        TokenOutcome::Mismatch => "masked for sampler mismatch",
        TokenOutcome::Clipped => "clipped",
    }
}

//! Lines of files of sampled completions.

use std::path::Path;
use std::sync::LazyLock;

use grpo_data::{Completion, Finish, PromptSource};
use grpo_logprob::SamplingSettings;
use grpo_task::eval::references;
use serde::Serialize;
use serde_json::{Map, Value};

/// A sampled completion.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    /// The prompt as given, or `None` if sampling starts from the beginning-of-sequence token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<&'a PromptSource>,
    /// What the prompt is about, for tasks that insert it into a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_key: Option<&'a str>,
    /// Reference completions of the prompt.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) references: &'a [String],
    /// Other keys of the prompt's record, e.g. the answer that an evaluation needs.
    #[serde(flatten)]
    pub(crate) fields: &'a Map<String, Value>,
    /// Index of the completion among those for the same prompt.
    pub(crate) sample: u32,
    /// Decoded text, or `None` without a tokenizer.
    #[serde(rename = "completion", skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// What the reward said, if it was asked.
    #[serde(flatten)]
    pub(crate) scores: Map<String, Value>,
    pub(crate) prompt_ids: &'a [u32],
    pub(crate) completion_ids: Vec<u32>,
    /// Log-probability of each token under the sampling distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<&'a [f32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sum: Option<f64>,
    pub(crate) finish: Finish,
    pub(crate) settings: &'a Settings<'a>,
}

impl<'a> Line<'a> {
    /// Creates the line of a completion without the fields of its prompt, its text and its scores.
    pub(crate) fn new(
        prompt: Option<&'a PromptSource>,
        prompt_ids: &'a [u32],
        completion: &'a Completion,
        settings: &'a Settings<'a>,
    ) -> Self {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        let logprobs = completion.sampling_logprobs();
        Self {
            prompt,
            prompt_key: None,
            references: &[],
            fields: &NONE,
            sample: completion.key().sample,
            text: None,
            scores: Map::new(),
            prompt_ids,
            completion_ids: completion.action_ids().collect(),
            logprobs,
            sum: logprobs.map(|logprobs| logprobs.iter().map(|&l| f64::from(l)).sum()),
            finish: completion.finish(),
            settings,
        }
    }
}

/// How the completions were sampled. With the prompt, this determines the completions.
#[derive(Serialize)]
pub(crate) struct Settings<'a> {
    model: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<&'a Path>,
    seed: u64,
    temperature: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f32>,
    max_new_tokens: usize,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

impl<'a> Settings<'a> {
    pub(crate) fn new(
        model: &'a Path,
        adapter: Option<&'a Path>,
        seed: u64,
        sampling: &SamplingSettings,
        max_new_tokens: usize,
        stop: &'a [String],
    ) -> Self {
        let &SamplingSettings { temperature, top_k, top_p, min_p, repetition_penalty, .. } =
            sampling;
        Self {
            model,
            adapter,
            seed,
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            max_new_tokens,
            stop,
        }
    }
}

/// Keys of the output that do not come from the prompt's record, and those that an evaluation would take
/// for the sampled completion, its prompt or its score.
const OWN_KEYS: [&str; 26] = [
    "canonical_smiles",
    "completion",
    "completion_ids",
    "completions",
    "filled",
    "finish",
    "logprobs",
    "molecule",
    "prompt",
    "prompt_ids",
    "prompt_key",
    "prompt_text",
    "reference",
    "references",
    "reply",
    "reward",
    "sample",
    "score",
    "Score",
    "settings",
    "smiles",
    "Smiles",
    "SMILES",
    "sum",
    "text",
    "total_score",
];

/// Removes the keys of a prompt's record that a line has itself, and returns its references (`reference` or
/// `references`).
pub(crate) fn take_references(fields: &mut Map<String, Value>) -> Vec<String> {
    let value = fields.get("references").or_else(|| fields.get("reference"));
    let found = value.and_then(references).unwrap_or_default();
    fields.retain(|key, _| !OWN_KEYS.contains(&key.as_str()));
    found
}

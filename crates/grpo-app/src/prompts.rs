//! The prompts of a training run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{Codec, ConfigFault, EpochOrder, Example, Examples, OrderPosition, Prompt};
use grpo_model::LanguageModel;
use grpo_rewards::Reward;
use grpo_train::{TrainError, unconditional_prompts};
use serde::{Deserialize, Serialize};

use crate::data::{DataSection, ReadFrom, ReadPrompts, SharedKeys};
use crate::models::Loaded;
use crate::source::{Opened, PromptStream, Source};

/// The section `[data]` of a GRPO run.
pub(crate) type PromptSection = DataSection<PromptKeys>;

/// Its keys that files of all formats share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptKeys {
    /// `.jsonl`, `.jsonl.gz` or `.parquet`, or what a task reads.
    file: PathBuf,
    /// Prompts of more tokens are left out; without it, those that leave no room for a completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<usize>,
    /// The chat template's switch for thinking before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
}

impl DataSection<PromptKeys> {
    /// Looks at what can be wrong before anything is read.
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        let thinking = self.keys.thinking;
        self.reader.check(&SharedKeys { thinking, ..SharedKeys::default() })
    }

    /// The same of another file.
    pub(crate) fn with_file(&self, file: &Path) -> Self {
        let keys = PromptKeys { file: file.to_owned(), ..self.keys.clone() };
        Self { keys, reader: Arc::clone(&self.reader) }
    }

    /// The examples of a file that goes with these prompts, those that the model can see as a whole.
    pub(crate) fn examples(
        &self,
        file: &Path,
        codec: &Codec,
        context: usize,
        seed: u64,
    ) -> anyhow::Result<CombinedExamples> {
        // The last token is learned, but never fed.
        let (thinking, longest) = (self.keys.thinking, context + 1);
        let from = ReadFrom { file, codec, thinking, longest };
        let read = self.reader.examples(&from, 0.0, seed)?;
        let Examples { train: examples, .. } = read.examples;
        let report = format!("{}: {}", file.display(), read.report.join("\n  "));
        let files = read.files.into_iter().map(|(_, path)| path).collect();
        Ok(CombinedExamples { examples, report, files })
    }

    fn read(&self, codec: &Codec, longest: usize) -> anyhow::Result<ReadPrompts> {
        let PromptKeys { file, thinking, .. } = &self.keys;
        self.reader.prompts(&ReadFrom { file, codec, thinking: *thinking, longest })
    }
}

/// The examples that go with prompts.
pub(crate) struct CombinedExamples {
    pub(crate) examples: Vec<Example>,
    /// What was read and left out.
    pub(crate) report: String,
    /// The files that they are of.
    pub(crate) files: Vec<PathBuf>,
}

/// The prompts of a training run, each once an epoch in a shuffled order.
pub(crate) struct Prompts {
    origin: PromptOrigin,
    /// What was read and left out.
    pub(crate) report: Option<String>,
    /// The files that they are of, and what each is.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
}

enum PromptOrigin {
    /// The beginning mark alone.
    Unconditional(u32),
    File {
        prompts: Vec<Prompt>,
        order: EpochOrder,
        seed: u64,
    },
    /// A task's, without end.
    Stream(Box<dyn PromptStream>),
}

impl Prompts {
    /// Reads the prompts of the section, which `reward` can judge completions of, or takes the model's beginning mark.
    pub(crate) fn new(
        section: Option<&PromptSection>,
        loaded: &Loaded,
        max_new_tokens: usize,
        reward: &dyn Reward,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let codec = &loaded.spec.codec;
        let Some(data) = section else {
            let begin = codec.begin_id().context(
                "the model has no id that begins a text, so the training needs prompts: a section [data] with `file`",
            )?;
            let origin = PromptOrigin::Unconditional(begin);
            return Ok(Self { origin, report: None, files: Vec::new() });
        };
        if let Some(refusal) = codec.prompt_refusal() {
            anyhow::bail!("data.file: {refusal}");
        }
        let context = loaded.policy.context_length();
        anyhow::ensure!(
            max_new_tokens <= context,
            "sampling.max_new_tokens = {max_new_tokens} leaves no room for a prompt in the model's context of {context} tokens; it may be at most {context}"
        );
        let room = context + 1 - max_new_tokens;
        let limit = data.keys.max_prompt_tokens;
        let read = data.read(codec, limit.unwrap_or(room));
        let is_too_long = |error: &anyhow::Error| data.reader.is_too_long(error);
        let read = match limit.is_none() && read.as_ref().is_err_and(is_too_long) {
            // It was not the user who said how long a prompt may be.
            true => read.with_context(|| {
                format!(
                    "sampling.max_new_tokens = {max_new_tokens} leaves {room} of the model's {context} tokens for a prompt"
                )
            })?,
            false => read?,
        };
        for (prompt, place) in read.prompts.iter().zip(&read.places) {
            let unusable = |reason| anyhow::anyhow!("{place}: {reason}");
            reward.check(&prompt.fields).map_err(unusable)?;
        }
        let order = EpochOrder::new(seed, read.prompts.len());
        Ok(Self {
            origin: PromptOrigin::File { prompts: read.prompts, order, seed },
            report: Some(format!("{}: {}", data.keys.file.display(), read.report)),
            files: read.files.into_iter().map(|file| ("prompts", file)).collect(),
        })
    }

    /// The prompts of a task.
    pub(crate) fn from_source(
        source: &dyn Source,
        loaded: &Loaded,
        reward: &dyn Reward,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let Opened { stream, report, files } = source.open(loaded, reward, seed)?;
        Ok(Self { origin: PromptOrigin::Stream(stream), report: Some(report), files })
    }

    /// Those of a step, counted from 0, each step having `count`.
    ///
    /// # Errors
    /// No prompt can be made.
    pub(crate) fn of_step(&mut self, step: u32, count: u32) -> Result<Vec<Prompt>, TrainError> {
        Ok(match &mut self.origin {
            PromptOrigin::Unconditional(begin) => unconditional_prompts(count, *begin),
            PromptOrigin::Stream(stream) => stream.of_step(step.into(), count)?,
            PromptOrigin::File { prompts, order, seed } => {
                let before = u64::from(step) * u64::from(count);
                let position = OrderPosition::after(before, prompts.len());
                if order.position() != position {
                    *order = EpochOrder::resume(*seed, prompts.len(), position)
                        .expect("a remainder is below the number of prompts");
                }
                // The index is of the step: two prompts of it never share random numbers.
                (0..count)
                    .map(|index| Prompt { index, ..prompts[order.next_item()].clone() })
                    .collect()
            }
        })
    }

    /// The first of the file, or as many beginnings, or those of a task that are in no step.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(crate) fn first(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        Ok(match &self.origin {
            PromptOrigin::Unconditional(begin) => unconditional_prompts(count, *begin),
            PromptOrigin::File { prompts, .. } => {
                prompts.iter().take(count as usize).cloned().collect()
            }
            PromptOrigin::Stream(stream) => stream.of_no_step(count)?,
        })
    }

    /// Those of evaluations: [`Self::first`], or held-out prompts of a task.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(crate) fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        match &self.origin {
            PromptOrigin::Stream(stream) => stream.of_evaluation(count),
            PromptOrigin::Unconditional(_) | PromptOrigin::File { .. } => self.first(count),
        }
    }

    /// How many an epoch has, where they are of a file.
    pub(crate) fn epoch(&self) -> Option<usize> {
        match &self.origin {
            PromptOrigin::Unconditional(_) | PromptOrigin::Stream(_) => None,
            PromptOrigin::File { prompts, .. } => Some(prompts.len()),
        }
    }

    /// Tokens of the longest one.
    pub(crate) fn longest(&self) -> usize {
        match &self.origin {
            PromptOrigin::Unconditional(_) => 1,
            PromptOrigin::File { prompts, .. } => {
                prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1)
            }
            PromptOrigin::Stream(stream) => stream.longest(),
        }
    }
}

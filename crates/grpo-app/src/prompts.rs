//! Prompts of a training run.

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

/// Keys for files of all formats.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptKeys {
    /// `.jsonl`, `.jsonl.gz` or `.parquet`, or a format of a task.
    file: PathBuf,
    /// Longer prompts are dropped; default: those that leave no space for a completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<usize>,
    /// The chat template's option for thinking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
}

impl DataSection<PromptKeys> {
    /// Checks what can be checked before reading.
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        let thinking = self.keys.thinking;
        self.reader.check(&SharedKeys { thinking, ..SharedKeys::default() })
    }

    /// Returns the section for another file.
    pub(crate) fn with_file(&self, file: &Path) -> Self {
        let keys = PromptKeys { file: file.to_owned(), ..self.keys.clone() };
        Self { keys, reader: Arc::clone(&self.reader) }
    }

    /// Reads examples that fit the context, for auxiliary losses.
    pub(crate) fn examples(
        &self,
        file: &Path,
        codec: &Codec,
        context: usize,
        seed: u64,
    ) -> anyhow::Result<CombinedExamples> {
        // The last token is learned but never read.
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

/// Examples of auxiliary losses.
pub(crate) struct CombinedExamples {
    pub(crate) examples: Vec<Example>,
    /// Report on the examples.
    pub(crate) report: String,
    /// The files that they are of.
    pub(crate) files: Vec<PathBuf>,
}

/// Prompts of a training run, each once per epoch in shuffled order.
pub(crate) struct Prompts {
    origin: PromptOrigin,
    /// Report on the prompts.
    pub(crate) report: Option<String>,
    /// The files, with their roles.
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
    /// Endless prompts of a task.
    Stream(Box<dyn PromptStream>),
}

impl Prompts {
    /// Reads the prompts of the section and checks that `reward` can score them, or uses the
    /// model's beginning mark.
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
                "the model has no beginning-of-text token, so training requires prompts; add a section [data] with `file`",
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
            "sampling.max_new_tokens = {max_new_tokens} leaves no room for a prompt in the model's context of {context} tokens; expected at most {context}"
        );
        let room = context + 1 - max_new_tokens;
        let limit = data.keys.max_prompt_tokens;
        let read = data.read(codec, limit.unwrap_or(room));
        let is_too_long = |error: &anyhow::Error| data.reader.is_too_long(error);
        let read = match limit.is_none() && read.as_ref().is_err_and(is_too_long) {
            // The user did not set this limit.
            true => read.with_context(|| {
                format!(
                    "sampling.max_new_tokens = {max_new_tokens} leaves only {room} of the model's {context} tokens for a prompt"
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

    /// Returns `count` prompts of a step, counted from 0.
    ///
    /// # Errors
    /// Returns an error if no prompt can be made.
    pub(crate) fn of_step(&mut self, step: u32, count: u32) -> Result<Vec<Prompt>, TrainError> {
        Ok(match &mut self.origin {
            PromptOrigin::Unconditional(begin) => unconditional_prompts(count, *begin),
            PromptOrigin::Stream(stream) => stream.of_step(step.into(), count)?,
            PromptOrigin::File { prompts, order, seed } => {
                let before = u64::from(step) * u64::from(count);
                let position = OrderPosition::after(before, prompts.len());
                if order.position() != position {
                    *order = EpochOrder::resume(*seed, prompts.len(), position)
                        .expect("the remainder is less than the number of prompts");
                }
                // Indices are those of the step, so prompts never share random numbers.
                (0..count)
                    .map(|index| Prompt { index, ..prompts[order.next_item()].clone() })
                    .collect()
            }
        })
    }

    /// Returns the first prompts of the file, beginning marks, or prompts of a task that are in no
    /// step.
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

    /// Returns the prompts of evaluations: [`Self::first`], or held-out prompts of a task.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(crate) fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        match &self.origin {
            PromptOrigin::Stream(stream) => stream.of_evaluation(count),
            PromptOrigin::Unconditional(_) | PromptOrigin::File { .. } => self.first(count),
        }
    }

    /// Returns the prompts per epoch, if they are from a file.
    pub(crate) fn epoch(&self) -> Option<usize> {
        match &self.origin {
            PromptOrigin::Unconditional(_) | PromptOrigin::Stream(_) => None,
            PromptOrigin::File { prompts, .. } => Some(prompts.len()),
        }
    }

    /// Returns the length of the longest prompt in tokens.
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

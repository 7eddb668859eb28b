//! Prompts for training and evaluation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{
    ConfigFault, DataFiles, EpochOrder, Example, Examples, Mixture, OrderPosition, Prompt, counted,
};
use grpo_model::{LanguageModel, ModelSpec};
use grpo_rewards::Reward;
use grpo_task::data::{ReadFrom, ReadPrompts, SharedKeys, check_thinking};
use grpo_task::models::Loaded;
use grpo_task::source::{Opened, PromptStream, Source};
use grpo_train::{TrainError, unconditional_prompts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::data_section::DataSection;

/// The `[data]` section of `grpo train`.
pub(crate) type PromptSection = DataSection<PromptKeys>;

/// Keys of the `[data]` section that do not depend on the file format.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptKeys {
    /// [File of records](#files-of-records) with prompts, each used once per epoch in shuffled
    /// order. `hf://datasets/org/name/path` is a file on the Hugging Face hub, and a path such as
    /// `train-*.parquet` all files that match it. Several files are [a list](#several-files).
    #[schemars(extend("x-basic" = true))]
    file: DataFiles,
    /// Longer prompts are dropped and counted. Default: context minus `sampling.max_new_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<usize>,
    /// `enable_thinking` of the chat template. If the template has no such switch, true is refused
    /// and false is noted at the start. Default: the template's default; false with `replies`,
    /// which refuses true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    thinking: Option<bool>,
}

impl DataSection<PromptKeys> {
    pub(crate) fn files(&self) -> &DataFiles {
        &self.keys.file
    }

    /// Checks the keys without reading a file.
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        self.check_files(&self.keys.file)?;
        let thinking = self.keys.thinking;
        self.reader.check(&SharedKeys { thinking, ..SharedKeys::default() })
    }

    /// Returns a note if `thinking` has no effect with the chat template in the folder `model`.
    ///
    /// # Errors
    /// Returns an error if training would refuse the key.
    pub(crate) fn check_thinking(&self, model: &Path) -> anyhow::Result<Option<String>> {
        check_thinking(&*self.reader, self.keys.thinking, model)
    }

    /// Returns a copy of this section for other files.
    pub(crate) fn with_files(&self, file: DataFiles) -> Self {
        let keys = PromptKeys { file, ..self.keys.clone() };
        Self { keys, reader: Arc::clone(&self.reader) }
    }

    /// Reads examples, and returns them with what was read. Examples longer than the context are
    /// dropped.
    pub(crate) fn examples(
        &self,
        file: &Path,
        loaded: &Loaded,
        seed: u64,
    ) -> anyhow::Result<(Vec<Example>, ReadExamples)> {
        // The last token is a prediction target but not an input.
        let (thinking, longest) = (self.keys.thinking, loaded.policy.context_length() + 1);
        let ModelSpec { config, codec } = &loaded.spec;
        let from = ReadFrom { file, codec, config: config.json(), thinking, longest };
        let read = self.reader.examples(&from, 0.0, seed)?;
        let Examples { train: examples, .. } = read.examples;
        let report = format!("{}: {}", file.display(), read.report.join("\n  "));
        let files = read.files.into_iter().map(|(_, path)| path).collect();
        Ok((examples, ReadExamples { report, files }))
    }

    /// Reads the prompts of all files in their order, and returns them with how often they are used.
    fn read(&self, spec: &ModelSpec, longest: usize) -> anyhow::Result<(ReadPrompts, Mixture)> {
        let ModelSpec { config, codec } = spec;
        let PromptKeys { file: files, thinking, .. } = &self.keys;
        let (config, thinking) = (config.json(), *thinking);
        let read =
            |file: &Path| self.reader.prompts(&ReadFrom { file, codec, config, thinking, longest });
        if let DataFiles::One(file) = files {
            let one = read(file)?;
            let (report, mixture) = (format!("{files}: {}", one.report), one.prompts.len().into());
            return Ok((ReadPrompts { report, ..one }, mixture));
        }
        let mut all = ReadPrompts::default();
        let mut sizes = Vec::new();
        for file in files.listed() {
            let (one, weight) = (read(file.path())?, file.weight());
            sizes.push((one.prompts.len(), weight));
            all.prompts.extend(one.prompts);
            all.places.extend(one.places);
            all.files.extend(one.files);
            let shown = if weight == 1.0 { String::new() } else { format!(" (weight {weight})") };
            all.report += &format!("\n  {}{shown}: {}", file.path().display(), one.report);
        }
        for (index, prompt) in all.prompts.iter_mut().enumerate() {
            prompt.index = index as u32;
        }
        let mixture = Mixture::new(&sizes)?;
        let per_epoch = counted(mixture.epoch() as u64, "prompt");
        let files = counted(sizes.len() as u64, "file");
        all.report = format!("{per_epoch} per epoch from {files}{}", all.report);
        Ok((all, mixture))
    }
}

/// A file of examples that was read.
pub(crate) struct ReadExamples {
    /// Summary for the user.
    pub(crate) report: String,
    /// Files from which the examples were read.
    pub(crate) files: Vec<PathBuf>,
}

/// Prompts of a training run. Prompts from a file are used once per epoch, in shuffled order.
pub(crate) struct Prompts {
    origin: PromptOrigin,
    /// Summary for the user.
    pub(crate) report: Option<String>,
    /// All files that were read, with their roles.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
}

enum PromptOrigin {
    /// Only the beginning-of-sequence token.
    Unconditional(u32),
    File {
        prompts: Vec<Prompt>,
        /// Where each prompt is, as `file:line`.
        places: Vec<String>,
        order: EpochOrder,
        mixture: Mixture,
        seed: u64,
    },
    /// Endless prompts generated by a task.
    Stream(Box<dyn PromptStream>),
}

impl Prompts {
    /// Reads the prompts of `section` and checks that `reward` can score them. Without a section,
    /// every prompt is the beginning-of-sequence token.
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
                "the model has no beginning-of-text token, so training requires prompts; add a [data] section with `file`",
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
        let read = data.read(&loaded.spec, limit.unwrap_or(room));
        let is_too_long = |error: &anyhow::Error| data.reader.is_too_long(error);
        let (read, mixture) = match limit.is_none() && read.as_ref().is_err_and(is_too_long) {
            // The user has not set this limit, so the error has to explain it.
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
        let order = EpochOrder::new(seed, mixture.clone());
        Ok(Self {
            origin: PromptOrigin::File {
                prompts: read.prompts,
                places: read.places,
                order,
                mixture,
                seed,
            },
            report: Some(read.report),
            files: read.files.into_iter().map(|file| ("prompts", file)).collect(),
        })
    }

    /// Creates prompts from the source of a task.
    pub(crate) fn from_source(
        source: &dyn Source,
        loaded: &Loaded,
        reward: &dyn Reward,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let Opened { stream, report } = source.open(loaded, reward, seed)?;
        let (origin, files) = (PromptOrigin::Stream(stream), source.files());
        Ok(Self { origin, report: Some(report), files })
    }

    /// Returns `count` prompts for a step. Steps are numbered from 0.
    ///
    /// # Errors
    /// Returns an error if the task cannot create a prompt.
    pub(crate) fn of_step(&mut self, step: u32, count: u32) -> Result<Vec<Prompt>, TrainError> {
        Ok(match &mut self.origin {
            PromptOrigin::Unconditional(begin) => unconditional_prompts(count, *begin),
            PromptOrigin::Stream(stream) => stream.of_step(step.into(), count)?,
            PromptOrigin::File { prompts, order, mixture, seed, .. } => {
                let before = u64::from(step) * u64::from(count);
                let position = OrderPosition::after(before, mixture.epoch());
                if order.position() != position {
                    *order = EpochOrder::resume(*seed, mixture.clone(), position)
                        .expect("the remainder is less than the number of prompts");
                }
                // The index is the position in the step, so two prompts never share random numbers.
                (0..count)
                    .map(|index| Prompt { index, ..prompts[order.next_item()].clone() })
                    .collect()
            }
        })
    }

    /// Returns the first prompts of the file. Without a file, these are beginning-of-sequence
    /// tokens or prompts of the task that no step uses.
    ///
    /// # Errors
    /// Returns an error if the task cannot create a prompt.
    pub(crate) fn first(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        Ok(match &self.origin {
            PromptOrigin::Unconditional(begin) => unconditional_prompts(count, *begin),
            PromptOrigin::File { prompts, .. } => {
                prompts.iter().take(count as usize).cloned().collect()
            }
            PromptOrigin::Stream(stream) => stream.of_no_step(count)?,
        })
    }

    /// Returns the prompts for evaluations. These are [`Self::first`] or held-out prompts of the
    /// task.
    ///
    /// # Errors
    /// Returns an error if the task cannot create a prompt.
    pub(crate) fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        match &self.origin {
            PromptOrigin::Stream(stream) => stream.of_evaluation(count),
            PromptOrigin::Unconditional(_) | PromptOrigin::File { .. } => self.first(count),
        }
    }

    /// Returns the first prompt of the file, if the prompts are from one.
    pub(crate) fn first_of_file(&self) -> Option<&Prompt> {
        match &self.origin {
            PromptOrigin::File { prompts, .. } => prompts.first(),
            PromptOrigin::Unconditional(_) | PromptOrigin::Stream(_) => None,
        }
    }

    /// Returns where the prompts of the file are, as `file:line`.
    pub(crate) fn places(&self) -> &[String] {
        match &self.origin {
            PromptOrigin::File { places, .. } => places,
            PromptOrigin::Unconditional(_) | PromptOrigin::Stream(_) => &[],
        }
    }

    /// Returns the number of prompts per epoch, or `None` if they don't repeat.
    pub(crate) fn epoch(&self) -> Option<usize> {
        match &self.origin {
            PromptOrigin::Unconditional(_) => None,
            PromptOrigin::Stream(stream) => stream.epoch(),
            PromptOrigin::File { mixture, .. } => Some(mixture.epoch()),
        }
    }

    /// Returns the maximum prompt length in tokens.
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

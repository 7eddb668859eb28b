//! The prompts of a training.

use grpo_infill::{Half, InfillError, MaskedStream, MaskedText, MaskingPlan};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{
    Characters, ChatOptions, Codec, DataError, EpochOrder, Example, ExampleFile, OrderPosition,
    Prompt, PromptFile, Purpose,
};
use grpo_model::LanguageModel;
use grpo_replies::{RepliesError, ReplyExamples, ReplyPrompts, ReplyTemplate};
use grpo_rewards::Reward;
use grpo_train::unconditional_prompts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::Origin;
use crate::infill::{PassageSection, checked};
use crate::models::Loaded;

/// The section `[data]` of a GRPO run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptSection {
    /// `.jsonl`, `.jsonl.gz` or `.parquet`.
    pub(crate) file: PathBuf,
    /// Prompts of more tokens are left out; without it, those that leave no room for a completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<usize>,
    /// The chat template's switch for thinking before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
    /// `file`, which can be a folder, holds tweets and their replies: a prompt for each tweet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replies: Option<ReplyTemplate>,
}

impl PromptSection {
    /// Looks at what can be wrong before anything is read.
    pub(crate) fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        check_replies(self.replies.as_ref(), self.thinking, origin)
    }

    /// The same of another file.
    pub(crate) fn with_file(&self, file: &Path) -> Self {
        Self { file: file.to_owned(), ..self.clone() }
    }

    /// The examples of a file that goes with these prompts, those that the model can see as a whole.
    pub(crate) fn examples(
        &self,
        file: &Path,
        codec: &Codec,
        context: usize,
        seed: u64,
    ) -> Result<ReadExamples, RepliesError> {
        // The last token is learned, but never fed.
        let longest = context + 1;
        let (examples, report, files) = match &self.replies {
            Some(template) => {
                let thinking = self.thinking.unwrap_or(false);
                let read =
                    ReplyExamples::read(file, codec, template, thinking, longest, 0.0, seed)?;
                (read.examples, read.report.to_string(), read.files)
            }
            None => {
                let options = ChatOptions::for_answer(self.thinking);
                let read = ExampleFile::read(file, codec, &options, longest, 0.0, seed)?;
                (read.examples, read.report.to_string(), vec![file.to_owned()])
            }
        };
        let report = format!("{}: {report}", file.display());
        Ok(ReadExamples { examples: examples.train, report, files })
    }
}

/// Looks at what can be wrong with the section `[data]` of tweets and replies.
pub(crate) fn check_replies(
    replies: Option<&ReplyTemplate>,
    thinking: Option<bool>,
    origin: &Origin,
) -> anyhow::Result<()> {
    let Some(template) = replies else { return Ok(()) };
    // The replies of the data have no thoughts in front of them: a training on them would unlearn to think where it is
    // asked for, and rewards would judge the thoughts.
    anyhow::ensure!(
        thinking != Some(true),
        "{}data.thinking = true asks for thoughts in front of a reply, and those of [data.replies] have none; leave it out",
        origin.place("data.thinking")
    );
    Ok(template.check(thinking)?)
}

/// The examples that go with prompts.
pub(crate) struct ReadExamples {
    pub(crate) examples: Vec<Example>,
    /// What was read and left out.
    pub(crate) report: String,
    /// The files that they are of.
    pub(crate) files: Vec<PathBuf>,
}

/// The prompts of a training, each once an epoch in a shuffled order.
pub(crate) struct Prompts {
    source: Source,
    /// What was read and left out.
    pub(crate) report: Option<String>,
    /// The files that they are of.
    pub(crate) files: Vec<PathBuf>,
}

enum Source {
    /// The beginning mark alone.
    Unconditional(u32),
    File {
        prompts: Vec<Prompt>,
        order: EpochOrder,
        seed: u64,
    },
    /// Texts with blanks, without end.
    Blanks {
        train: MaskedStream,
        held_out: MaskedStream,
    },
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
            return Ok(Self {
                source: Source::Unconditional(begin),
                report: None,
                files: Vec::new(),
            });
        };
        anyhow::ensure!(
            codec.vocabulary().is_none(),
            "data.file: a model of molecules writes from its beginning mark on and takes no prompts; leave [data] out"
        );
        let context = loaded.policy.context_length();
        anyhow::ensure!(
            max_new_tokens <= context,
            "sampling.max_new_tokens = {max_new_tokens} leaves no room for a prompt in the model's context of {context} tokens; it may be at most {context}"
        );
        let room = context + 1 - max_new_tokens;
        let longest = data.max_prompt_tokens.unwrap_or(room);
        let read = Read::new(data, codec, longest);
        let too_long = match &read {
            Err(RepliesError::Data(DataError::NoRecords { report, .. })) => {
                report.too_long_count > 0
            }
            Err(RepliesError::NoUsablePairs { too_long, .. }) => *too_long > 0,
            _ => false,
        };
        let read = match too_long && data.max_prompt_tokens.is_none() {
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
            source: Source::File { prompts: read.prompts, order, seed },
            report: Some(format!("{}: {}", data.file.display(), read.report)),
            files: read.files,
        })
    }

    /// Passages of a text with blanks, which `reward` can judge completions of.
    pub(crate) fn with_blanks(
        section: &PassageSection,
        masking: &MaskingPlan,
        loaded: &Loaded,
        reward: &dyn Reward,
        seed: u64,
    ) -> anyhow::Result<Self> {
        masking.check_pure().context("masking")?;
        let context = loaded.policy.context_length();
        anyhow::ensure!(
            section.length <= context,
            "passages.length = {} is more than the {context} characters (block_size) that the infiller can see; lower it",
            section.length
        );
        let characters = loaded.spec.codec.characters();
        let passages = Arc::new(section.load(characters).context("passages")?);
        let report = format!("{}: {}", section.file.display(), passages.report());
        let stream = |half, purpose| {
            checked(MaskedStream::new(Arc::clone(&passages), half, masking.clone(), seed, purpose))
        };
        let train = stream(Half::Train, Purpose::MaskedPrompts).context("masking")?;
        let held_out = stream(Half::Validation, Purpose::MaskedPrompts).context("masking")?;
        for fields in extremes(passages.characters(), section.length) {
            reward.check(&fields).map_err(|fault| anyhow::anyhow!("reward: {fault}"))?;
        }
        Ok(Self {
            source: Source::Blanks { train, held_out },
            report: Some(report),
            files: Vec::new(),
        })
    }

    /// Those of a step, counted from 0, each step having `count`.
    ///
    /// # Errors
    /// A masking that masks nothing.
    pub(crate) fn of_step(&mut self, step: u32, count: u32) -> Result<Vec<Prompt>, InfillError> {
        Ok(match &mut self.source {
            Source::Unconditional(begin) => unconditional_prompts(count, *begin),
            Source::Blanks { train, .. } => blanked(train, step.into(), count)?,
            Source::File { prompts, order, seed } => {
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

    /// The first of the file, or as many beginnings or texts with blanks.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(crate) fn first(&self, count: u32) -> Result<Vec<Prompt>, InfillError> {
        Ok(match &self.source {
            Source::Unconditional(begin) => unconditional_prompts(count, *begin),
            Source::File { prompts, .. } => prompts.iter().take(count as usize).cloned().collect(),
            // Those of no step.
            Source::Blanks { train, .. } => blanked(train, u64::MAX, count)?,
        })
    }

    /// Those of evaluations: [`Self::first`], or texts of the half that is held out.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(crate) fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, InfillError> {
        match &self.source {
            Source::Blanks { held_out, .. } => blanked(held_out, 0, count),
            Source::Unconditional(_) | Source::File { .. } => self.first(count),
        }
    }

    /// How many an epoch has, where they are of a file.
    pub(crate) fn epoch(&self) -> Option<usize> {
        match &self.source {
            Source::Unconditional(_) | Source::Blanks { .. } => None,
            Source::File { prompts, .. } => Some(prompts.len()),
        }
    }

    /// Tokens of the longest one.
    pub(crate) fn longest(&self) -> usize {
        match &self.source {
            Source::Unconditional(_) => 1,
            Source::File { prompts, .. } => {
                prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1)
            }
            Source::Blanks { train, .. } => train.passages().options().length,
        }
    }
}

/// The prompts of a section, whatever its file holds.
struct Read {
    prompts: Vec<Prompt>,
    /// Where each stands, as `file:line`.
    places: Vec<String>,
    report: String,
    files: Vec<PathBuf>,
}

impl Read {
    fn new(data: &PromptSection, codec: &Codec, longest: usize) -> Result<Self, RepliesError> {
        if let Some(template) = &data.replies {
            let thinking = data.thinking.unwrap_or(false);
            let read = ReplyPrompts::read(&data.file, codec, template, thinking, longest)?;
            let ReplyPrompts { prompts, places, report, files } = read;
            return Ok(Self { prompts, places, report: report.to_string(), files });
        }
        let options = ChatOptions::for_answer(data.thinking);
        let PromptFile { prompts, lines, report } =
            PromptFile::read(&data.file, codec, &options, longest)?;
        let places = lines.iter().map(|line| format!("{}:{line}", data.file.display())).collect();
        Ok(Self { prompts, places, report: report.to_string(), files: vec![data.file.clone()] })
    }
}

/// What a reward has to be able to read: every character that can be filled in, and the longest passage.
fn extremes(characters: &Characters, length: usize) -> Vec<Map<String, Value>> {
    let all: Vec<u32> = (0..characters.base_len() as u32).collect();
    let longest: Vec<u32> = all.iter().copied().cycle().take(length).collect();
    let fields = |ids: &[u32]| {
        let blanked = [&[characters.mask_id()], &ids[1..]].concat();
        let fields = [("text", characters.decode(ids)), ("blanked", characters.decode(&blanked))];
        fields.map(|(key, text)| (key.to_owned(), text.into())).into_iter().collect()
    };
    all.chunks(length).chain([longest.as_slice()]).map(fields).collect()
}

/// The texts of a batch, with what a reward may want to know: the truth, and where the blanks are.
fn blanked(stream: &MaskedStream, batch: u64, count: u32) -> Result<Vec<Prompt>, InfillError> {
    let characters = stream.passages().characters();
    let texts = stream.batch(batch, count as usize)?.into_iter().zip(0..);
    let prompt = |(MaskedText { ids, original, .. }, index): (MaskedText, u32)| {
        let mut prompt = Prompt::of_ids(index, ids);
        let fields = [("text", &original), ("blanked", &prompt.ids)];
        let fields = fields.map(|(key, ids)| (key.to_owned(), characters.decode(ids).into()));
        prompt.fields.extend(fields);
        prompt
    };
    Ok(texts.map(prompt).collect())
}

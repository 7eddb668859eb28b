//! The infilling task.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    Characters, FAMILIES, FillBlanks, JUDGE_METRICS, MASKED_LM_METRICS, MASKED_PROMPTS,
    MaskedStream, MaskedText, MaskingPlan, PassageOptions, Passages, Split,
};
use anyhow::Context;
use clap::ValueEnum;
use grpo_data::schema::Keys;
use grpo_data::{Codec, CodecKind, ConfigFault, Prompt, TextCodec, deserialize_settings};
use grpo_model::{Families, FamilyKind, LanguageModel, Policy};
use grpo_rewards::{Reward, RewardKind};
use grpo_train::{EngineFactory, GrpoConfig, MetricGroup, TrainError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toml::Table;

use crate::commands::pretrain::MaskedLmFile;
use crate::commands::{fill, pretrain, train_judge};
use crate::eval_suite::SUITE;
use crate::reward::InfillConfig;
use crate::sections::check_infiller;
use grpo_task::eval::Suite;
use grpo_task::models::Loaded;
use grpo_task::source::{Opened, PromptStream, Source, SourceKind};
use grpo_task::task::{Pretraining, Task, TaskCommand};

/// The infilling task, which fills blanks in text.
pub struct Infill;

impl Task for Infill {
    fn name(&self) -> &'static str {
        "infill"
    }

    fn rewards(&self) -> Vec<RewardKind> {
        vec![RewardKind::from_settings::<InfillConfig>("infill")]
    }

    fn metrics(&self) -> Vec<MetricGroup> {
        vec![JUDGE_METRICS, MASKED_LM_METRICS]
    }

    fn families(&self) -> Vec<&'static FamilyKind> {
        FAMILIES.to_vec()
    }

    fn codecs(&self) -> Vec<CodecKind> {
        vec![Characters::CODEC]
    }

    fn sources(&self) -> Vec<SourceKind> {
        vec![SourceKind {
            sections: &["passages", "masking"],
            schema: Keys::of::<BlankSections>(),
            parse: |sections| Ok(Arc::new(deserialize_settings::<BlankSections>(sections)?)),
        }]
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![train_judge::command(), fill::command()]
    }

    fn suites(&self) -> Vec<Suite> {
        vec![SUITE]
    }

    fn pretraining(&self) -> Option<Pretraining> {
        Some(Pretraining {
            section: "masked_lm",
            trains: "infiller",
            schema: Keys::of::<MaskedLmFile>(),
            run: pretrain::run,
        })
    }
}

/// Configuration sections that define the texts and their blanks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BlankSections {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passages: Option<PassageOptions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    masking: Option<MaskingPlan>,
}

impl BlankSections {
    /// Returns both sections. They must have been checked.
    fn both(&self) -> (&PassageOptions, &MaskingPlan) {
        let both = self.passages.as_ref().zip(self.masking.as_ref());
        both.expect("the sections were checked")
    }
}

impl Source for BlankSections {
    fn settings(&self) -> Table {
        Table::try_from(self).expect("parsed settings can be written as TOML")
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        self.passages.iter().map(|passages| ("passages", passages.file.clone())).collect()
    }

    fn check(&self, trainer: &GrpoConfig, has_data: bool) -> Result<(), ConfigFault> {
        if self.passages.is_none() {
            return Err(ConfigFault::from_sentence(
                "masking",
                "[masking] requires a [passages] section; add it, or remove [masking]",
            ));
        }
        if self.masking.is_none() {
            return Err(ConfigFault::from_sentence(
                "passages",
                "[passages] requires a [masking] section; add it, for example with preset = \"complex\"",
            ));
        }
        self.passages.iter().try_for_each(|passages| passages.check("passages"))?;
        let next_token = [
            ("data", has_data),
            ("eval.file", trainer.eval.file.is_some()),
            ("sampling.max_new_tokens", trainer.sampling.max_new_tokens > 0),
            ("sampling.stop", !trainer.sampling.stop.is_empty()),
            ("sampling.repetition_penalty", trainer.sampling.repetition_penalty.is_some()),
        ];
        match next_token.iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err(ConfigFault::from_sentence(
                *key,
                format!(
                    "{key} is only valid for models that continue a prompt and cannot be combined with [passages]; remove it"
                ),
            )),
            None => Ok(()),
        }
    }

    fn check_model(&self, folder: &Path, _families: &Families) -> anyhow::Result<()> {
        check_infiller(folder)
    }

    /// A text can't have more blanks than characters.
    fn max_new_tokens(&self) -> Option<usize> {
        Some(self.passages.as_ref().map_or(0, |passages| passages.length))
    }

    fn local_engine(&self, codec: &Codec) -> Arc<dyn EngineFactory<Policy>> {
        let characters = codec.own::<Characters>().expect("an infiller reads characters");
        let forbidden = characters.specials().to_vec();
        Arc::new(FillBlanks { mask_id: characters.mask_id(), forbidden })
    }

    fn fills_prompt(&self) -> bool {
        true
    }

    fn tokens_name(&self) -> &'static str {
        "blanks"
    }

    fn try_out(&self, model: &[String], _prompt: &Prompt) -> Option<Vec<String>> {
        // `grpo fill` has no adapters.
        let [_, folder] = model else { return None };
        let (section, _) = self.both();
        let unit = section.unit.to_possible_value()?;
        let options = [
            ("held-out", section.file.display().to_string()),
            ("unit", unit.get_name().to_owned()),
            ("length", section.length.to_string()),
            ("validation-fraction", section.validation_fraction.to_string()),
            ("random", "0.3".to_owned()),
        ];
        let options = options.map(|(name, value)| format!("--{name}={value}"));
        Some(["fill".to_owned(), folder.clone()].into_iter().chain(options).collect())
    }

    fn open(&self, loaded: &Loaded, reward: &dyn Reward, seed: u64) -> anyhow::Result<Opened> {
        let (section, masking) = self.both();
        masking.check_pure().context("masking")?;
        let context = loaded.policy.context_length();
        anyhow::ensure!(
            section.length <= context,
            "passages.length = {} exceeds the infiller's context length of {context} characters (block_size); reduce passages.length",
            section.length
        );
        let characters = loaded.spec.codec.own::<Characters>();
        let passages = Arc::new(Passages::read(section, characters).context("passages")?);
        let report = format!("{}: {}", section.file.display(), passages.report());
        let stream = |split| {
            let passages = Arc::clone(&passages);
            MaskedStream::new(passages, split, masking.clone(), seed, MASKED_PROMPTS)?.checked()
        };
        let train = stream(Split::Train).context("masking")?;
        let held_out = stream(Split::Validation).context("masking")?;
        for fields in extremes(passages.characters(), section.length) {
            reward.check(&fields).map_err(|fault| anyhow::anyhow!("reward: {fault}"))?;
        }
        Ok(Opened { stream: Box::new(Blanks { train, held_out }), report })
    }
}

/// An infinite stream of texts with blanks.
struct Blanks {
    train: MaskedStream,
    held_out: MaskedStream,
}

impl PromptStream for Blanks {
    fn of_step(&self, step: u64, count: u32) -> Result<Vec<Prompt>, TrainError> {
        blanked(&self.train, step, count)
    }

    fn of_no_step(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        blanked(&self.train, u64::MAX, count)
    }

    fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        blanked(&self.held_out, 0, count)
    }

    fn longest(&self) -> usize {
        self.train.passages().options().length
    }
}

/// Returns texts that a reward must be able to handle. They contain every character, and one has
/// the maximum length.
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

/// Returns a batch of prompts, with the fields that rewards need.
fn blanked(stream: &MaskedStream, batch: u64, count: u32) -> Result<Vec<Prompt>, TrainError> {
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

//! The task of replying to tweets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::template::PromptVariant;
use crate::{ENGAGEMENT_METRICS, ReplyExamples, ReplyPrompts, ReplyTemplate, read_pairs};
use anyhow::Context;
use clap::{ArgMatches, Args, FromArgMatches};
use grpo_data::schema::Keys;
use grpo_data::{ConfigFault, Prompt, deserialize_settings};
use grpo_rewards::RewardKind;
use grpo_train::MetricGroup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::commands::{clean_data, split_data, train_engagement};
use grpo_task::data::{DataFormat, DataReader, ReadExamples, ReadFrom, ReadPrompts, SharedKeys};
use grpo_task::task::{Task, TaskCommand, TaskPrompt, TaskSampling};

/// The task of replying to tweets.
pub struct Replies;

impl Task for Replies {
    fn name(&self) -> &'static str {
        "replies"
    }

    fn rewards(&self) -> Vec<RewardKind> {
        crate::reward_kinds()
    }

    fn metrics(&self) -> Vec<MetricGroup> {
        vec![ENGAGEMENT_METRICS]
    }

    fn data_formats(&self) -> Vec<DataFormat> {
        vec![DataFormat {
            holds: "tweets and replies",
            endings: &[],
            keys: &["replies"],
            schema: Keys::of::<ReplyKeys>(),
            has_prompts: true,
            is_selected: |data| data.contains_key("replies"),
            parse: |keys| Ok(Arc::new(deserialize_settings::<ReplyKeys>(keys)?)),
        }]
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![train_engagement::command(), split_data::command(), clean_data::command()]
    }

    fn sampling(&self) -> Option<&dyn TaskSampling> {
        Some(&ReplySampling)
    }

    fn prompt_field(&self) -> Option<&'static str> {
        Some("tweet")
    }
}

/// Command-line options of this task.
#[derive(Debug, Args)]
struct ReplyOptions {
    /// Tweet to reply to; repeatable
    #[arg(long, value_name = "TEXT", help_heading = "Input", conflicts_with_all = ["prompt", "prompts", "thinking"])]
    tweet: Vec<String>,
    /// File or folder of tweets and replies: one prompt per tweet, with its replies as references
    #[arg(long, value_name = "FILE", help_heading = "Input", conflicts_with_all = ["prompt", "prompts", "thinking"])]
    tweets: Option<PathBuf>,
    /// Prompt template for tweets [default: trained]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Input")]
    template: Option<PromptVariant>,
}

/// Sampling support for this task.
struct ReplySampling;

impl TaskSampling for ReplySampling {
    fn options(&self, command: clap::Command) -> clap::Command {
        ReplyOptions::augment_args(command)
    }

    fn prompts(&self, options: &ArgMatches) -> anyhow::Result<Vec<TaskPrompt>> {
        let ReplyOptions { tweet, tweets, template } =
            ReplyOptions::from_arg_matches(options).unwrap_or_else(|error| error.exit());
        anyhow::ensure!(
            template.is_none() || !tweet.is_empty() || tweets.is_some(),
            "--template has no effect without --tweet or --tweets; add one of them"
        );
        let variant = template.unwrap_or_default();
        let prompt = |option: String, tweet: &str, references| TaskPrompt {
            option,
            source: variant.prompt(tweet),
            key: tweet.to_owned(),
            references,
        };
        let of_option = |tweet: &String| prompt(format!("--tweet {tweet}"), tweet, Vec::new());
        let mut prompts: Vec<TaskPrompt> = tweet.iter().map(of_option).collect();
        if let Some(path) = &tweets {
            let pairs = read_pairs(path).context("--tweets")?.pairs;
            let mut replies: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for pair in &pairs {
                replies.entry(&pair.tweet_id).or_default().push(pair.reply.clone());
            }
            // In the order of the file.
            for pair in &pairs {
                if let Some(references) = replies.remove(pair.tweet_id.as_str()) {
                    let option = format!("--tweets {}:{}", pair.file.display(), pair.line);
                    prompts.push(prompt(option, &pair.tweet, references));
                }
            }
        }
        Ok(prompts)
    }
}

/// The `replies` key in `[data]`. There is one prompt per tweet and one training example per reply.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyKeys {
    replies: ReplyTemplate,
}

impl DataReader for ReplyKeys {
    fn settings(&self) -> Table {
        Table::try_from(self).expect("strings are TOML")
    }

    fn check(&self, shared: &SharedKeys) -> Result<(), ConfigFault> {
        // The replies contain no reasoning. If the template requested it, training would make the
        // model unlearn reasoning, and rewards would score the reasoning as part of the reply.
        if shared.thinking == Some(true) {
            return Err(ConfigFault::from_sentence(
                "data.thinking",
                "data.thinking = true requires replies with thinking, but those of [data.replies] have none; remove it",
            ));
        }
        let check = self.replies.check(shared.thinking);
        check.map_err(|error| {
            ConfigFault::from_sentence("data.replies.instruction", error.to_string())
        })
    }

    fn prompt_option(&self, prompt: &Prompt) -> Option<(&'static str, String)> {
        // `--tweet` has the default instruction.
        let has_default = self.replies == ReplyTemplate::default();
        let tweet = prompt.fields.get("tweet").filter(|_| has_default)?.as_str()?;
        Some(("tweet", tweet.to_owned()))
    }

    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts> {
        let &ReadFrom { file, codec, thinking, longest, .. } = from;
        let thinking = thinking.unwrap_or(false);
        let read = ReplyPrompts::read(file, codec, &self.replies, thinking, longest)?;
        let ReplyPrompts { prompts, places, report, files } = read;
        Ok(ReadPrompts { prompts, places, report: report.to_string(), files })
    }

    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples> {
        let &ReadFrom { file, codec, thinking, longest, .. } = from;
        let thinking = thinking.unwrap_or(false);
        let template = &self.replies;
        let read = ReplyExamples::read(
            file,
            codec,
            template,
            thinking,
            longest,
            validation_fraction,
            seed,
        )?;
        let files = read.files.into_iter().map(|file| ("texts", file)).collect();
        let (examples, report) = (read.examples, read.report.lines());
        Ok(ReadExamples { examples, augmentation: None, report, files })
    }
}

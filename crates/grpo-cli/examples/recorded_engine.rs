//! An engine that is registered from outside of the program: it takes completions from a file instead of
//! sampling them. `rollout = { engine = "recorded", file = "completions.jsonl" }` selects it, and lines of
//! the file are such as `{"prompt": "2 + 2 =", "completions": ["4", "four"]}`.
//! Run it with `cargo run --release --example recorded_engine -- train a.toml`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{
    ChatOptions, Codec, Completion, CompletionParts, CompletionSource, DataError, Finish, Group,
    Prompt, PromptSource, SampleKey, SampledUnder, read_text,
};
use grpo_model::{Frozen, Policy};
use grpo_rollout::{
    Engine, EngineConfig, EngineContext, EngineFactory, EngineKind, EngineRequest, RolloutError,
    StepKey,
};
use grpo_task::task::Task;
use serde::{Deserialize, Serialize};
use toml::Table;

fn main() -> ExitCode {
    grpo_program::main(&[&RecordedTask], None)
}

pub(crate) struct RecordedTask;
impl Task for RecordedTask {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn engines(&self) -> Vec<EngineKind> {
        vec![EngineKind::from_settings::<RecordedConfig>("recorded", "recorded completions")]
    }
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecordedConfig {
    file: PathBuf,
}

impl EngineConfig for RecordedConfig {
    fn settings(&self) -> Table {
        Table::try_from(self).expect("parsed settings can be written as TOML")
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("rollout", self.file.clone())]
    }

    fn build(
        &self,
        context: EngineContext<'_>,
    ) -> Result<Arc<dyn EngineFactory<Policy>>, RolloutError> {
        let all = read(&self.file, context.codec).map_err(|e| RolloutError::Engine(Box::new(e)))?;
        Ok(Arc::new(Recorded { completions: Arc::new(all), group: 0, most: 0 }))
    }
}

#[derive(Deserialize)]
struct Line {
    prompt: String,
    completions: Vec<String>,
}

type ByPrompt = HashMap<Vec<u32>, Vec<Vec<u32>>>;
fn read(file: &Path, codec: &Codec) -> Result<ByPrompt, DataError> {
    let end = codec.learned_end()?;
    let mut completions = ByPrompt::new();
    for (line, number) in read_text(file)?.lines().zip(1..) {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| DataError::Invalid(format!("{}:{number}: {error}", file.display())))?;
        let text = PromptSource::Text(line.prompt);
        let prompt = codec.prompt(&text, &ChatOptions::for_answer(None))?;
        for text in line.completions {
            let mut ids = codec.completion(&CompletionSource::Text(text))?;
            ids.extend(end);
            completions.entry(prompt.clone()).or_default().push(ids);
        }
    }
    Ok(completions)
}

/// Completions by prompt, which are used one after another, again and again.
#[derive(Clone, Debug)]
struct Recorded {
    completions: Arc<ByPrompt>,
    group: u32,
    most: usize,
}

impl EngineFactory<Policy> for Recorded {
    fn create(
        &self,
        _policy: &Policy,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<Policy>>, RolloutError> {
        if *request.sampling != Default::default() {
            return Err(RolloutError::Unfit("sampling settings do not apply to a file".to_owned()));
        }
        let (group, most) = (request.group_size as u32, request.max_new_tokens);
        Ok(Arc::new(Self { group, most, ..self.clone() }))
    }
}

impl Engine<Policy> for Recorded {
    fn sample(
        &self,
        policy: &Frozen<Policy>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        let group = |prompt: &Prompt| {
            let all = (0..self.group).map(|sample| self.again(policy, prompt, sample, key));
            Ok(Group::new(prompt.clone(), all.collect::<Result<Vec<_>, _>>()?))
        };
        prompts.iter().map(group).collect()
    }

    fn again(
        &self,
        _policy: &Frozen<Policy>,
        prompt: &Prompt,
        sample: u32,
        StepKey { seed, step, policy_version, .. }: StepKey,
    ) -> Result<Completion, RolloutError> {
        let unknown = || RolloutError::Unfit(format!("no completions for {:?}", prompt.ids));
        let recorded = self.completions.get(&prompt.ids).ok_or_else(unknown)?;
        let own = &recorded[(step * self.group + sample) as usize % recorded.len()];
        let length = own.len().min(self.most);
        Ok(Completion::new(CompletionParts {
            prefix: prompt.prefix.clone(),
            ids: [&prompt.ids, &own[..length]].concat(),
            action_mask: [vec![false; prompt.ids.len()], vec![true; length]].concat(),
            sampling_logprobs: None, // Not sampled here, so there is nothing to compare.
            finish: if length < own.len() { Finish::Length } else { Finish::EndToken },
            key: SampleKey { seed, step, prompt: prompt.index, sample },
            policy_version,
            sampled_under: SampledUnder::default(),
        }))
    }

    fn interrupted_by(&self, _flag: Arc<AtomicBool>) -> Arc<dyn Engine<Policy>> {
        Arc::new(self.clone()) // It never takes long.
    }
}

//! Samples completions of prompts and writes them as JSON lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{
    ChatOptions, Codec, Group, Message, Prompt, PromptReader, PromptRecord, PromptSource,
};
use grpo_model::LanguageModel;
use grpo_task::args::SampleArguments;
use grpo_task::generate::{Generation, generate, ids_without_token};
use grpo_task::models::Loaded;
use grpo_task::output::{FileInPlace, JSON_LINES, say_aside};
use grpo_task::task::TaskPrompt;
use grpo_task::visible::data_output;
use serde_json::{Map, Value};

use crate::evaluate::completion_line::{Line, Settings, take_references};

/// Default of `--max-new-tokens`.
const MOST_NEW_TOKENS: usize = 256;

pub(super) fn run(
    arguments: &SampleArguments,
    of_tasks: Vec<TaskPrompt>,
    loaded: &Loaded,
    options: &ChatOptions,
) -> anyhow::Result<()> {
    // Before the prompts are read.
    arguments.output.iter().try_for_each(|path| JSON_LINES.check("-o", path))?;
    let codec = &loaded.spec.codec;
    let context = loaded.policy.context_length();
    let (sources, prompts) = prompts(arguments, of_tasks, codec, options, context)?;
    let generation = Generation::from_options(arguments, loaded, &prompts, MOST_NEW_TOKENS);
    // Creates the output before sampling so that errors are reported early.
    let inputs: Vec<&Path> = arguments.prompts.iter().map(PathBuf::as_path).collect();
    let create = |path| FileInPlace::create_beside(path, JSON_LINES, &inputs, arguments.force);
    let output = arguments.output.as_deref().map(create).transpose()?;
    let number = arguments.number.unwrap_or(1);
    let groups = generate(&loaded.policy, codec, &prompts, number, &generation)?;
    if let Some(without) = ids_without_token(&groups, codec) {
        say_aside(format_args!("note: {without}"));
    }
    let SampleArguments { model, adapter, seed, stop, .. } = arguments;
    let most = arguments.max_new_tokens.unwrap_or(MOST_NEW_TOKENS);
    let sampling = arguments.sampling();
    let settings = Settings::new(model, adapter.as_deref(), *seed, &sampling, most, stop);
    match output {
        Some(mut file) => {
            write_lines(&mut file, codec, &sources, &groups, &settings)
                .with_context(|| format!("cannot write {}", file.path().display()))?;
            file.finish()
        }
        None => write_lines(&mut data_output(), codec, &sources, &groups, &settings)
            .context("cannot write to standard output"),
    }
}

/// A prompt as given, with its references.
#[derive(Default)]
struct Source {
    prompt: Option<PromptSource>,
    key: Option<String>,
    references: Vec<String>,
    fields: Map<String, Value>,
}

/// Returns each prompt as given and as token ids.
fn prompts(
    arguments: &SampleArguments,
    of_tasks: Vec<TaskPrompt>,
    codec: &Codec,
    options: &ChatOptions,
    context: usize,
) -> anyhow::Result<(Vec<Source>, Vec<Prompt>)> {
    let mut sources = Vec::new();
    let mut prompts = Vec::new();
    let mut push = |source: Source, ids: Vec<u32>| {
        prompts.push(Prompt::of_ids(prompts.len() as u32, ids));
        sources.push(source);
    };
    for text in &arguments.prompt {
        let source = match arguments.chat {
            true => PromptSource::Messages(vec![Message::new("user", text)]),
            false => PromptSource::Text(text.clone()),
        };
        let ids = codec.prompt(&source, options).with_context(|| format!("--prompt {text}"))?;
        push(Source { prompt: Some(source), ..Source::default() }, ids);
    }
    let has_prompts = !arguments.prompt.is_empty() || !of_tasks.is_empty();
    for TaskPrompt { option, source, key, references } in of_tasks {
        let ids = codec.prompt(&source, options).context(option)?;
        let fields = Map::new();
        push(Source { prompt: Some(source), key: Some(key), references, fields }, ids);
    }
    if let Some(path) = &arguments.prompts {
        for record in PromptReader::open(path)? {
            let record = record?;
            let options = record.chat_options(options);
            let PromptRecord { line, prompt, mut fields, .. } = record;
            let ids = codec
                .prompt(&prompt, &options)
                .with_context(|| format!("{}:{line}", path.display()))?;
            anyhow::ensure!(
                ids.len() <= context,
                "{}:{line}: the prompt has {} tokens, but the model's context is {context}; shorten or remove the prompt",
                path.display(),
                ids.len()
            );
            let references = take_references(&mut fields);
            push(Source { prompt: Some(prompt), key: None, references, fields }, ids);
        }
        anyhow::ensure!(!prompts.is_empty(), "{} has no prompts", path.display());
    } else if !has_prompts {
        let begin = codec.begin_id().context(
            "the model has no beginning-of-text token, so a prompt is required; use --prompt TEXT or --prompts FILE",
        )?;
        push(Source::default(), vec![begin]);
    }
    Ok((sources, prompts))
}

fn write_lines(
    output: &mut dyn Write,
    codec: &Codec,
    sources: &[Source],
    groups: &[Group],
    settings: &Settings<'_>,
) -> io::Result<()> {
    for (source, group) in sources.iter().zip(groups) {
        for completion in group.completions() {
            let ids: Vec<u32> = completion.action_ids().collect();
            let line = Line {
                prompt_key: source.key.as_deref(),
                references: &source.references,
                fields: &source.fields,
                text: codec.is_text().then(|| codec.decode(&ids)),
                ..Line::new(source.prompt.as_ref(), &group.prompt.ids, completion, settings)
            };
            serde_json::to_writer(&mut *output, &line)?;
            output.write_all(b"\n")?;
        }
    }
    output.flush()
}

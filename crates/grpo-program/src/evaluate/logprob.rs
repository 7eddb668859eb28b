//! `grpo logprob`: scores given completions.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{
    ChatOptions, Codec, CompletionSource, DataError, PromptReader, PromptRecord, counted,
};
use grpo_model::{CompletionScores, Frozen, Policy, all_logprobs, score_completions};
use grpo_run::{CompletionLogprobs, LogprobTable};
use grpo_task::device;
use grpo_task::models::{Trained, load};
use grpo_task::output::{FileInPlace, Formats, JSON_LINES, refuse_same, say_aside};
use grpo_task::task::Tasks;
use grpo_task::visible::data_output;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::LogprobArguments;

/// Keys of sampled completions that are not copied to the output: they describe how the completion was
/// sampled, or repeat what is in the output.
const OF_SAMPLES: [&str; 7] =
    ["completion_ids", "entropies", "finish", "logprobs", "prompt_ids", "settings", "sum"];

/// Further columns of recorded completions that are not copied.
const OF_RECORDS: [&str; 14] = [
    "actions",
    "advantage",
    "bonus",
    // The name of `outcomes` before.
    "fates",
    "gradients",
    "info",
    "outcome",
    "outcomes",
    "policy_version",
    "prompt",
    "reason",
    "ref_logprobs",
    "sampling_logprobs",
    "surrogate_gradients",
];

/// An output line.
#[derive(Serialize)]
struct Line {
    /// Same as in the input.
    prompt: Value,
    /// Same as in the input.
    completion: Value,
    /// Other keys of the input, e.g. the reference that an evaluation needs.
    #[serde(flatten)]
    kept: Map<String, Value>,
    /// Scored token ids, if the completion was given as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_ids: Option<Vec<u32>>,
    /// Log-probability of each token.
    logprobs: Vec<f64>,
    /// Entropy of each token's distribution, in nats.
    entropies: Vec<f64>,
    /// Sum of `logprobs`.
    sum: f64,
}

/// An input record with validated token ids.
struct Row {
    record: PromptRecord,
    prompt: Vec<u32>,
    completion: Vec<u32>,
}

pub(crate) fn run(arguments: &LogprobArguments, tasks: &Tasks) -> anyhow::Result<()> {
    // Same range as for sampling. Logits overflow outside it.
    anyhow::ensure!(
        (0.001..=1000.0).contains(&arguments.temperature),
        "--temperature {} is out of range; expected 0.001 to 1000",
        arguments.temperature
    );
    anyhow::ensure!(arguments.batch_size > 0, "--batch-size 0 is out of range; expected 1 or more");
    let mut full = arguments.full.as_deref().map(|path| full_file(path, arguments)).transpose()?;
    let inputs: [&Path; 1] = [&arguments.input];
    let create =
        |path: &PathBuf| FileInPlace::create_beside(path, JSON_LINES, &inputs, arguments.force);
    let output = arguments.output.as_ref().map(create).transpose()?;
    let trained = Trained::argument(arguments.adapter.as_deref());
    let loaded =
        load(&arguments.model, &tasks.formats(), trained, arguments.weights, &device::device()?)?;
    let options = loaded.chat_options(arguments.thinking, &arguments.model)?;
    let model = Frozen::snapshot(&loaded.policy);
    let reader = PromptReader::open_texts(&arguments.input)?;
    let scored = Scored { codec: &loaded.spec.codec, options: &options, model: &model, arguments };
    let table = full.as_mut().map(LogprobTable::new).transpose();
    let mut table = table.context("cannot write --full")?;
    let (output, count) = match output {
        Some(mut file) => {
            let count = score_all(reader, &scored, &mut table, &mut file)?;
            (Some(file), count)
        }
        None => (None, score_all(reader, &scored, &mut table, &mut data_output())?),
    };
    table.map(LogprobTable::finish).transpose().context("cannot write --full")?;
    FileInPlace::finish_all([output, full].into_iter().flatten())?;
    for path in arguments.output.iter().chain(&arguments.full) {
        let scored = counted(count, "completion");
        say_aside(format_args!("written      {} ({scored})", path.display()));
    }
    Ok(())
}

/// The format of `--full`.
const PARQUET: Formats = Formats { written: "a Parquet file", endings: &["parquet"] };

/// Creates the file for `--full`.
fn full_file(path: &Path, arguments: &LogprobArguments) -> anyhow::Result<FileInPlace> {
    PARQUET.require("--full", path)?;
    let full = path.to_owned();
    refuse_same(&[("--output", arguments.output.as_ref()), ("--full", Some(&full))])?;
    FileInPlace::create_for("--full", path, PARQUET, &[&arguments.input], arguments.force)
}

/// The scoring model and its settings.
struct Scored<'a> {
    codec: &'a Codec,
    options: &'a ChatOptions,
    model: &'a Frozen<Policy>,
    arguments: &'a LogprobArguments,
}

fn score_all(
    reader: PromptReader,
    scored: &Scored<'_>,
    full: &mut Option<LogprobTable<&mut FileInPlace>>,
    output: &mut dyn Write,
) -> anyhow::Result<usize> {
    let &Scored { codec, options, model, arguments } = scored;
    let mut rows = reader.map(|record| {
        let record = record?;
        let line = record.line;
        row(record, codec, options, model)
            .with_context(|| format!("{}:{line}", arguments.input.display()))
    });
    let mut count = 0;
    loop {
        let batch: Vec<Row> =
            rows.by_ref().take(arguments.batch_size).collect::<anyhow::Result<_>>()?;
        if batch.is_empty() {
            break;
        }
        count += batch.len();
        let pairs: Vec<(&[u32], &[u32])> =
            batch.iter().map(|row| (row.prompt.as_slice(), row.completion.as_slice())).collect();
        let scores = score_completions(model, &pairs, arguments.temperature);
        for (row, scores) in batch.into_iter().zip(scores) {
            // Non-finite numbers would become `null` in JSON.
            anyhow::ensure!(
                scores.logprobs.iter().chain(&scores.entropies).all(|score| score.is_finite()),
                "{}:{}: cannot score: the model's logits are not finite",
                arguments.input.display(),
                row.record.line
            );
            if let Some(table) = full {
                let pair = (row.prompt.as_slice(), row.completion.as_slice());
                let logprobs = all_logprobs(model, pair, arguments.temperature);
                let (line, ids) = (row.record.line, row.completion.clone());
                let written = table.push(CompletionLogprobs { line, ids, logprobs });
                written.context("cannot write --full")?;
            }
            serde_json::to_writer(&mut *output, &line(row, scores))
                .map_err(io::Error::from)
                .and_then(|()| output.write_all(b"\n"))
                .context("cannot write the scores")?;
        }
    }
    anyhow::ensure!(count > 0, "{} contains nothing to score", arguments.input.display());
    output.flush().context("cannot write the scores")?;
    Ok(count)
}

fn row(
    record: PromptRecord,
    codec: &Codec,
    options: &ChatOptions,
    model: &Frozen<Policy>,
) -> anyhow::Result<Row> {
    let prompt = match codec.prompt(&record.prompt, options) {
        Err(DataError::EmptyPrompt) if record.is_text => Vec::new(),
        prompt => prompt?,
    };
    let source = record.completion.as_ref().context(
        "nothing to score: a line requires `completion` or `completion_ids` in addition to its prompt",
    )?;
    let completion = codec.completion(source)?;
    anyhow::ensure!(!completion.is_empty(), "nothing to score: the completion has no tokens");
    // As in supervised training, nothing predicts the first token of a text.
    let (prompt, completion) = match prompt.is_empty() {
        true => (completion[..1].to_vec(), completion[1..].to_vec()),
        false => (prompt, completion),
    };
    anyhow::ensure!(
        !completion.is_empty(),
        "nothing to score: the text is a single token, and the model has no beginning-of-text token before it"
    );
    // The last token is scored but not fed to the model.
    let tokens = prompt.len() + completion.len() - 1;
    let context = model.context_length();
    anyhow::ensure!(
        tokens <= context,
        "prompt and completion have {} tokens, more than the model's context of {context}",
        tokens + 1
    );
    Ok(Row { record, prompt, completion })
}

fn line(row: Row, scores: CompletionScores) -> Line {
    let PromptRecord { prompt, completion, mut fields, .. } = row.record;
    let completion = completion.unwrap_or(CompletionSource::Ids(Vec::new()));
    // A record with text and ids was scored by its ids, and keeps its text. In recorded completions,
    // `prompt` is an index.
    let of_record = fields.contains_key("sampling_logprobs");
    let (prompt_key, key) =
        if of_record { ("prompt_text", "text") } else { ("prompt", "completion") };
    let written = fields.remove(prompt_key).filter(|prompt| !prompt.is_null());
    let prompt = written.unwrap_or_else(|| json!(prompt));
    let completion = fields.remove(key).unwrap_or_else(|| json!(completion));
    let was_text = !completion.is_array() || completion[0].is_object();
    fields.retain(|key, _| {
        let key = key.as_str();
        !(OF_SAMPLES.contains(&key) || of_record && OF_RECORDS.contains(&key))
    });
    Line {
        prompt,
        completion,
        kept: fields,
        completion_ids: was_text.then_some(row.completion),
        sum: scores.logprobs.iter().sum(),
        logprobs: scores.logprobs,
        entropies: scores.entropies,
    }
}

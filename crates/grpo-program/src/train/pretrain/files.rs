//! Pre-training output: the model, sampled completions and the final tables.

use std::path::Path;

use anyhow::Context;
use comfy_table::Table;
use grpo_model::Policy;
use grpo_run::{JsonLinesWriter, RunFolder, VerifiedFolder};
use grpo_task::checkpoint;
use grpo_task::models::Writer;
use grpo_task::output::{labelled, say, table};
use grpo_task::supervised_run::{ModelFiles, SupervisedRun};
use grpo_train::{NextTokenObjective, PretrainConfig, PretrainMeasures, Validation};
use serde_json::{Map, Value};

/// Name of the file with completions of validation prompts.
const SAMPLES: &str = "samples.jsonl";

/// Writes the policy and its validation results.
pub(super) struct PolicyFiles {
    writer: Writer,
    kind: &'static str,
    /// Whether validation runs after each epoch.
    by_epochs: bool,
    /// Whether completions of validation prompts are sampled.
    has_samples: bool,
    samples: Option<JsonLinesWriter>,
}

impl PolicyFiles {
    /// Creates a writer that saves the policy in the subfolder `kind` of the run.
    pub(super) fn new(writer: Writer, kind: &'static str, config: &PretrainConfig) -> Self {
        let (by_epochs, has_samples) = (config.eval_every == 0, config.eval.is_some());
        Self { writer, kind, by_epochs, has_samples, samples: None }
    }
}

impl<'a> ModelFiles<NextTokenObjective<'a, Policy>> for PolicyFiles {
    const SECTION: &'static str = "pretrain";

    fn write(&self, folder: &Path, policy: &Policy) -> anyhow::Result<()> {
        self.writer.fill(folder, policy)
    }

    fn read(&self, folder: &VerifiedFolder, like: &Policy) -> anyhow::Result<Policy> {
        checkpoint::policy(folder, like)
    }

    fn folder(&self) -> Option<&'static str> {
        Some(self.kind)
    }

    fn when(&self, validation: &Validation<PretrainMeasures>) -> String {
        match self.by_epochs {
            true => format!("epoch {}", validation.measures.epoch),
            false => format!("step {}", validation.train_step),
        }
    }

    fn words(&self, measures: &PretrainMeasures) -> String {
        let PretrainMeasures { train_loss, eval_loss, .. } = measures;
        format!("training loss {train_loss:.4}, validation loss {eval_loss:.4}")
    }

    fn begin(&mut self, run: &RunFolder, done: u64) -> anyhow::Result<()> {
        if self.has_samples {
            let is_before =
                |row: &Map<String, Value>| number(row, "train_step") <= Some(done as f64);
            self.samples = Some(run.lines_to(SAMPLES, is_before)?);
        }
        Ok(())
    }

    fn validated(&mut self, measures: &PretrainMeasures) -> anyhow::Result<()> {
        for row in &measures.rows {
            self.samples.iter_mut().try_for_each(|file| file.append(row))?;
        }
        Ok(())
    }
}

fn number(line: &Map<String, Value>, name: &str) -> Option<f64> {
    line.get(name)?.as_f64()
}

/// Prints the tables of samples and reports which model was kept.
pub(super) fn summary(run: &SupervisedRun) -> anyhow::Result<()> {
    let folder = RunFolder::open(run.path())?;
    let mut validations = folder.read_metrics()?;
    validations.retain(|line| line.contains_key("eval_loss"));
    let best = validations.iter().rfind(|line| line.get("best") == Some(&Value::Bool(true)));
    let (Some(first), Some(best), Some(last)) = (validations.first(), best, validations.last())
    else {
        return Ok(());
    };
    let step = best.get("train_step").context("the validation record has no step")?;
    if folder.has(SAMPLES)? {
        let mut rows: Vec<Map<String, Value>> = folder.lines_of(SAMPLES)?;
        rows.retain(|row| row.get("train_step") == Some(step));
        if !rows.is_empty() {
            say(format_args!("completions  of the selected model, after step {step}"));
        }
        for row in &rows {
            let keys =
                [("prompt", "prompt"), ("  generated", "generated"), ("  truth", "ground_truth")];
            for (name, key) in keys {
                let text = row.get(key).and_then(Value::as_str).unwrap_or_default();
                say(format_args!("{}", labelled(name, text)));
            }
        }
    }
    if best.contains_key("eval_self_bleu") {
        say(format_args!("{}", measures_table([first, best, last])));
    }
    let loss = number(best, "eval_loss").unwrap_or(f64::NAN);
    say(format_args!("best         step {step}, validation loss {loss:.4}"));
    Ok(())
}

fn measures_table(validations: [&Map<String, Value>; 3]) -> Table {
    let measures = [
        ("validation loss", "eval_loss"),
        ("self-BLEU", "eval_self_bleu"),
        ("distinct-1", "eval_distinct_1"),
        ("distinct-2", "eval_distinct_2"),
        ("distinct-3", "eval_distinct_3"),
        ("semantic diversity", "eval_semantic_diversity"),
        ("entropy of tokens (nats)", "eval_output_entropy"),
        ("characters per reply", "eval_reply_length"),
        ("unique words per reply", "eval_unique_words"),
        ("empty replies", "eval_empty"),
    ];
    let [first, best, last] =
        validations.map(|line| line.get("train_step").map_or(String::new(), Value::to_string));
    let header = [
        String::new(),
        format!("first (step {first})"),
        format!("kept (step {best})"),
        format!("last (step {last})"),
    ];
    let rows = measures.into_iter().filter_map(|(name, key)| {
        let value = |line| Some(format!("{:.4}", number(line, key)?));
        let values = validations.into_iter().map(value).collect::<Option<Vec<String>>>()?;
        Some(std::iter::once(name.to_owned()).chain(values))
    });
    table(header, rows, 1..)
}

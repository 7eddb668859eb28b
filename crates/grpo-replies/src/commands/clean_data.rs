//! `grpo clean-data`: selects pairs for training.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{
    CleanedPairs, CleaningPlan, CleaningRules, CollectionFilter, MOST_LISTED, PairFile,
    ValidationRules, read_pairs,
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use grpo_data::counted;
use grpo_data::schema::Keys;
use grpo_rewards::EmbedderConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use grpo_task::output::{
    FileInPlace, JSON_LINES, check_output, is_device, refuse_same, say, say_aside,
};
use grpo_task::run_files::refuse_other_command;
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::{config, device};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo clean-data --input collected.jsonl -o clean.jsonl --rejected rejected.jsonl
  grpo clean-data --input data/replies/replies.jsonl -o clean.jsonl --skip filter

The output starts with the best pairs. docs/configuration.md lists the rules and their settings.")]
pub(crate) struct CleanDataArguments {
    /// File of pairs (.jsonl, .jsonl.gz or .parquet), or a folder of them
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    input: PathBuf,
    /// Output file (JSON lines), compressed if the name ends in .gz
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,
    /// Output file for rejected lines, with line numbers and reasons
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    rejected: Option<PathBuf>,
    /// Configuration file (TOML) with `filter`, `validation`, `cleaning` and `embedder` sections
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<PathBuf>,
    /// Configuration value, e.g. --set validation.min_likes=1; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Configuration")]
    set: Vec<String>,
    /// Step to skip; repeatable
    #[arg(long, value_enum, value_name = "STEP", help_heading = "Configuration")]
    skip: Vec<Step>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Filters for pairs
    Filter,
    /// Validation rules for replies
    Validation,
    /// Text cleaning, deduplication and sorting by quality
    Cleaning,
}

/// Configuration of `grpo clean-data`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CleaningFile {
    filter: CollectionFilter,
    validation: ValidationRules,
    cleaning: CleaningRules,
    /// Embedder of `max_cosine`.
    embedder: EmbedderConfig,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Filter, validate and clean tweets and replies",
        "Use --rejected to write every removed pair with its reasons to a file.",
    ];
    TaskCommand::new("clean-data", &about, CommandGroup::Prepare, |_, arguments| run(arguments))
        .with_configuration(Keys::of::<CleaningFile>())
}

pub(crate) fn run(arguments: &CleanDataArguments) -> anyhow::Result<()> {
    let other = arguments.rejected.as_ref();
    refuse_same(&[("--output", Some(&arguments.output)), ("--rejected", other)])?;
    let inputs: Vec<&Path> =
        std::iter::once(&arguments.input).chain(&arguments.config).map(PathBuf::as_path).collect();
    for (option, path) in [("-o", Some(&arguments.output)), ("--rejected", other)] {
        path.map_or(Ok(()), |path| {
            check_output(option, path, JSON_LINES, &inputs, arguments.force)
        })?;
    }
    let file = match &arguments.config {
        Some(path) => {
            let keys = config::load::<toml::Table>(path, &arguments.set)?;
            refuse_other_command(&keys.value, path, "clean-data")?;
            keys.parse::<CleaningFile>()?.value
        }
        None => config::of_sets::<CleaningFile>(&arguments.set)?.value,
    };
    let does = |step| !arguments.skip.contains(&step);
    let plan = CleaningPlan {
        filter: does(Step::Filter).then_some(file.filter),
        validation: does(Step::Validation).then_some(file.validation),
        cleaning: does(Step::Cleaning).then_some(file.cleaning),
    };
    plan.check()?;
    file.embedder.check()?;
    let mut read = read_pairs(&arguments.input)?;
    // The input may be a folder, whose files are known now.
    let inputs: Vec<&Path> = read.files.iter().map(PathBuf::as_path).collect();
    let create = |option, path: &PathBuf| {
        FileInPlace::create_for(option, path, JSON_LINES, &inputs, arguments.force)
    };
    let kept = create("-o", &arguments.output)?;
    let gone = other.map(|path| create("--rejected", path)).transpose()?;
    let embedder = file.embedder.build(&device::device()?)?;
    let pairs = std::mem::take(&mut read.pairs);
    let lines = pairs.len();
    // Report progress before a step that can take a while.
    tell_read(arguments, &read, lines);
    let cleaned = plan.run(pairs, &*embedder)?;
    let gone = gone.map(|file| written(file, rejected(&read, &cleaned).into_iter())).transpose()?;
    if cleaned.pairs.is_empty() {
        // The list of rejected lines is most useful if no pairs are left.
        gone.into_iter().try_for_each(FileInPlace::finish)?;
        anyhow::bail!(
            "{} in {} {} removed ({}); change these rules with --config, or skip steps with --skip",
            if lines == 1 { "the only pair".to_owned() } else { format!("all {lines} pairs") },
            arguments.input.display(),
            if lines == 1 { "was" } else { "were" },
            commonest(&cleaned)
        );
    }

    let pairs = cleaned.pairs.iter().map(|pair| {
        let mut object = pair.object();
        // Without the validation step, no pair is marked as valid.
        if plan.validation.is_some() {
            object.insert("validation".to_owned(), json!({ "valid": true, "reasons": [] }));
        }
        Value::Object(object)
    });
    let kept = written(kept, pairs)?;
    FileInPlace::finish_all([Some(kept), gone].into_iter().flatten())?;
    tell(arguments, &cleaned);
    Ok(())
}

/// Returns the most frequent rules, sorted by the number of pairs that they dropped.
fn commonest(cleaned: &CleanedPairs) -> String {
    let mut reasons: Vec<(String, u64)> = cleaned.report().rejection_reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = reasons.iter().take(3).map(|(rule, count)| format!("{rule} ({count})"));
    named.collect::<Vec<_>>().join(", ")
}

fn written(
    mut file: FileInPlace,
    objects: impl Iterator<Item = Value>,
) -> anyhow::Result<FileInPlace> {
    for object in objects {
        let written = writeln!(file, "{object}");
        written.with_context(|| format!("cannot write {}", file.path().display()))?;
    }
    Ok(file)
}

/// Returns all dropped lines in input order.
fn rejected(read: &PairFile, cleaned: &CleanedPairs) -> Vec<Value> {
    let mut lines = BTreeMap::new();
    let order = |file: &Path| read.files.iter().position(|other| other == file);
    for line in &read.skipped {
        let object = json!({
            "file": line.file,
            "line": line.line,
            "step": "reading",
            "validation": {
                "valid": false,
                "reasons": [{ "rule": "unreadable", "found": line.reason }],
            },
        });
        lines.insert((order(&line.file), line.line), object);
    }
    for rejected in &cleaned.rejected {
        let pair = &rejected.pair;
        let object = json!({
            "file": pair.file,
            "line": pair.line,
            "step": rejected.step,
            "validation": { "valid": false, "reasons": rejected.reasons },
            "record": pair.object(),
        });
        lines.insert((order(&pair.file), pair.line), object);
    }
    lines.into_values().collect()
}

impl CleanDataArguments {
    /// Returns the function that prints messages. If pairs are written to standard output, messages
    /// go elsewhere.
    fn say(&self) -> fn(fmt::Arguments<'_>) {
        let files = [Some(&self.output), self.rejected.as_ref()];
        match files.into_iter().flatten().any(|path| is_device(path)) {
            true => say_aside,
            false => say,
        }
    }
}

fn tell_read(arguments: &CleanDataArguments, read: &PairFile, pairs: usize) {
    let say = arguments.say();
    let path = arguments.input.display();
    say(format_args!(
        "{path}: {}, {}",
        counted(pairs, "pair"),
        counted(read.invalid, "invalid line")
    ));
    for line in read.skipped.iter().take(MOST_LINES) {
        say(format_args!("  left out: {line}"));
    }
    if read.invalid > MOST_LINES {
        let more = read.invalid - MOST_LINES;
        let all = match read.invalid > MOST_LISTED {
            true => format!("the first {MOST_LISTED}"),
            false => "all of them".to_owned(),
        };
        say(format_args!("  and {more} more (--rejected writes {all})"));
    }
}

fn tell(arguments: &CleanDataArguments, cleaned: &CleanedPairs) {
    let (report, say) = (cleaned.report(), arguments.say());
    say(format_args!(
        "kept         {} of {} ({:.1} %)",
        report.valid, report.total, report.valid_percentage
    ));
    for (rule, count) in &report.rejection_reasons {
        say(format_args!("  {rule:<20} {} removed", counted(*count, "pair")));
    }
    for (rule, count) in &report.not_judged {
        say(format_args!("  {rule:<20} {} not checked (missing field)", counted(*count, "pair")));
    }
    say(format_args!("pairs        {}", arguments.output.display()));
    if let Some(path) = &arguments.rejected {
        say(format_args!("rejected     {}", path.display()));
    }
}

/// Maximum number of lines that are printed individually.
const MOST_LINES: usize = 20;

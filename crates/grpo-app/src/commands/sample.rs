//! `grpo sample`: samples molecules, or completions of prompts.

mod completions;

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use grpo_data::ChatOptions;

use crate::args::SampleArguments;
use crate::device;
use crate::models::{Trained, load};
use crate::output::{Formats, check_output};
use crate::phase::Phase;
use crate::task::{Sampling, TaskPrompt, Tasks};

/// Maximum number of samples, which are all kept in memory.
const MOST: u32 = 10_000_000;

/// What the models of all tasks write. Each model writes some of it.
const SAMPLES: Formats = Formats {
    written: "JSON lines, or a list or table of molecules",
    endings: &["jsonl", "json", "smi", "csv", "txt"],
};

pub(crate) fn run(
    arguments: &SampleArguments,
    options: &ArgMatches,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    if let Some(number) = arguments.number {
        anyhow::ensure!(number > 0, "-n 0 is out of range; expected 1 or more");
        anyhow::ensure!(number <= MOST, "-n {number} is out of range; expected 1 to {MOST}");
    }
    anyhow::ensure!(
        arguments.thinking.is_none() || arguments.chat || arguments.prompts.is_some(),
        "--thinking requires --chat with --prompt; add --chat or remove --thinking"
    );
    // Before the model is loaded. The file is created once it is known what is sampled.
    if let Some(path) = &arguments.output {
        let of_tasks: Vec<PathBuf> =
            tasks.sampling().flat_map(|task| task.inputs(options)).collect();
        let inputs = arguments.prompts.iter().chain(&of_tasks);
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        check_output("-o", path, SAMPLES, &inputs, arguments.force)?;
    }
    let trained = Trained::argument(arguments.adapter.as_deref());
    let phase = Phase::begin(format!("loading {}", arguments.model.display()));
    let loaded =
        load(&arguments.model, &tasks.formats(), trained, arguments.weights, &device::device()?)?;
    drop(phase);
    let codec = &loaded.spec.codec;
    anyhow::ensure!(
        arguments.stop.is_empty() || codec.is_text(),
        "--stop requires a tokenizer, but `{}` has no tokenizer.json; remove --stop, or add the model's tokenizer.json to the folder",
        arguments.model.display()
    );
    let mut of_tasks = Vec::new();
    for task in tasks.sampling() {
        of_tasks.extend(task.prompts(options)?);
    }
    let is_prompted =
        !arguments.prompt.is_empty() || arguments.prompts.is_some() || !of_tasks.is_empty();
    for task in tasks.sampling() {
        if let (false, Some(sample)) = (is_prompted, task.sampler(codec)) {
            return sample(&Sampling { arguments, options, loaded: &loaded });
        }
        task.check_unused(options)?;
    }
    anyhow::ensure!(
        !arguments.chat || !arguments.prompt.is_empty(),
        "--chat is only valid with --prompt; in a file, write prompts as `messages`"
    );
    if let (Some(TaskPrompt { option, .. }), false) = (of_tasks.first(), codec.has_chat_template())
    {
        anyhow::bail!(
            "{} requires a model with a chat template, but {} has none; choose another model with --model",
            option.split(' ').next().unwrap_or(option),
            arguments.model.display()
        );
    }
    // Models trained for a task reply without thinking.
    let chat = match of_tasks.is_empty() {
        true => loaded.chat_options(arguments.thinking, &arguments.model)?,
        false => ChatOptions::for_answer(Some(false)),
    };
    completions::run(arguments, of_tasks, &loaded, &chat)
}

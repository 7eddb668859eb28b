//! `grpo sample`: samples molecules, or completions of prompts.

mod completions;

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use grpo_data::ChatOptions;
use grpo_model::is_gguf_file;
use grpo_task::args::SampleArguments;
use grpo_task::device;
use grpo_task::models::{Trained, load};
use grpo_task::output::{Formats, JSON_LINES, check_output};
use grpo_task::phase::Phase;
use grpo_task::task::{Sampling, TaskPrompt, Tasks};

/// What the models of all tasks write. Each model writes some of it.
const SAMPLES: Formats = Formats {
    written: "JSON lines, or a list or table of molecules",
    endings: &["jsonl", "json", "smi", "csv", "txt"],
};

/// Returns what the model writes, as far as its folder shows it.
fn outputs(arguments: &SampleArguments, options: &ArgMatches, tasks: &Tasks) -> Formats {
    let SampleArguments { model, prompt, prompts, .. } = arguments;
    let is_prompted = !prompt.is_empty() || prompts.is_some();
    match model.is_dir() {
        _ if is_gguf_file(model) => JSON_LINES,
        // The next error is about the model.
        false => SAMPLES,
        true if is_prompted => JSON_LINES,
        true => {
            let of_task = tasks.sampling().find_map(|task| task.outputs(options, model));
            of_task.unwrap_or(JSON_LINES)
        }
    }
}

pub(crate) fn run(
    arguments: &SampleArguments,
    options: &ArgMatches,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    arguments.check()?;
    // Before the model is loaded. The file is created once it is known what is sampled.
    if let Some(path) = &arguments.output {
        let of_tasks: Vec<PathBuf> =
            tasks.sampling().flat_map(|task| task.inputs(options)).collect();
        let inputs = arguments.prompts.iter().chain(&of_tasks);
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        check_output("-o", path, outputs(arguments, options, tasks), &inputs, arguments.force)?;
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

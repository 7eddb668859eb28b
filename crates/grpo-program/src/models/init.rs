//! `grpo init`: creates a model folder with random weights.

use std::path::Path;

use grpo_model::{ModelSpec, Transformer, is_gguf_file};
use grpo_task::device;
use grpo_task::models::{check_codec, check_new_model, write_new_model};
use grpo_task::output::say_aside;
use grpo_task::task::Tasks;

use crate::args::InitArguments;

pub(crate) fn run(arguments: &InitArguments, tasks: &Tasks) -> anyhow::Result<()> {
    check_new_model(&arguments.output)?;
    anyhow::ensure!(
        !is_gguf_file(&arguments.config),
        "{} is a GGUF file, which has weights already; expected a config.json",
        arguments.config.display()
    );
    let config = tasks.families().read(&arguments.config)?;
    let parameters = config.description().least_parameters();
    let available = grpo_runtime::available_memory().map_or(f64::INFINITY, |bytes| bytes as f64);
    anyhow::ensure!(
        4.0 * parameters < available,
        "{}: a model of this size has at least {:.1} billion parameters and needs {:.1} GB, but only {:.1} GB is available; reduce n_layer, n_embd or the vocabulary",
        arguments.config.display(),
        parameters / 1e9,
        4.0 * parameters / 1e9,
        available / 1e9
    );
    // The tokenizer is copied if it is in the same folder as the config.json.
    let beside = match arguments.config.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let spec = ModelSpec::new(config, beside, &tasks.formats())?;
    check_codec(&spec, beside)?;
    let model = Transformer::random(&spec.config, arguments.seed, &device::device()?)?;
    write_new_model(&arguments.output, &spec, &model, arguments.dtype)?;
    say_aside(format_args!("written      {}", arguments.output.display()));
    Ok(())
}

//! `grpo sample`: molecules out of a model, or completions of prompts.

mod completions;
pub(crate) mod molecules;

use clap::ArgMatches;
use grpo_data::{Prompt, PromptSource};
use grpo_model::LanguageModel;
use grpo_sampling::SamplingSettings;

use crate::args::SampleArguments;
use crate::device;
use crate::generate::Generation;
use crate::models::{Loaded, Trained, load};
use crate::task::{Sampling, Tasks};

/// All that are drawn are held in memory at once.
const MOST: u32 = 10_000_000;

pub(crate) fn run(
    arguments: &SampleArguments,
    options: &ArgMatches,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    if let Some(number) = arguments.number {
        anyhow::ensure!(number > 0, "-n 0 would draw nothing; use 1 or more");
        anyhow::ensure!(number <= MOST, "-n {number} is out of range; expected 1 to {MOST}");
    }
    let trained = Trained::argument(arguments.adapter.as_deref());
    let loaded = load(&arguments.model, tasks, trained, arguments.weights, &device::device())?;
    let codec = &loaded.spec.codec;
    anyhow::ensure!(
        arguments.stop.is_empty() || codec.is_text(),
        "--stop is looked for in text, and `{}` has no tokenizer.json; leave it out, or put the model's own beside its weights",
        arguments.model.display()
    );
    let of_tasks: Vec<(String, PromptSource)> =
        tasks.sampling().flat_map(|task| task.prompts(options)).collect();
    let is_prompted =
        !arguments.prompt.is_empty() || arguments.prompts.is_some() || !of_tasks.is_empty();
    for task in tasks.sampling() {
        if !is_prompted && task.takes(codec) {
            return task.sample(&Sampling { arguments, options, loaded: &loaded });
        }
        task.check_unused(options)?;
    }
    anyhow::ensure!(
        !arguments.chat || !arguments.prompt.is_empty(),
        "--chat is for --prompt; give the prompts of a file as `messages`"
    );
    // A task's completions have no thoughts.
    let thinking = if of_tasks.is_empty() { arguments.thinking } else { Some(false) };
    let chat = loaded.chat_options(thinking, &arguments.model)?;
    completions::run(arguments, of_tasks, &loaded, &chat)
}

/// How completions of `prompts` are drawn; where the arguments do not say, with as many new tokens as the model can
/// see behind the longest, and `most`.
fn generation(
    arguments: &SampleArguments,
    loaded: &Loaded,
    prompts: &[Prompt],
    most: usize,
) -> Generation {
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
    // The last token is drawn, but never fed. A prompt without room is refused later.
    let room = (loaded.policy.context_length() + 1).saturating_sub(longest).max(1);
    Generation {
        seed: arguments.seed,
        sampling: SamplingSettings {
            temperature: arguments.temperature,
            top_k: arguments.top_k,
            top_p: arguments.top_p,
            min_p: arguments.min_p,
            repetition_penalty: arguments.repetition_penalty,
            forbidden: Vec::new(),
        },
        max_new_tokens: arguments.max_new_tokens.unwrap_or(most.min(room)),
        stop: arguments.stop.clone(),
        batch_size: arguments.batch_size,
    }
}

//! The `grpo fill` command, which fills blanks in text.

mod arguments;
mod comparison;
mod models;
mod output;
mod texts;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use crate::Characters;
use crate::Judge;
use crate::{Critic, Denoising, DenoisingSettings, Filled, Quality, RemaskSchedule, Trust};
use anyhow::Context;
use grpo_data::{Prompt, Purpose, TextCodec};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, LanguageModel};
use rayon::prelude::*;

use crate::sections::LoadedInfiller;
pub(crate) use arguments::FillArguments;
use arguments::Order;
use grpo_task::device;
use grpo_task::output::note_closed;
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::visible::{Visible, data_output};
use models::{critic, judge};
use output::Completion;
use texts::Text;

/// Maximum number of iterations. Most texts converge within 15.
const MOST_ITERATIONS: usize = 1000;

/// Maximum number of completions per text. All of them are held in memory.
const MOST: u32 = 100_000;

/// Returns the `fill` subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Fill in blanks in text using an infiller",
        "Shows several completions of each text with their log-probabilities and, with --judge, the judge's reward, best first.",
    ];
    TaskCommand::new("fill", &about, CommandGroup::Use, |_, arguments| run(arguments))
}

pub(crate) fn run(arguments: &FillArguments) -> anyhow::Result<()> {
    check(arguments)?;
    let arguments = &arguments.found()?;
    let filled = Filling::new(arguments, &arguments.model)?;
    let characters = filled.infiller.characters();
    let written = match &arguments.before {
        None => write(arguments.json, &filled.texts, &filled.groups, characters),
        Some(folder) => {
            let before = Filling::new(arguments, folder)?;
            anyhow::ensure!(
                before.infiller.characters() == characters,
                "{} and {} have different vocabularies and cannot be compared; use models trained on the same text",
                folder.display(),
                arguments.model.display()
            );
            let page =
                comparison::comparison(&filled.texts, &before.groups, &filled.groups, characters);
            data_output().write_all(page.as_bytes())
        }
    };
    written.context("cannot write to standard output")
}

/// A loaded infiller, and the texts with their completions.
struct Filling {
    infiller: LoadedInfiller,
    texts: Vec<Text>,
    groups: Vec<Vec<Completion>>,
}

impl Filling {
    /// Loads the infiller in `folder` and fills the given texts.
    fn new(arguments: &FillArguments, folder: &Path) -> anyhow::Result<Self> {
        let infiller = LoadedInfiller::load(folder, &device::device()?)?;
        let characters = infiller.characters();
        let texts = texts::texts(arguments, characters, infiller.model.context_length())?;
        let load = |folder| judge(folder, characters, &texts);
        let judges = Judges {
            first: arguments.judge.as_deref().map(load).transpose()?,
            second: arguments.second_judge.as_deref().map(load).transpose()?,
            characters,
        };
        let remask = arguments.remask.as_deref().unwrap_or("probability");
        let critic = critic(remask, &infiller, &texts)?;
        let order = order(arguments);
        let of_first = |ids: &[u32]| judges.reward_of_first(ids).unwrap_or(f64::NAN);
        let quality = match order {
            Order::None => Quality::None,
            Order::Own => Quality::Own,
            Order::Judge => Quality::Judge(&of_first),
        };
        let groups = fill(arguments, &infiller, &texts, critic.as_ref(), quality)?;
        let judged = groups.into_iter().map(|group| judges.judged(group, order));
        let groups: Vec<Vec<Completion>> = judged.collect::<anyhow::Result<_>>()?;
        Ok(Self { infiller, texts, groups })
    }
}

/// Rejects arguments that are out of range or have no effect.
fn check(arguments: &FillArguments) -> anyhow::Result<()> {
    let number = arguments.number;
    anyhow::ensure!(
        (1..=MOST).contains(&number),
        "-n {number} is out of range; expected 1 to {MOST}"
    );
    let iterations = arguments.iterations;
    anyhow::ensure!(
        iterations <= MOST_ITERATIONS,
        "--iterations {iterations} is out of range; expected at most {MOST_ITERATIONS}"
    );
    // Clap drops the requirement if the required argument conflicts with another one that is
    // present, as `--held-out` conflicts with `--text`.
    let of_passages = [
        ("--unit", arguments.unit.is_some()),
        ("--length", arguments.length.is_some()),
        ("--validation-fraction", arguments.validation_fraction.is_some()),
        ("--passages", arguments.passages.is_some()),
    ];
    if let (None, Some(name)) = (&arguments.held_out, first_there(&of_passages)) {
        anyhow::bail!("{name} requires --held-out FILE; add it, or remove the option");
    }
    if arguments.iterations <= 1 && arguments.remask_ratios.is_empty() {
        let of_more = [
            ("--remask", arguments.remask.is_some()),
            ("--remask-rule", arguments.remask_rule.is_some()),
            ("--randomness", arguments.randomness.is_some()),
        ];
        if let Some(name) = first_there(&of_more) {
            anyhow::bail!("{name} has no effect with a single pass; add --iterations 15");
        }
    }
    anyhow::ensure!(
        order(arguments) != Order::Judge || arguments.judge.is_some(),
        "--quality judge requires a judge; add --judge FOLDER"
    );
    Ok(())
}

fn first_there<'a>(arguments: &[(&'a str, bool)]) -> Option<&'a str> {
    arguments.iter().find(|(_, is_there)| *is_there).map(|(name, _)| *name)
}

/// Returns the criterion by which completions are sorted.
fn order(arguments: &FillArguments) -> Order {
    arguments.quality.unwrap_or(match arguments.judge {
        Some(_) => Order::Judge,
        None => Order::Own,
    })
}

/// Judges that score the filled texts.
struct Judges<'a> {
    first: Option<Judge>,
    second: Option<Judge>,
    /// Characters of the infiller.
    characters: &'a Characters,
}

impl Judges<'_> {
    /// Returns 1 for natural text and 0 for corrupted text. The result is NaN if the text cannot be
    /// scored.
    fn reward(judge: &Judge, text: &str) -> f64 {
        judge.score(text).map_or(f64::NAN, |score| 1.0 - score)
    }

    fn reward_of_first(&self, ids: &[u32]) -> Option<f64> {
        self.first.as_ref().map(|judge| Self::reward(judge, &self.characters.decode(ids)))
    }

    /// Scores the completions of a text and sorts them, best first.
    fn judged(&self, group: Vec<Filled>, order: Order) -> anyhow::Result<Vec<Completion>> {
        let completion = |(sample, filled): (usize, Filled)| {
            let judge = match order {
                // Already computed as the quality.
                Order::Judge => filled.quality,
                Order::None | Order::Own => self.reward_of_first(&filled.ids),
            };
            let text = || self.characters.decode(&filled.ids);
            let second_judge = self.second.as_ref().map(|judge| Self::reward(judge, &text()));
            Completion { sample, filled, judge, second_judge }
        };
        let mut completions: Vec<Completion> =
            group.into_par_iter().enumerate().map(completion).collect();
        let mut rewards = completions.iter().flat_map(|c| c.judge.iter().chain(&c.second_judge));
        anyhow::ensure!(
            rewards.all(|reward| reward.is_finite()),
            "a judge's score is not finite: its training diverged, or its weights are damaged"
        );
        // The sort is stable, so without a quality the order is unchanged.
        completions.sort_by(|a, b| {
            let [a, b] = [a, b].map(|completion| completion.filled.quality.unwrap_or(0.0));
            b.total_cmp(&a)
        });
        Ok(completions)
    }
}

fn write(
    json: bool,
    texts: &[Text],
    groups: &[Vec<Completion>],
    characters: &Characters,
) -> io::Result<()> {
    note_closed();
    let mut output = BufWriter::new(io::stdout().lock());
    let marked = io::stdout().is_terminal();
    for (index, (text, completions)) in texts.iter().zip(groups).enumerate() {
        if json {
            output::write_json(&mut Visible::new(&mut output), text, completions, characters)?;
        } else {
            if index > 0 {
                output.write_all(b"\n\n")?;
            }
            output::write_text(&mut output, text, completions, characters, marked)?;
        }
    }
    output.flush()
}

/// Fills in the blanks in all texts.
fn fill(
    arguments: &FillArguments,
    infiller: &LoadedInfiller,
    texts: &[Text],
    critic: Option<&Critic>,
    quality: Quality<'_>,
) -> anyhow::Result<Vec<Vec<Filled>>> {
    let (model, characters) = (&infiller.model, infiller.characters());
    let sampling = SamplingSettings {
        temperature: arguments.temperature,
        top_p: Some(arguments.top_p),
        forbidden: characters.specials().to_vec(),
        ..SamplingSettings::default()
    };
    let distribution = sampling.checked(model.vocabulary_size())?;
    let ratios = &arguments.remask_ratios;
    let mut settings =
        DenoisingSettings::new(arguments.number as usize, distribution, characters.mask_id());
    if let Some(randomness) = arguments.randomness {
        settings.randomness = randomness;
    }
    if let Some(rule) = arguments.remask_rule {
        settings.rule = rule;
    }
    settings.iterations = arguments.iterations.max(1);
    if !ratios.is_empty() {
        settings.schedule = RemaskSchedule::List(ratios.clone());
        if arguments.iterations <= 1 {
            settings.iterations = ratios.len() + 1;
        }
    }
    let denoising = Denoising::new(settings, model)?;
    let of_critic;
    let trust = match critic {
        None => Trust::Probability,
        Some(critic) => {
            of_critic = |ids: &[u32]| critic.wrongness(ids);
            Trust::Critic(&of_critic)
        }
    };
    let prompts =
        texts.iter().zip(0..).map(|(text, index)| Prompt::of_ids(index, text.ids.clone()));
    let prompts: Vec<Prompt> = prompts.collect();
    let policy = Frozen::snapshot(model);
    Ok(denoising.fill(&policy, &prompts, trust, quality, arguments.seed, Purpose::EVALUATION)?)
}

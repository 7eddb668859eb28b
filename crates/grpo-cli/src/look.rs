//! A look at a policy before and after its training: completions of the same prompts with the same random numbers, and
//! what the reward says of them.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use grpo_data::{Codec, Prompt};
use grpo_eval::{MoleculeSummary, RewardSummary};
use grpo_model::Policy;
use grpo_rewards::{Outcome, RewardRunner, Sample};
use grpo_train::GrpoConfig;

use crate::generate::{Generation, generate, texts};

/// What is drawn, and how it is judged.
pub(crate) struct Look {
    codec: Codec,
    prompts: Vec<Prompt>,
    config: GrpoConfig,
    seed: u64,
}

/// What was seen.
pub(crate) enum Seen {
    /// There was nothing to draw.
    Nothing,
    Molecules(MoleculeSummary),
    Completions(RewardSummary),
}

impl Look {
    pub(crate) fn new(codec: &Codec, prompts: Vec<Prompt>, config: GrpoConfig, seed: u64) -> Self {
        Self { codec: codec.clone(), prompts, config, seed }
    }

    /// How many completions it draws.
    pub(crate) fn count(&self) -> usize {
        self.prompts.len()
    }

    /// One completion of each prompt.
    pub(crate) fn at(&self, policy: &Policy) -> anyhow::Result<Seen> {
        if self.prompts.is_empty() {
            return Ok(Seen::Nothing);
        }
        let (sampling, train) = (&self.config.sampling, &self.config.train);
        let generation = Generation {
            seed: self.seed,
            sampling: sampling.settings(),
            max_new_tokens: sampling.max_new_tokens,
            stop: sampling.stop.clone(),
            batch_size: sampling.batch_size,
        };
        let groups = generate(policy, &self.codec, &self.prompts, 1, &generation)?;
        let drawn = texts(&self.codec, &groups);
        let samples: Vec<Sample> = drawn
            .iter()
            .zip(&self.prompts)
            .map(|(text, prompt)| Sample { text: text.clone(), fields: prompt.fields.clone() })
            .collect();
        // As much time for each completion as in a step of the training, and no less altogether.
        let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
        let share = (drawn.len() as f64 / completions).max(1.0);
        let limit = Duration::from_secs_f64(train.reward_time_limit * share);
        let outcomes = RewardRunner::new(self.config.reward.build()?, limit).score(samples);
        let failed: Vec<&str> = outcomes.iter().filter_map(Outcome::failure).collect();
        if failed.len() as f64 > train.max_failed_rewards * drawn.len() as f64 {
            anyhow::bail!(
                "the reward failed for {} of the {} completions of the table; the first reason: {}",
                failed.len(),
                drawn.len(),
                failed[0]
            );
        }
        Ok(match self.codec.vocabulary() {
            Some(_) => Seen::Molecules(MoleculeSummary::of(&drawn, &outcomes, None)),
            None => Seen::Completions(RewardSummary::of(&outcomes)),
        })
    }
}

/// The table before/after.
pub(crate) fn comparison(before: &Seen, after: &Seen) -> String {
    match (before, after) {
        (Seen::Molecules(before), Seen::Molecules(after)) => of_molecules(before, after),
        (Seen::Completions(before), Seen::Completions(after)) => of_completions(before, after),
        _ => "no comparison: eval.samples = 0".to_owned(),
    }
}

/// A row of the table: its name, and which number it shows.
type Measure = (&'static str, fn(&MoleculeSummary) -> f64);

fn of_molecules(before: &MoleculeSummary, after: &MoleculeSummary) -> String {
    let rows: [Measure; 8] = [
        ("validity", |summary| summary.validity),
        ("uniqueness (of valid)", |summary| summary.uniqueness),
        ("scaffolds for each molecule", |summary| summary.scaffold_diversity),
        ("mean reward, all", |summary| summary.reward),
        ("  its standard error", |summary| summary.reward_error),
        ("mean reward, valid", |summary| summary.reward_valid),
        ("mean QED, valid", |summary| summary.qed),
        ("mean SA, valid (1 easy, 10 hard)", |summary| summary.sa),
    ];
    let rows = rows.map(|(name, value)| (name.to_owned(), value(before), value(after)));
    table(&format!("{} molecules", before.samples), &rows)
}

fn of_completions(before: &RewardSummary, after: &RewardSummary) -> String {
    let mut rows = vec![
        ("mean reward".to_owned(), before.reward, after.reward),
        ("  its standard error".to_owned(), before.reward_error, after.reward_error),
    ];
    for (name, value) in &before.parts {
        let after = after.parts.get(name).copied().unwrap_or(f64::NAN);
        rows.push((format!("mean {name}"), *value, after));
    }
    table(&format!("{} completions", before.samples), &rows)
}

fn table(title: &str, rows: &[(String, f64, f64)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([title, "before", "after", "change"]);
    for (name, old, new) in rows {
        table.add_row([
            name.clone(),
            format!("{old:.4}"),
            format!("{new:.4}"),
            format!("{:+.4}", new - old),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

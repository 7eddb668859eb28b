//! A look at a policy before and after its training: completions of the same prompts with the same random numbers, and
//! what the reward says of them.

use comfy_table::{CellAlignment, Table, presets};
use grpo_data::Codec;
use grpo_eval::{MoleculeSummary, RewardSummary};
use grpo_train::Evaluated;

/// What was seen.
pub(crate) enum Seen {
    /// There was nothing to draw.
    Nothing,
    Molecules(MoleculeSummary),
    Completions(RewardSummary),
}

impl Seen {
    /// What an evaluation saw; `None` where there was none.
    pub(crate) fn of(codec: &Codec, evaluated: Option<&Evaluated>) -> Self {
        match (evaluated, codec.vocabulary()) {
            (None, _) => Self::Nothing,
            (Some(Evaluated { texts, outcomes, .. }), Some(_)) => {
                Self::Molecules(MoleculeSummary::of(texts, outcomes, None))
            }
            (Some(Evaluated { outcomes, .. }), None) => {
                Self::Completions(RewardSummary::of(outcomes))
            }
        }
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

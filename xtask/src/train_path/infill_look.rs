//! What the path of `cargo xtask train infill` shows at its end: molecules filled before and after GRPO.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The molecules that are filled, and which part of each is blanked.
pub(super) const ARGUMENTS: [&str; 8] = [
    "--held-out",
    "data/molecules/molecules.smi.gz",
    "--unit=line",
    "--passages=500",
    "--random=0.3",
    "--number=1",
    "--seed=7",
    "--json",
];

/// So many are shown; the table is of all.
const SHOWN: usize = 5;
/// A change of fewer standard errors than this is none that one could be sure of.
const SURE: f64 = 3.0;
/// The character of a blank.
const BLANK: char = '␣';

/// A line of `grpo fill --json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Example {
    blanked: String,
    text: String,
    filled: String,
    judge_reward: f64,
    second_judge_reward: f64,
    recovery: f64,
}

impl Example {
    /// Entropy of the characters in the blanks, in nats: it falls where one character is repeated.
    fn fill_entropy(&self) -> f64 {
        let pairs = self.blanked.chars().zip(self.filled.chars());
        let filled: Vec<char> =
            pairs.filter_map(|(was, now)| (was == BLANK).then_some(now)).collect();
        let mut counts = BTreeMap::<char, f64>::new();
        filled.iter().for_each(|c| *counts.entry(*c).or_default() += 1.0);
        let part = |count: &f64| count / filled.len() as f64;
        0.0 - counts.values().map(part).map(|part| part * part.ln()).sum::<f64>()
    }
}

pub(super) fn examples(json: &[u8]) -> Result<Vec<Example>> {
    let text = std::str::from_utf8(json).context("grpo fill wrote something unexpected")?;
    let read = text.lines().map(|line| {
        serde_json::from_str(line)
            .with_context(|| format!("grpo fill wrote something unexpected: {line}"))
    });
    read.collect()
}

/// The same texts filled before and after, with the same random numbers.
pub(super) fn compared(before: &[Example], after: &[Example]) -> Result<String> {
    let same = before.iter().map(|example| &example.blanked);
    ensure!(
        same.eq(after.iter().map(|example| &example.blanked)),
        "the examples before and after the training are not the same texts"
    );
    let mut page =
        String::from("\nmolecules that no model was trained on, with some characters blanked\n");
    for (before, after) in before.iter().zip(after).take(SHOWN) {
        let rewards = |example: &Example| {
            let Example { judge_reward, second_judge_reward, recovery, .. } = example;
            format!(
                "judge's reward {judge_reward:.3}, second judge's {second_judge_reward:.3}, {:.0} % recovered",
                100.0 * recovery
            )
        };
        let width = before.filled.chars().count();
        let _infallible = write!(
            page,
            "\n  blanked  {}\n  before   {:width$}   {}\n  after    {:width$}   {}\n  truth    {}\n",
            before.blanked,
            before.filled,
            rewards(before),
            after.filled,
            rewards(after),
            before.text,
        );
    }
    page += &table(before, after);
    Ok(page)
}

/// A row of the table, and whose number it shows.
type Row = (&'static str, fn(&Example) -> f64);

fn table(before: &[Example], after: &[Example]) -> String {
    let rows: [Row; 4] = [
        ("judge's reward", |example| example.judge_reward),
        ("second judge's reward", |example| example.second_judge_reward),
        ("part of the blanks recovered", |example| example.recovery),
        ("entropy of the fillings, nats", |example| example.fill_entropy()),
    ];
    let mut table = format!(
        "\n{:30} {:>8} {:>8} {:>19}\n",
        format!("means of {} of them", before.len()),
        "before",
        "after",
        "change ± its error"
    );
    for (name, of) in rows {
        let Change { before, after, mean, error } = Change::of(before, after, of);
        let change = format!("{mean:+.4} ± {error:.4}");
        let word = match mean / error {
            errors if errors >= SURE => "rose",
            errors if errors <= -SURE => "fell",
            _ => "no clear change",
        };
        let _infallible =
            writeln!(table, "{name:30} {before:>8.4} {after:>8.4} {change:>19}  {word}");
    }
    table
        + "a judge's reward is 1 − its score: 1 is natural, 0 corrupted. Texts and random numbers are the same before and after, the \
           error is a standard error of paired differences, and a change of less than three is called none\n"
}

/// Means, and the mean difference of pairs with its standard error.
struct Change {
    before: f64,
    after: f64,
    mean: f64,
    error: f64,
}

impl Change {
    fn of(before: &[Example], after: &[Example], of: fn(&Example) -> f64) -> Self {
        let count = before.len() as f64;
        let mean_of = |examples: &[Example]| examples.iter().map(of).sum::<f64>() / count;
        let differences: Vec<f64> = before.iter().zip(after).map(|(b, a)| of(a) - of(b)).collect();
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        Self { before: mean_of(before), after: mean_of(after), mean, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(filled: &str, [judge, second, recovery]: [f64; 3]) -> String {
        format!(
            r#"{{"blanked":"C␣␣","text":"CCO","sample":0,"filled":"{filled}","logprob":-1.5,"mean_logprob":-1.5,"judge_reward":{judge},"second_judge_reward":{second},"recovery":{recovery},"iterations":1}}"#
        )
    }

    fn of(lines: &[String]) -> Vec<Example> {
        examples(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn examples_are_shown_beside_one_another_and_all_in_the_table() {
        let before = of(&[
            line("CNO", [0.25, 0.5, 0.5]),
            line("COC", [0.5, 0.5, 0.0]),
            line("CNN", [0.0, 0.5, 0.0]),
        ]);
        // Differences 0.5, 0.4 and 0.6: mean 0.5, deviation 0.1, error 0.1 / √3.
        let after = of(&[
            line("CCO", [0.75, 0.0, 1.0]),
            line("CCC", [0.9, 1.0, 0.5]),
            line("CNO", [0.6, 0.75, 0.5]),
        ]);
        let page = compared(&before, &after).unwrap();
        let (examples, table) = page.split_once("\nmeans").unwrap();
        assert!(
            examples.starts_with(
                "
molecules that no model was trained on, with some characters blanked

  blanked  C␣␣
  before   CNO   judge's reward 0.250, second judge's 0.500, 50 % recovered
  after    CCO   judge's reward 0.750, second judge's 0.000, 100 % recovered
  truth    CCO

  blanked  C␣␣
"
            ),
            "{examples}"
        );
        // Two characters, one character, two characters.
        let of_fillings = 2.0 / 3.0 * 2.0_f64.ln();
        let expected = format!(
            " of 3 of them               before    after  change ± its error
judge's reward                   0.2500   0.7500    +0.5000 ± 0.0577  rose
second judge's reward            0.5000   0.5833    +0.0833 ± 0.3005  no clear change
part of the blanks recovered     0.1667   0.6667    +0.5000 ± 0.0000  rose
entropy of the fillings, nats    {of_fillings:.4}   {of_fillings:.4}    +0.0000 ± 0.4002  no clear change
a judge's reward is 1 − its score"
        );
        assert!(table.starts_with(&expected), "{table}");
        assert!(compared(&before, &[]).is_err());
        let other = format!("{} oops", line("CNO", [0.0; 3]));
        assert!(super::examples(other.as_bytes()).is_err());

        let many = vec![line("CNO", [0.25, 0.5, 0.5]); 9];
        let page = compared(&of(&many), &of(&many)).unwrap();
        assert_eq!(page.matches("truth").count(), SHOWN);
        assert!(page.contains("means of 9 of them"));
        let error = page.lines().find(|line| line.starts_with("judge")).unwrap();
        assert!(error.ends_with("+0.0000 ± 0.0000  no clear change"), "{error}");
    }
}

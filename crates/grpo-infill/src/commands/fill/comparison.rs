//! Implementation of `grpo fill --before FOLDER`, which compares two models on the same texts using
//! the same random numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Characters;
use grpo_data::TextCodec;
use grpo_data::statistics::is_clear;
use grpo_eval::Change;
use grpo_task::output::four_decimals;

use super::output::{Completion, recovered};
use super::texts::Text;

/// Number of texts shown in full. The table covers all texts.
const SHOWN: usize = 5;

/// Computes the value of a table row for a completion, if available.
type Measure = fn(&Text, &Completion) -> Option<f64>;

/// A text with its completions by the earlier and the current model, best first.
type Compared<'a> = (&'a Text, &'a [Completion], &'a [Completion]);

const MEASURES: [(&str, Measure); 4] = [
    ("judge's reward", |_, completion| completion.judge),
    ("second judge's reward", |_, completion| completion.second_judge),
    ("fraction of blanks recovered", recovery),
    ("entropy of the fillings, nats", |_, completion| Some(fill_entropy(completion))),
];

/// Formats the best completions of some texts, followed by a table of all texts. `before` and
/// `after` contain the completions of each text.
pub(super) fn comparison(
    texts: &[Text],
    before: &[Vec<Completion>],
    after: &[Vec<Completion>],
    characters: &Characters,
) -> String {
    let mut page = String::new();
    let all: Vec<Compared<'_>> =
        texts.iter().zip(before).zip(after).map(|((t, b), a)| (t, &b[..], &a[..])).collect();
    for (text, before, after) in all.iter().take(SHOWN) {
        let (before, after) = (&before[0], &after[0]);
        let width = text.ids.len();
        let _infallible = write!(
            page,
            "\n  blanked  {}\n  before   {:width$}   {}\n  after    {:width$}   {}\n",
            characters.decode(&text.ids),
            characters.decode(&before.filled.ids),
            rewards(text, before),
            characters.decode(&after.filled.ids),
            rewards(text, after),
        );
        if let Some(truth) = &text.truth {
            let _infallible = writeln!(page, "  truth    {}", characters.decode(truth));
        }
    }
    page + &table(&all)
}

fn table(all: &[Compared<'_>]) -> String {
    let mut table = format!(
        "\n{:30} {:>8} {:>8} {:>19}\n",
        format!("means over {} texts", all.len()),
        "before",
        "after",
        "change ± its error"
    );
    for (name, measure) in MEASURES {
        // Completions of the same text are not independent, so average them first.
        let mean_of = |text: &Text, group: &[Completion]| {
            let values: Option<Vec<f64>> = group.iter().map(|one| measure(text, one)).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        let pair = |(text, before, after): &Compared<'_>| {
            Some((mean_of(text, before)?, mean_of(text, after)?))
        };
        let pairs: Vec<(f64, f64)> = all.iter().filter_map(pair).collect();
        if pairs.is_empty() {
            continue;
        }
        let mean =
            |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
        let (before, after) = (mean(|pair| pair.0), mean(|pair| pair.1));
        let Change { mean, error } = Change::of_pairs(pairs.iter().copied());
        let change = format!("{mean:+.4} ± {}", four_decimals(error));
        let word = match is_clear(mean, error) {
            false => "no clear change",
            true if mean > 0.0 => "rose",
            true => "fell",
        };
        let _infallible =
            writeln!(table, "{name:30} {before:>8.4} {after:>8.4} {change:>19}  {word}");
    }
    table
        + "A judge's reward is 1 − its score: 1 is natural, 0 corrupted. Texts and random numbers are the same before and after. The \
           error is the standard error of the paired differences. No clear change: less than 3 standard errors.\n"
}

fn rewards(text: &Text, completion: &Completion) -> String {
    let rewards =
        [("judge's reward", completion.judge), ("second judge's", completion.second_judge)];
    let rewards =
        rewards.into_iter().filter_map(|(name, of)| Some(format!("{name} {}", four_decimals(of?))));
    let recovery =
        recovery(text, completion).map(|part| format!("{:.0} % recovered", 100.0 * part));
    rewards.chain(recovery).collect::<Vec<_>>().join(", ")
}

fn recovery(text: &Text, completion: &Completion) -> Option<f64> {
    let filled = &completion.filled;
    recovered(text, filled).map(|right| right as f64 / filled.blanks.len() as f64)
}

/// Returns the entropy of the filled characters in nats. Repeated characters lower it.
fn fill_entropy(completion: &Completion) -> f64 {
    let filled = &completion.filled;
    let mut counts = BTreeMap::<u32, f64>::new();
    for &index in &filled.blanks {
        *counts.entry(filled.ids[index]).or_default() += 1.0;
    }
    let fraction = |count: &f64| count / filled.blanks.len() as f64;
    0.0 - counts.values().map(fraction).map(|fraction| fraction * fraction.ln()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use crate::Filled;

    use super::*;

    #[test]
    fn examples_come_first_and_the_table_is_of_all() {
        let characters = Characters::from_texts(["CNO"]).unwrap();
        let encode = |text: &str| characters.encode(text).unwrap();
        let text = || Text {
            place: String::new(),
            ids: characters.encode_blanks("C␣␣", '␣').unwrap(),
            truth: Some(encode("CCO")),
        };
        let completion = |filled: &str, judge: f64, second: f64| {
            let filled = Filled {
                ids: encode(filled),
                blanks: vec![1, 2],
                logprobs: vec![-1.0, -0.5],
                iterations: 1,
                quality: None,
            };
            vec![Completion { sample: 0, filled, judge: Some(judge), second_judge: Some(second) }]
        };
        let before = [
            completion("CNO", 0.25, 0.5),
            completion("COC", 0.5, 0.5),
            completion("CNN", 0.0, 0.5),
        ];
        // The differences are 0.5, 0.4 and 0.6: mean 0.5, standard deviation 0.1, standard error
        // 0.1 / √3.
        let after = [
            completion("CCO", 0.75, 0.0),
            completion("CCC", 0.9, 1.0),
            completion("CNO", 0.6, 0.75),
        ];
        let texts = [text(), text(), text()];
        let page = comparison(&texts, &before, &after, &characters);
        let (examples, table) = page.split_once("\nmeans").unwrap();
        assert!(
            examples.starts_with(
                "
  blanked  C␣␣
  before   CNO   judge's reward 0.2500, second judge's 0.5000, 50 % recovered
  after    CCO   judge's reward 0.7500, second judge's 0.0000, 100 % recovered
  truth    CCO

  blanked  C␣␣
"
            ),
            "{examples}"
        );
        // The texts have two, one and two distinct fills. Recovered are 1, 0, 0 of two blanks
        // before, and 2, 1, 1 after.
        let before = 2.0 / 3.0 * 2.0_f64.ln();
        let expected = format!(
            " over 3 texts               before    after  change ± its error
judge's reward                   0.2500   0.7500    +0.5000 ± 0.0577  rose
second judge's reward            0.5000   0.5833    +0.0833 ± 0.3005  no clear change
fraction of blanks recovered     0.1667   0.6667    +0.5000 ± 0.0000  rose
entropy of the fillings, nats    {before:.4}   {before:.4}    +0.0000 ± 0.4002  no clear change
A judge's reward is 1 − its score"
        );
        assert!(table.starts_with(&expected), "{table}");

        // More texts than are shown, without any changes. Rows without values are omitted.
        let mut many: Vec<_> = (0..9).map(|_| completion("CNO", 0.25, 0.5)).collect();
        let mut texts: Vec<_> = (0..9).map(|_| text()).collect();
        let page = comparison(&texts, &many, &many, &characters);
        assert_eq!(page.matches("truth").count(), SHOWN);
        let judge = page.lines().find(|line| line.starts_with("judge")).unwrap();
        assert!(judge.ends_with("+0.0000 ± 0.0000  no clear change"), "{judge}");
        many.iter_mut().flatten().for_each(|one| (one.judge, one.second_judge) = (None, None));
        texts.iter_mut().for_each(|text| text.truth = None);
        let page = comparison(&texts, &many, &many, &characters);
        assert!(!page.contains("judge's reward  ") && !page.contains("recovered"), "{page}");
        assert!(page.contains("\nentropy"), "{page}");
    }
}

//! Win rates from the verdicts of a judge.

use std::collections::BTreeMap;

use grpo_data::short_text;
use serde::{Deserialize, Serialize};

use super::parsed_answer::{JudgeAnswer, Missing, ParsedAnswer, Verdict, parse_verdict};
use super::prompts::Pair;
use crate::error::{MeasureError, check_lengths};
use crate::stats::{Alternative, Bootstrap, Estimate, KappaWeights, cohens_kappa, sign_test};

/// The result of a pair for its first answer, `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairOutcome {
    /// `a` is better.
    Win,
    /// Neither is better.
    Tie,
    /// `b` is better.
    Loss,
}

impl PairOutcome {
    /// Returns 1 for a win, 1/2 for a tie and 0 for a loss.
    pub fn points(self) -> f64 {
        match self {
            Self::Win => 1.0,
            Self::Tie => 0.5,
            Self::Loss => 0.0,
        }
    }
}

/// A pair and what the judge said about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedPair {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// The verdict with `a` first.
    pub forward: ParsedAnswer<Verdict>,
    /// The verdict with `b` first.
    pub backward: ParsedAnswer<Verdict>,
    /// What the judge wrote, with `a` first and with `b` first.
    pub explanations: [Option<String>; 2],
}

impl JudgedPair {
    /// Parses the answers to the two questions of a pair, in their order.
    pub fn new(pair: &Pair, answers: [Option<JudgeAnswer<'_>>; 2]) -> Self {
        let [forward, backward] = answers.map(|answer| ParsedAnswer::new(answer, parse_verdict));
        let explanations = answers.map(|answer| answer.map(|answer| answer.text.to_owned()));
        Self { pair: pair.clone(), forward, backward, explanations }
    }

    /// Returns the result for `a`, or `None` if a verdict is missing. It is a win or a loss if both
    /// orders agree on it, and a tie otherwise.
    pub fn outcome(&self) -> Option<PairOutcome> {
        let (forward, backward) = self.by_order()?;
        Some(if forward == backward { forward } else { PairOutcome::Tie })
    }

    /// Returns the results for `a` in each order.
    fn by_order(&self) -> Option<(PairOutcome, PairOutcome)> {
        let forward = match self.forward.given()? {
            Verdict::First => PairOutcome::Win,
            Verdict::Second => PairOutcome::Loss,
            Verdict::Tie => PairOutcome::Tie,
        };
        let backward = match self.backward.given()? {
            Verdict::First => PairOutcome::Loss,
            Verdict::Second => PairOutcome::Win,
            Verdict::Tie => PairOutcome::Tie,
        };
        Some((forward, backward))
    }

    /// Returns whether both orders have this verdict, so that the judge chose a position.
    fn prefers_position(&self, verdict: Verdict) -> bool {
        [self.forward, self.backward] == [ParsedAnswer::Given(verdict); 2]
    }
}

/// Results over pairs, for their answers `a`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairwiseSummary {
    /// Number of pairs.
    pub pairs: usize,
    /// Number of pairs with both verdicts. Only they count below.
    pub judged: usize,
    /// Number of complete answers without a verdict in the form that was asked for, of two per pair.
    pub unparsable: usize,
    /// Number of answers that end at the token limit before a verdict, of two per pair.
    pub truncated: usize,
    /// Number of questions without an answer, of two per pair.
    pub unanswered: usize,
    /// Pairs that `a` wins in both orders.
    pub wins: usize,
    /// Pairs that neither answer wins in both orders.
    pub ties: usize,
    /// Pairs that `b` wins in both orders.
    pub losses: usize,
    /// (wins + ties / 2) / judged. `None` if no pair was judged.
    pub win_rate: Option<f64>,
    /// The win rate with its bootstrap interval, for which prompts are drawn. `None` for fewer than
    /// two prompts.
    pub interval: Option<Estimate>,
    /// Two-sided p-value of the exact sign test of wins and losses. `None` if there are neither.
    pub p_value: Option<f64>,
    /// Fraction of the judged pairs whose first response won in both orders.
    pub first_position: Option<f64>,
    /// Fraction of the judged pairs whose second response won in both orders.
    pub second_position: Option<f64>,
    /// Agreement of the two orders about `a`.
    pub orders: JudgeAgreement,
}

impl PairwiseSummary {
    /// Summarises pairs. Their order doesn't matter.
    ///
    /// # Errors
    /// Returns an error if the settings of the bootstrap are out of range.
    pub fn new(pairs: &[JudgedPair], bootstrap: &Bootstrap) -> Result<Self, MeasureError> {
        let outcomes: Vec<PairOutcome> = pairs.iter().filter_map(JudgedPair::outcome).collect();
        let judged = outcomes.len();
        let count = |of| outcomes.iter().filter(|outcome| **outcome == of).count();
        let [wins, ties, losses] =
            [PairOutcome::Win, PairOutcome::Tie, PairOutcome::Loss].map(count);
        let share = |count: f64| (judged > 0).then(|| count / judged as f64);
        let position = |verdict| {
            share(pairs.iter().filter(|pair| pair.prefers_position(verdict)).count() as f64)
        };
        let points = pairs
            .iter()
            .filter_map(|judged| Some((judged.pair.prompt.as_str(), judged.outcome()?.points())));
        let missing = Missing::new(pairs.iter().flat_map(|pair| [&pair.forward, &pair.backward]));
        let is_decided = wins + losses > 0;
        let test = || sign_test(wins, losses, Alternative::TwoSided).map(|test| test.p_value);
        Ok(Self {
            pairs: pairs.len(),
            judged,
            unparsable: missing.unparsable,
            truncated: missing.truncated,
            unanswered: missing.unanswered,
            wins,
            ties,
            losses,
            win_rate: share(wins as f64 + 0.5 * ties as f64),
            interval: by_prompt(points, bootstrap)?,
            p_value: is_decided.then(test).transpose()?,
            first_position: position(Verdict::First),
            second_position: position(Verdict::Second),
            orders: JudgeAgreement::of(pairs.iter().filter_map(JudgedPair::by_order))?,
        })
    }
}

/// Returns the mean of values and its interval, for which prompts are drawn, or `None` for fewer than
/// two prompts.
pub(super) fn by_prompt<'a>(
    values: impl Iterator<Item = (&'a str, f64)>,
    bootstrap: &Bootstrap,
) -> Result<Option<Estimate>, MeasureError> {
    // Sorted, so that the draws don't depend on the order of the values.
    let mut clusters: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (prompt, value) in values {
        clusters.entry(prompt).or_default().push(value);
    }
    let clusters: Vec<Vec<f64>> = clusters.into_values().collect();
    (clusters.len() > 1).then(|| bootstrap.clustered_mean(&clusters)).transpose()
}

/// How far two lists of results agree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeAgreement {
    /// Number of pairs with both results.
    pub pairs: usize,
    /// Fraction of equal results. `None` without pairs.
    pub agreement: Option<f64>,
    /// Cohen's kappa of win, tie and loss. `None` without pairs, and if all results are equal.
    pub kappa: Option<f64>,
}

impl JudgeAgreement {
    /// Compares the results of two judges for the same pairs. Pairs that one of them didn't judge are
    /// left out.
    ///
    /// # Errors
    /// Returns an error if the lists differ in their length or in a pair.
    pub fn new(one: &[JudgedPair], other: &[JudgedPair]) -> Result<Self, MeasureError> {
        check_same(one.iter().map(|one| &one.pair), other)?;
        Self::of(
            one.iter()
                .zip(other)
                .filter_map(|(one, other)| Some((one.outcome()?, other.outcome()?))),
        )
    }

    fn of(results: impl Iterator<Item = (PairOutcome, PairOutcome)>) -> Result<Self, MeasureError> {
        let (one, other): (Vec<PairOutcome>, Vec<PairOutcome>) = results.unzip();
        let equal = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        let agreement = (!one.is_empty()).then(|| equal as f64 / one.len() as f64);
        let kappa = match cohens_kappa(&one, &other, KappaWeights::None) {
            Ok(kappa) => Some(kappa),
            Err(MeasureError::TooFew { .. } | MeasureError::Constant { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { pairs: one.len(), agreement, kappa })
    }
}

/// Checks whether a judge was asked about these pairs: the same names, prompts and texts in the same
/// order.
///
/// # Errors
/// Returns an error if the lists differ in their length or in a pair.
pub fn check_same_pairs(pairs: &[Pair], judged: &[JudgedPair]) -> Result<(), MeasureError> {
    check_same(pairs.iter(), judged)
}

fn check_same<'a>(
    pairs: impl ExactSizeIterator<Item = &'a Pair>,
    judged: &[JudgedPair],
) -> Result<(), MeasureError> {
    check_lengths("pairs of two judges", pairs.len(), judged.len())?;
    for (index, (pair, JudgedPair { pair: other, .. })) in pairs.zip(judged).enumerate() {
        let fields = [
            ("id", &pair.id, &other.id),
            ("prompt", &pair.prompt, &other.prompt),
            ("text `a`", &pair.a, &other.a),
            ("text `b`", &pair.b, &other.b),
        ];
        if let Some((name, _, found)) = fields.into_iter().find(|(_, one, other)| one != other) {
            return Err(MeasureError::OutOfRange {
                what: format!("the {name} of pair {index} of the other judge"),
                found: format!("\"{}\"", short_text(found)),
                expected: "the same pairs in the same order for both judges",
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Bootstrap = Bootstrap {
        draws: 200,
        level: 0.9,
        method: crate::stats::IntervalMethod::Percentile,
        seed: 3,
    };

    /// Verdicts as letters: A, B, T(ie), ? (unparsable), … (truncated), - (unanswered), with `a` first
    /// and second.
    fn judged(pairs: &[(&str, &str)]) -> Vec<JudgedPair> {
        let answer = |letter: char| {
            let (text, is_truncated) = match letter {
                'A' => ("VERDICT: A", false),
                'B' => ("VERDICT: B", false),
                'T' => ("VERDICT: TIE", false),
                '?' => ("Both are fine.", false),
                '…' => ("Both are", true),
                _ => return None,
            };
            Some(JudgeAnswer { text, is_truncated })
        };
        let one = |(index, (prompt, letters)): (usize, &(&str, &str))| {
            let [a, b] = [index.to_string(), String::new()];
            let pair = Pair { id: a.clone(), prompt: (*prompt).to_owned(), a, b };
            let answers: Vec<_> = letters.chars().map(answer).collect();
            JudgedPair::new(&pair, answers.try_into().unwrap())
        };
        pairs.iter().enumerate().map(one).collect()
    }

    #[test]
    fn outcomes_of_all_verdicts() {
        use PairOutcome::{Loss, Tie, Win};
        for (letters, expect) in [
            ("AB", Some(Win)),
            ("BA", Some(Loss)),
            ("AA", Some(Tie)),
            ("BB", Some(Tie)),
            ("TT", Some(Tie)),
            ("AT", Some(Tie)),
            ("TB", Some(Tie)),
            ("BT", Some(Tie)),
            ("TA", Some(Tie)),
            ("A?", None),
            ("?B", None),
            ("-B", None),
        ] {
            assert_eq!(judged(&[("p", letters)])[0].outcome(), expect, "{letters}");
        }
    }

    /// 3 wins, 1 loss and 4 ties of 8: (3 + 2) / 8. The orders agree in 3 + 1 + 1 of 8.
    ///
    /// With `a` first: Win 3 + 2 + 1 = 6 (AB, AA, AT), Loss 1, Tie 1. With `b` first: Win 3, Loss 1 +
    /// 2, Tie 1 + 1. Chance agreement is (6 · 3 + 1 · 3 + 1 · 2) / 64 = 23/64, so kappa is
    /// (40 − 23) / (64 − 23).
    #[test]
    fn a_summary_by_hand() {
        let pairs = judged(&[
            ("p", "AB"),
            ("p", "AB"),
            ("q", "AB"),
            ("q", "BA"),
            ("r", "AA"),
            ("r", "AA"),
            ("s", "AT"),
            ("s", "TT"),
            ("s", "?A"),
            ("s", "……"),
            ("s", "…A"),
            ("t", "--"),
        ]);
        let found = PairwiseSummary::new(&pairs, &FEW).unwrap();
        assert_eq!((found.pairs, found.judged), (12, 8));
        assert_eq!((found.unparsable, found.truncated, found.unanswered), (1, 3, 2));
        assert_eq!((found.wins, found.ties, found.losses), (3, 4, 1));
        assert_eq!(found.win_rate, Some(0.625));
        assert_eq!(found.first_position, Some(0.25));
        assert_eq!(found.second_position, Some(0.0));
        // Four decided pairs: P(X ≥ 3) = (4 + 1) / 16, and twice that.
        assert!((found.p_value.unwrap() - 0.625).abs() < 1e-14);
        assert_eq!((found.orders.pairs, found.orders.agreement), (8, Some(0.625)));
        let kappa = found.orders.kappa.unwrap();
        assert!((kappa - 17.0 / 41.0).abs() < 1e-14, "{kappa}");
        // Prompts are drawn, with the points of their pairs.
        let clusters = [vec![1.0, 1.0], vec![1.0, 0.0], vec![0.5, 0.5], vec![0.5, 0.5]];
        assert_eq!(found.interval, Some(FEW.clustered_mean(&clusters).unwrap()));
        let reversed: Vec<JudgedPair> = pairs.iter().rev().cloned().collect();
        assert_eq!(PairwiseSummary::new(&reversed, &FEW).unwrap(), found);
    }

    #[test]
    fn swapping_the_answers_swaps_wins_and_losses() {
        let letters = ["AB", "AB", "AA", "TB", "BA", "TT"];
        let named = |of: &dyn Fn(&str) -> String| {
            let texts: Vec<(String, String)> =
                letters.iter().enumerate().map(|(i, l)| (i.to_string(), of(l))).collect();
            let pairs: Vec<(&str, &str)> =
                texts.iter().map(|(p, l)| (p.as_str(), l.as_str())).collect();
            PairwiseSummary::new(&judged(&pairs), &FEW).unwrap()
        };
        let one = named(&|letters| letters.to_owned());
        // The question with `a` first becomes the one with `b` first.
        let other = named(&|letters| letters.chars().rev().collect());
        assert_eq!((one.wins, one.losses), (other.losses, other.wins));
        assert_eq!(one.win_rate.unwrap() + other.win_rate.unwrap(), 1.0);
        assert_eq!(one.p_value, other.p_value);
        assert_eq!(one.first_position, other.first_position);
        assert_eq!(one.orders, other.orders);
    }

    #[test]
    fn pairs_without_verdicts_are_counted() {
        let found = PairwiseSummary::new(&judged(&[("p", "??"), ("q", "?-")]), &FEW).unwrap();
        assert_eq!((found.pairs, found.judged, found.unparsable, found.unanswered), (2, 0, 3, 1));
        assert_eq!((found.win_rate, found.interval, found.p_value), (None, None, None));
        assert_eq!((found.first_position, found.orders.kappa), (None, None));
        let one_prompt = judged(&[("p", "TT"), ("p", "TT")]);
        let found = PairwiseSummary::new(&one_prompt, &FEW).unwrap();
        assert_eq!((found.win_rate, found.interval, found.p_value), (Some(0.5), None, None));
        assert_eq!((found.orders.agreement, found.orders.kappa), (Some(1.0), None));
        let none = Bootstrap { draws: 0, ..FEW };
        assert!(PairwiseSummary::new(&judged(&[("p", "AB"), ("q", "AB")]), &none).is_err());
    }

    /// Both judges give win, tie, tie and loss; the second one swaps the last two.
    #[test]
    fn two_judges() {
        let one = judged(&[("p", "AB"), ("p", "TT"), ("p", "AA"), ("p", "BA"), ("p", "?A")]);
        let other = judged(&[("p", "AB"), ("p", "AT"), ("p", "BA"), ("p", "BB"), ("p", "AB")]);
        let found = JudgeAgreement::new(&one, &other).unwrap();
        assert_eq!((found.pairs, found.agreement), (4, Some(0.5)));
        // Chance agreement is (1 + 4 + 1) / 16.
        assert!((found.kappa.unwrap() - 0.2).abs() < 1e-14, "{found:?}");
        assert!(JudgeAgreement::new(&one, &other[..4]).is_err());
        let mut moved = other.clone();
        moved.swap(0, 1);
        let error = JudgeAgreement::new(&one, &moved).unwrap_err().to_string();
        let expect = "the id of pair 0 of the other judge is \"1\"; expected the same pairs";
        assert!(error.starts_with(expect), "{error}");
    }

    #[test]
    fn two_judges_of_different_pairs() {
        let judged = judged(&[("p", "AB"), ("p", "TT")]);
        let pairs: Vec<Pair> = judged.iter().map(|judged| judged.pair.clone()).collect();
        assert_eq!(check_same_pairs(&pairs, &judged), Ok(()));
        assert!(check_same_pairs(&pairs[..1], &judged).is_err());
        let check = |change: fn(&mut Pair) -> &mut String, name: &str| {
            let mut other = judged.clone();
            *change(&mut other[1].pair) = "other".to_owned();
            let error = check_same_pairs(&pairs, &other).unwrap_err();
            let expect = format!("the {name} of pair 1 of the other judge is \"other\"; expected");
            assert!(error.to_string().starts_with(&expect), "{error}");
            assert_eq!(JudgeAgreement::new(&judged, &other), Err(error));
        };
        check(|pair| &mut pair.id, "id");
        check(|pair| &mut pair.prompt, "prompt");
        check(|pair| &mut pair.a, "text `a`");
        check(|pair| &mut pair.b, "text `b`");
    }

    #[test]
    fn judged_pairs_are_json() {
        let judged = judged(&[("p", "A…")]);
        let json = serde_json::to_value(&judged[0]).unwrap();
        let expect = serde_json::json!({
            "id": "0", "prompt": "p", "a": "0", "b": "",
            "forward": {"given": "first"}, "backward": "truncated",
            "explanations": ["VERDICT: A", "Both are"],
        });
        assert_eq!(json, expect);
        assert_eq!(serde_json::from_value::<JudgedPair>(json).unwrap(), judged[0]);
    }
}

//! Majority@k: the probability that the answer that most of k samples agree on is right.

use std::collections::BTreeMap;
use std::iter;

use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::passk::{PassAtK, check_k, over_prompts};
use crate::stats::Bootstrap;

/// The answers of a prompt's samples, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptVotes {
    /// Number of samples, n.
    samples: usize,
    /// Different answers, in the order of their first sample.
    answers: Vec<Answer>,
}

/// An answer and the samples that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Answer {
    votes: usize,
    /// Number of these votes that are right. It differs from `votes` only if samples with the same answer
    /// are judged by different references.
    right: usize,
}

impl PromptVotes {
    /// Counts the answer of each sample and whether it is right. Samples without an answer do not vote.
    pub fn from_answers<'a>(answers: impl IntoIterator<Item = Option<(&'a str, bool)>>) -> Self {
        let mut votes = Self::default();
        let mut indices: BTreeMap<&str, usize> = BTreeMap::new();
        for answer in answers {
            votes.samples += 1;
            let Some((text, is_right)) = answer else { continue };
            let index = *indices.entry(text).or_insert(votes.answers.len());
            if index == votes.answers.len() {
                votes.answers.push(Answer { votes: 0, right: 0 });
            }
            votes.answers[index].votes += 1;
            votes.answers[index].right += usize::from(is_right);
        }
        votes
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the expected result of a majority vote of k samples (self-consistency; Wang et al. 2022,
    /// "Self-Consistency Improves Chain of Thought Reasoning in Language Models"): the mean over all choices
    /// of k of the n samples. A tie is broken at random, so it counts with the fraction of its answers that
    /// are right. Without a vote, the result is wrong.
    ///
    /// `prompt` is only used in errors.
    ///
    /// # Errors
    /// Returns an error if k is 0 or larger than the number of samples.
    pub fn majority_at_k(&self, k: usize, prompt: usize) -> Result<f64, MeasureError> {
        check_k("Majority", k, self.samples, prompt)?;
        let draws = Draws::new(self.samples, k);
        let right = self.answers.iter().enumerate().filter(|(_, answer)| answer.right > 0);
        let shares = right.map(|(index, answer)| {
            answer.right as f64 / answer.votes as f64 * self.win(index, &draws)
        });
        // The sum of no numbers is -0.
        Ok((0.0 + shares.sum::<f64>()).clamp(0.0, 1.0))
    }

    /// Returns the probability that an answer wins the vote of k samples.
    fn win(&self, index: usize, draws: &Draws) -> f64 {
        let (own, k) = (self.answers[index].votes, draws.k);
        let others = self.answers.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<usize> = others.map(|(_, answer)| answer.votes).collect();
        let voting: usize = self.answers.iter().map(|answer| answer.votes).sum();
        let silent = self.samples - voting;
        let mut total = 0.0;
        for votes in 1..=own.min(k) {
            let chosen = draws.probability(own, votes);
            if chosen == 0.0 {
                continue;
            }
            let rest = k - votes;
            let most_ties =
                others.iter().filter(|other| **other >= votes).count().min(rest / votes);
            // Probability that the other samples that were counted so far have this many votes in the
            // draw, `ways[votes][ties]`, with none above `votes` and `ties` of them equal to it.
            let mut ways = vec![vec![0.0; most_ties + 1]; rest + 1];
            for (drawn, ways) in ways.iter_mut().enumerate().take(silent.min(rest) + 1) {
                ways[0] = draws.probability(silent, drawn);
            }
            for &other in &others {
                ways = with_answer(&ways, other, votes, draws);
            }
            let won: f64 =
                ways[rest].iter().enumerate().map(|(ties, way)| way / (ties + 1) as f64).sum();
            total += chosen * won;
        }
        total / draws.probability(self.samples, k)
    }
}

/// Adds an answer with `count` votes, of which at most `most` may be drawn, to a table `[votes][ties]`.
fn with_answer(before: &[Vec<f64>], count: usize, most: usize, draws: &Draws) -> Vec<Vec<f64>> {
    let mut after = vec![vec![0.0; before[0].len()]; before.len()];
    for drawn in 0..=count.min(most).min(before.len() - 1) {
        let (weight, ties) = (draws.probability(count, drawn), usize::from(drawn == most));
        if weight == 0.0 {
            continue;
        }
        for (into, from) in after[drawn..].iter_mut().zip(before) {
            into[ties..].iter_mut().zip(from).for_each(|(into, from)| *into += weight * from);
        }
    }
    after
}

/// Draws each of n samples with probability k/n. Given that k were drawn, all choices of k samples are
/// equally likely, and unlike numbers of choices, probabilities stay finite for any n.
struct Draws {
    k: usize,
    /// Logarithms of k/n and 1 − k/n.
    logs: [f64; 2],
    /// Logarithms of the factorials of 0 to n.
    factorials: Vec<f64>,
}

impl Draws {
    fn new(samples: usize, k: usize) -> Self {
        let share = k as f64 / samples as f64;
        let mut sum = 0.0;
        let logs = (1..=samples).map(|number| {
            sum += (number as f64).ln();
            sum
        });
        let factorials = iter::once(0.0).chain(logs).collect();
        Self { k, logs: [share.ln(), (1.0 - share).ln()], factorials }
    }

    /// Returns the probability that exactly `drawn` of `count` samples are drawn.
    fn probability(&self, count: usize, drawn: usize) -> f64 {
        let left = count - drawn;
        // 0 · ln 0 is 0 here.
        let power = |log: f64, times: usize| if times == 0 { 0.0 } else { log * times as f64 };
        let choices = self.factorials[count] - self.factorials[drawn] - self.factorials[left];
        (choices + power(self.logs[0], drawn) + power(self.logs[1], left)).exp()
    }
}

/// Returns Majority@k for several k, as means over prompts.
///
/// # Errors
/// Returns an error if there are no prompts, or if a prompt has fewer than k samples.
pub fn majority_at_k(
    prompts: &[PromptVotes],
    ks: &[usize],
    bootstrap: &Bootstrap,
) -> Result<BTreeMap<usize, PassAtK>, MeasureError> {
    over_prompts("prompts of Majority@k", prompts, ks, bootstrap, PromptVotes::majority_at_k)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Samples as letters: `x` has no answer, capitals are right.
    fn votes(samples: &str) -> PromptVotes {
        let texts: Vec<String> = samples.chars().map(|c| c.to_lowercase().to_string()).collect();
        let answer =
            |(text, c): (&String, char)| (c != 'x').then(|| (text.clone(), c.is_uppercase()));
        let answers: Vec<Option<(String, bool)>> =
            texts.iter().zip(samples.chars()).map(answer).collect();
        PromptVotes::from_answers(
            answers
                .iter()
                .map(|answer| answer.as_ref().map(|(text, is_right)| (text.as_str(), *is_right))),
        )
    }

    fn of(samples: &str, k: usize) -> f64 {
        votes(samples).majority_at_k(k, 0).unwrap()
    }

    /// Votes in each choice of k samples, one after another.
    fn enumerated(samples: &str, k: usize) -> f64 {
        let samples: Vec<char> = samples.chars().collect();
        let (mut choices, mut won) = (0.0, 0.0);
        for choice in (0..1_u32 << samples.len()).filter(|choice| choice.count_ones() as usize == k)
        {
            choices += 1.0;
            let drawn: Vec<char> = samples
                .iter()
                .enumerate()
                .filter(|(index, c)| choice >> index & 1 == 1 && **c != 'x')
                .map(|(_, c)| *c)
                .collect();
            let votes = |c: char| drawn.iter().filter(|other| **other == c).count();
            let most = drawn.iter().map(|c| votes(*c)).max().unwrap_or(0);
            let mut first: Vec<char> =
                drawn.iter().copied().filter(|c| votes(*c) == most).collect();
            first.sort_unstable();
            first.dedup();
            if !first.is_empty() {
                let right = first.iter().filter(|c| c.is_uppercase()).count();
                won += right as f64 / first.len() as f64;
            }
        }
        won / choices
    }

    #[test]
    fn majorities_by_hand() {
        assert!((of("AAb", 3) - 1.0).abs() < 1e-12);
        // Of the three pairs, one agrees on the right answer and two are ties.
        assert!((of("AAb", 2) - 2.0 / 3.0).abs() < 1e-12);
        assert!((of("Abb", 3), of("bxx", 3), of("xxx", 2)) == (0.0, 0.0, 0.0));
        // One vote is enough if the others have no answer.
        assert!((of("Axx", 3) - 1.0).abs() < 1e-12);
        assert!((of("Ab", 2) - 0.5).abs() < 1e-12);
        // The same answer can be right for one record and wrong for another with the same prompt.
        let both = PromptVotes::from_answers([Some(("4", true)), Some(("4", false))]);
        assert!((both.majority_at_k(2, 0).unwrap() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn many_samples_stay_finite() {
        let many: String = "A".repeat(600) + &"b".repeat(400);
        let (few, half) = (of(&many, 1), of(&many, 25));
        assert!((few - 0.6).abs() < 1e-9 && half > 0.8 && half < 0.9, "{few} {half}");
        assert!((of(&many, 1000) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_k_above_the_number_of_samples_is_an_error() {
        let error = votes("Ab").majority_at_k(3, 4).unwrap_err().to_string();
        assert_eq!(
            error,
            "Majority@3 requires 3 samples, but prompt 4 has 2; generate more samples per prompt or use a smaller k"
        );
        assert!(votes("Ab").majority_at_k(0, 0).is_err());
        assert!(majority_at_k(&[], &[1], &Bootstrap::default()).is_err());
    }

    #[test]
    fn the_mean_is_over_prompts() {
        let bootstrap = Bootstrap { draws: 100, ..Bootstrap::default() };
        let found = majority_at_k(&[votes("AAb"), votes("bb")], &[1, 2], &bootstrap).unwrap();
        assert!((found[&1].value - 1.0 / 3.0).abs() < 1e-12);
        assert!((found[&2].value - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(found[&2].per_prompt.len(), 2);
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_choices(samples in "[ABcdx]{1,9}", k in 1_usize..10) {
            let k = k.min(samples.len());
            let (found, expected) = (of(&samples, k), enumerated(&samples, k));
            prop_assert!((found - expected).abs() < 1e-11, "{samples} {k}: {found} {expected}");
        }

        /// A single vote is the fraction of right samples, and a second one changes nothing: the two agree,
        /// or each wins every other time.
        #[test]
        fn one_or_two_votes_are_the_fraction_of_right_samples(samples in "[ABcd]{2,30}") {
            let right = samples.chars().filter(char::is_ascii_uppercase).count();
            let share = right as f64 / samples.len() as f64;
            prop_assert!((of(&samples, 1) - share).abs() < 1e-10);
            prop_assert!((of(&samples, 2) - share).abs() < 1e-10);
        }

        /// Neither the order of the samples nor the names of the answers matter.
        #[test]
        fn order_does_not_matter(samples in "[ABcdx]{1,12}", k in 1_usize..12) {
            let k = k.min(samples.len());
            let reversed: String = samples.chars().rev().collect();
            prop_assert!((of(&samples, k) - of(&reversed, k)).abs() < 1e-12);
            let renamed = samples.replace('c', "e");
            prop_assert!((of(&samples, k) - of(&renamed, k)).abs() < 1e-12);
        }
    }
}

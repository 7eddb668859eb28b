//! What a judge answered.

use serde::{Deserialize, Serialize};

/// A judge's answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// A verdict or a score.
    Given(T),
    /// The answer doesn't contain it in the form that was asked for.
    Unparsable,
    /// There is no answer, for example because the server refused the request.
    Unanswered,
}

impl<T: Copy> Reading<T> {
    /// Reads an answer with [`parse_verdict`] or [`parse_score`].
    pub fn new(answer: Option<&str>, parse: fn(&str) -> Option<T>) -> Self {
        match answer {
            Some(text) => parse(text).map_or(Self::Unparsable, Self::Given),
            None => Self::Unanswered,
        }
    }

    /// Returns the verdict or the score.
    pub fn given(&self) -> Option<T> {
        match self {
            Self::Given(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns how many readings are unparsable, and how many are unanswered.
    pub(super) fn missing<'a>(readings: impl Iterator<Item = &'a Self>) -> (usize, usize)
    where
        T: 'a,
    {
        readings.fold((0, 0), |(unparsable, unanswered), reading| match reading {
            Self::Given(_) => (unparsable, unanswered),
            Self::Unparsable => (unparsable + 1, unanswered),
            Self::Unanswered => (unparsable, unanswered + 1),
        })
    }
}

/// Which of two responses is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first one, which the question calls A.
    First,
    /// The second one, which the question calls B.
    Second,
    /// Neither.
    Tie,
}

/// Returns the verdict of an answer: its last line that starts with `VERDICT:`, which must be
/// `VERDICT: A`, `VERDICT: B` or `VERDICT: TIE` except for whitespace around it.
pub fn parse_verdict(answer: &str) -> Option<Verdict> {
    match last_line(answer, "VERDICT:")? {
        " A" => Some(Verdict::First),
        " B" => Some(Verdict::Second),
        " TIE" => Some(Verdict::Tie),
        _ => None,
    }
}

/// Returns the score of an answer: its last line that starts with `SCORE:`, which must be `SCORE: N`
/// with a whole number from 1 to 10 except for whitespace around it.
pub fn parse_score(answer: &str) -> Option<u8> {
    let digits = last_line(answer, "SCORE:")?.strip_prefix(' ')?;
    // Refuses signs and leading zeros.
    (1..=10).find(|score: &u8| score.to_string() == digits)
}

/// Returns the rest of the last line that starts with `marker`.
fn last_line<'a>(answer: &'a str, marker: &str) -> Option<&'a str> {
    answer.lines().rev().find_map(|line| line.trim().strip_prefix(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let check = |answer: &str, expect| assert_eq!(parse_verdict(answer), expect, "{answer:?}");
        check("VERDICT: A", Some(Verdict::First));
        check("B is longer.\r\n  VERDICT: B \r\n\r\n", Some(Verdict::Second));
        check("VERDICT: A\nOn reflection:\nVERDICT: TIE\nThanks.", Some(Verdict::Tie));
        for answer in [
            "",
            "A",
            "The verdict: A",
            "VERDICT: a",
            "VERDICT:A",
            "VERDICT: A.",
            "VERDICT: A|B|TIE",
            "**VERDICT: A**",
            "I choose VERDICT: A",
            "VERDICT: A\nVERDICT: neither",
            "VERDICT:",
        ] {
            check(answer, None);
        }
    }

    #[test]
    fn scores() {
        for score in 1..=10 {
            assert_eq!(parse_score(&format!("Fine.\nSCORE: {score}\n")), Some(score));
        }
        for answer in
            ["SCORE: 0", "SCORE: 11", "SCORE: 7/10", "SCORE: 7.5", "SCORE: 07", "SCORE: +7", "7"]
        {
            assert_eq!(parse_score(answer), None, "{answer}");
        }
    }

    #[test]
    fn readings() {
        let read = |answer| Reading::new(answer, parse_score);
        let all = [read(Some("SCORE: 3")), read(Some("3")), read(None), read(Some(""))];
        assert_eq!(all[0].given(), Some(3));
        assert_eq!(all[1..3], [Reading::Unparsable, Reading::Unanswered]);
        assert_eq!(Reading::missing(all.iter()), (2, 1));
    }
}

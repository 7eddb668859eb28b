//! What a judge answered.

use serde::{Deserialize, Serialize};

/// What a judge wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeAnswer<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether the text ends at the token limit.
    pub is_truncated: bool,
}

/// What an answer of a judge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParsedAnswer<T> {
    /// A verdict or a score.
    Given(T),
    /// The answer doesn't contain it in the form that was asked for.
    Unparsable,
    /// The same, but the answer ends at the token limit.
    Truncated,
    /// No answer, e.g. because the server refused the request.
    Unanswered,
}

/// Numbers of answers without a verdict or a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) unparsable: usize,
    pub(super) truncated: usize,
    pub(super) unanswered: usize,
}

impl<T: Copy> ParsedAnswer<T> {
    /// Parses an answer with [`parse_verdict`] or [`parse_score`].
    pub fn new(answer: Option<JudgeAnswer<'_>>, parse: fn(&str) -> Option<T>) -> Self {
        let Some(JudgeAnswer { text, is_truncated }) = answer else { return Self::Unanswered };
        match parse(text) {
            Some(value) => Self::Given(value),
            None if is_truncated => Self::Truncated,
            None => Self::Unparsable,
        }
    }

    /// Returns the verdict or the score.
    pub fn given(&self) -> Option<T> {
        match self {
            Self::Given(value) => Some(*value),
            _ => None,
        }
    }
}

impl Missing {
    /// Counts answers.
    pub(super) fn new<'a, T: 'a>(answers: impl Iterator<Item = &'a ParsedAnswer<T>>) -> Self {
        let mut missing = Self::default();
        for answer in answers {
            match answer {
                ParsedAnswer::Given(_) => {}
                ParsedAnswer::Unparsable => missing.unparsable += 1,
                ParsedAnswer::Truncated => missing.truncated += 1,
                ParsedAnswer::Unanswered => missing.unanswered += 1,
            }
        }
        missing
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
/// `VERDICT: A`, `VERDICT: B` or `VERDICT: TIE`. Whitespace around the line, asterisks and backticks
/// around the line or its two words, and a period at its end are ignored.
pub fn parse_verdict(answer: &str) -> Option<Verdict> {
    match last_value(answer, "VERDICT:")? {
        "A" => Some(Verdict::First),
        "B" => Some(Verdict::Second),
        "TIE" => Some(Verdict::Tie),
        _ => None,
    }
}

/// Returns the score of an answer: its last line that starts with `SCORE:`, which must be `SCORE: N`
/// with a whole number from 1 to 10. The same characters as in [`parse_verdict`] are ignored.
pub fn parse_score(answer: &str) -> Option<u8> {
    let digits = last_value(answer, "SCORE:")?;
    // Refuses signs and leading zeros.
    (1..=10).find(|score: &u8| score.to_string() == digits)
}

/// Markup of emphasis and code in Markdown.
const MARKUP: [char; 2] = ['*', '`'];

/// Returns what follows the marker and a space in the last line that starts with `marker`.
fn last_value<'a>(answer: &'a str, marker: &str) -> Option<&'a str> {
    let rest = answer.lines().rev().find_map(|line| bare(line).strip_prefix(marker))?;
    let value = rest.trim_start_matches(MARKUP).strip_prefix(' ')?;
    Some(value.trim_matches(MARKUP))
}

/// Returns a line without the whitespace and markup around it and without a period at its end.
fn bare(line: &str) -> &str {
    let is_around = |c: char| c.is_whitespace() || MARKUP.contains(&c);
    let line = line.trim_matches(is_around);
    line.strip_suffix('.').map_or(line, |line| line.trim_end_matches(is_around))
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
            "VERDICT: B.",
            "**VERDICT: B**",
            "**VERDICT: B.**",
            "**VERDICT: B**.",
            "**VERDICT:** B",
            "VERDICT: **B**",
            "`VERDICT: B`",
            "VERDICT: `B`.",
        ] {
            check(answer, Some(Verdict::Second));
        }
        for answer in [
            "",
            "A",
            "The verdict: A",
            "VERDICT: a",
            "VERDICT:A",
            "VERDICT: A..",
            "VERDICT: A!",
            "VERDICT: A|B|TIE",
            "VERDICT: A*B",
            "**VERDICT:A**",
            "# VERDICT: A",
            "I choose VERDICT: A",
            "VERDICT: A\nVERDICT: neither",
            "VERDICT: A\n**VERDICT: neither**",
            "VERDICT:",
        ] {
            check(answer, None);
        }
    }

    #[test]
    fn scores() {
        for score in 1..=10 {
            assert_eq!(parse_score(&format!("Fine.\nSCORE: {score}\n")), Some(score));
            assert_eq!(parse_score(&format!("Fine.\n**SCORE: {score}**.")), Some(score));
        }
        for answer in [
            "SCORE: 0",
            "SCORE: 11",
            "SCORE: 7/10",
            "SCORE: 7.5",
            "SCORE: 1*0",
            "SCORE: 07",
            "SCORE: +7",
            "7",
        ] {
            assert_eq!(parse_score(answer), None, "{answer}");
        }
    }

    #[test]
    fn answers_without_a_value() {
        let parsed = |text, is_truncated| {
            ParsedAnswer::new(Some(JudgeAnswer { text, is_truncated }), parse_score)
        };
        let all = [
            parsed("SCORE: 3", false),
            parsed("SCORE: 4\nThis is", true),
            parsed("3", false),
            parsed("The text is", true),
            ParsedAnswer::new(None, parse_score),
            parsed("", false),
        ];
        assert_eq!(all.map(|answer| answer.given()), [Some(3), Some(4), None, None, None, None]);
        use ParsedAnswer::{Truncated, Unanswered, Unparsable};
        assert_eq!(all[2..], [Unparsable, Truncated, Unanswered, Unparsable]);
        let expect = Missing { unparsable: 2, truncated: 1, unanswered: 1 };
        assert_eq!(Missing::new(all.iter()), expect);
    }
}

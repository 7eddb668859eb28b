//! Violations that the tree still has, to be mended one by one.
//!
//! The list may only shrink: a violation that is not on it fails, and so does an entry that no violation needs any more.

use super::tree::Violation;

/// A kind of violation, as a part of its sentence.
const CIRCLE: &str = "closes a circle of modules";
const LONG_FILE: &str = "lines, at most 450";
const LONG_FUNCTION: &str = "lines, at most 80";

/// Files and the kind that they have.
const DEBTS: &[(&str, &str)] = &[
    ("crates/grpo-data/src/chat.rs", CIRCLE),
    ("crates/grpo-data/src/prompts.rs", CIRCLE),
    ("crates/grpo-infill/src/characters.rs", CIRCLE),
    ("crates/grpo-infill/src/judge.rs", CIRCLE),
    ("crates/grpo-molecules/src/reader.rs", CIRCLE),
    ("crates/grpo-replies/src/cleaning/clean.rs", CIRCLE),
    ("crates/grpo-replies/src/engagement/examples.rs", CIRCLE),
    ("crates/grpo-replies/src/pair.rs", CIRCLE),
    ("crates/grpo-replies/src/rewards/engagement.rs", CIRCLE),
    ("crates/grpo-rewards/src/composite/config.rs", CIRCLE),
    ("crates/grpo-infill/tests/it/masking.rs", LONG_FILE),
    ("crates/grpo-replies/tests/it/pairs.rs", LONG_FILE),
    ("crates/grpo-data/tests/it/prompts.rs", LONG_FUNCTION),
];

/// The violations that are no debts, and the debts that are paid, each as a line.
pub(super) fn beyond(violations: &[Violation]) -> Vec<String> {
    let is = |violation: &Violation, (path, kind): &(&str, &str)| {
        let line = violation.to_string();
        line.starts_with(&format!("{path}:")) && line.contains(kind)
    };
    let unlisted = violations.iter().filter(|v| !DEBTS.iter().any(|debt| is(v, debt)));
    let paid = DEBTS.iter().filter(|debt| !violations.iter().any(|v| is(v, debt)));
    let paid = paid.map(|(path, kind)| {
        format!("{path}: nothing in it `{kind}`: take the entry out of xtask/src/tidy/debts.rs")
    });
    unlisted.map(ToString::to_string).chain(paid).collect()
}

/// How many entries there are.
pub(super) fn count() -> usize {
    DEBTS.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_and_what_is_paid_are_told() {
        let lines = beyond(&[]);
        assert_eq!(lines.len(), count());
        for (line, (path, _)) in lines.iter().zip(DEBTS) {
            assert!(line.starts_with(&format!("{path}: nothing in it")), "{line}");
        }
    }
}

//! The results of an audit.

use std::fmt;

use serde::Serialize;

/// A property of a run, and whether the run's files prove that it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the property.
    pub property: &'static str,
    /// What was checked, in words.
    pub checked: String,
    /// Result of the check.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Result of checking a property.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// All checks passed.
    Proven,
    /// The files contain nothing to check.
    NotRecorded {
        /// Reason why nothing can be checked.
        reason: String,
    },
    /// At least one check failed.
    Violated {
        /// Violations, at least one.
        violations: Vec<Violation>,
    },
}

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Training step, starting at 1. `None` if the violation concerns the entire run.
    pub step: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Finding {
    /// Returns the violations, if any.
    pub fn violations(&self) -> &[Violation] {
        match &self.verdict {
            Verdict::Violated { violations } => violations,
            Verdict::Proven | Verdict::NotRecorded { .. } => &[],
        }
    }

    /// Adds violations that are not in the finding yet.
    pub fn add(&mut self, more: &[Violation]) {
        let mut violations = self.violations().to_vec();
        violations.extend(
            more.iter().filter(|one| !violations.contains(one)).cloned().collect::<Vec<_>>(),
        );
        if !violations.is_empty() {
            self.verdict = Verdict::Violated { violations };
        }
    }

    pub(super) fn new(property: &'static str, checked: String, violations: Vec<Violation>) -> Self {
        let verdict = match violations.is_empty() {
            true => Verdict::Proven,
            false => Verdict::Violated { violations },
        };
        Self { property, checked, verdict }
    }

    pub(super) fn not_recorded(property: &'static str, reason: impl Into<String>) -> Self {
        let verdict = Verdict::NotRecorded { reason: reason.into() };
        Self { property, checked: String::new(), verdict }
    }
}

/// Shortens a hash but keeps enough digits to search for it in the file.
pub(super) fn short(hash: &str) -> String {
    hash.chars().take(12).chain(['…']).collect()
}

/// Formats a count with its noun, e.g. `3 steps` or `1 step`.
pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", thousands(number)),
    }
}

/// Formats a number with thousands separators, e.g. `20,480`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
        assert_eq!(count(999, "step"), "999 steps");
        assert_eq!(count(20_480, "step"), "20,480 steps");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}

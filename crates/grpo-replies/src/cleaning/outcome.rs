//! The result of cleaning a data set.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use grpo_data::DataError;
use serde::{Deserialize, Serialize};

use crate::PairRecord;

/// The reason why a pair was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Name of the violated rule. Reports count reasons by this name.
    pub rule: String,
    /// A description of the offending value.
    pub found: String,
}

impl Reason {
    pub(super) fn new(rule: &'static str, found: impl fmt::Display) -> Self {
        Self { rule: rule.to_owned(), found: found.to_string() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.rule, self.found)
    }
}

/// A dropped pair with all rules that it violates.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPair {
    /// The original pair.
    pub pair: PairRecord,
    /// Name of the step that dropped the pair: `filter`, `validation` or `cleaning`.
    pub step: &'static str,
    /// All reasons for dropping the pair, at least one.
    pub reasons: Vec<Reason>,
}

/// The pairs that were kept and the pairs that were dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CleanedPairs {
    /// Kept pairs with cleaned replies, sorted by quality (see `quality`). If the cleaning step is
    /// skipped, they are in input order.
    pub pairs: Vec<PairRecord>,
    /// Dropped pairs in the order in which they were rejected.
    pub rejected: Vec<RejectedPair>,
    /// For each rule, the number of pairs without the required key.
    pub not_judged: BTreeMap<&'static str, u64>,
}

/// Statistics about a cleaning run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleaningReport {
    /// Number of input pairs.
    pub total: usize,
    /// Number of kept pairs.
    pub valid: usize,
    /// Number of dropped pairs.
    pub invalid: usize,
    /// 100 valid / total, or 0 if there are no pairs.
    pub valid_percentage: f64,
    /// Number of pairs that violate each rule. A pair can violate several rules.
    pub rejection_reasons: BTreeMap<String, u64>,
    /// For each rule, the number of pairs without the required key.
    pub not_judged: BTreeMap<&'static str, u64>,
}

impl CleanedPairs {
    /// Returns statistics about the result.
    pub fn report(&self) -> CleaningReport {
        let (valid, invalid) = (self.pairs.len(), self.rejected.len());
        let mut rejection_reasons = BTreeMap::new();
        for reason in self.rejected.iter().flat_map(|pair| &pair.reasons) {
            *rejection_reasons.entry(reason.rule.clone()).or_insert(0) += 1;
        }
        let total = valid + invalid;
        CleaningReport {
            total,
            valid,
            invalid,
            valid_percentage: 100.0 * valid as f64 / total.max(1) as f64,
            rejection_reasons,
            not_judged: self.not_judged.clone(),
        }
    }
}

/// Callback for pairs that lack the key required by a rule.
pub(super) type Unknown<'a> = &'a mut dyn FnMut(&'static str);

impl CleanedPairs {
    pub(super) fn judge(
        &mut self,
        step: &'static str,
        mut faults: impl FnMut(&PairRecord, Unknown<'_>) -> Vec<Reason>,
    ) {
        for pair in std::mem::take(&mut self.pairs) {
            let mut unknown = |rule| *self.not_judged.entry(rule).or_insert(0) += 1;
            let reasons = faults(&pair, &mut unknown);
            match reasons.is_empty() {
                true => self.pairs.push(pair),
                false => self.rejected.push(RejectedPair { pair, step, reasons }),
            }
        }
    }
}

/// Formats a location as `file:line`.
pub(super) fn place(file: &Path, line: u64) -> String {
    format!("{}:{line}", file.display())
}

/// Returns an error if the lower bound of a range exceeds its upper bound.
pub(super) fn check_range<T: PartialOrd + fmt::Display>(
    key: &str,
    [least, most]: [T; 2],
) -> Result<(), DataError> {
    match least <= most {
        true => Ok(()),
        false => {
            let found = format!("[{least}, {most}]");
            Err(DataError::setting(key, found, "the minimum before the maximum"))
        }
    }
}

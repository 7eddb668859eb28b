//! Results of a cleaning.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use grpo_data::DataError;
use serde::{Deserialize, Serialize};

use crate::PairRecord;

/// A reason to drop a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule, by which reasons are counted.
    pub rule: String,
    /// What was found.
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

/// A dropped pair with every rule that it breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPair {
    /// The pair as read.
    pub pair: PairRecord,
    /// `filter`, `validation` or `cleaning`.
    pub step: &'static str,
    /// The reasons, at least one.
    pub reasons: Vec<Reason>,
}

/// The kept and dropped pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CleanedPairs {
    /// Kept pairs with cleaned replies, best first (see `quality`); in input order without
    /// cleaning.
    pub pairs: Vec<PairRecord>,
    /// Dropped pairs in the order in which they were dropped.
    pub rejected: Vec<RejectedPair>,
    /// For each rule, the number of pairs that lack its key.
    pub not_judged: BTreeMap<&'static str, u64>,
}

/// Counts of a cleaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleaningReport {
    /// Number of input pairs.
    pub total: usize,
    /// Number of kept pairs.
    pub valid: usize,
    /// Number of dropped pairs.
    pub invalid: usize,
    /// 100 valid / total; 0 without pairs.
    pub valid_percentage: f64,
    /// Number of pairs that break each rule; a pair can break several.
    pub rejection_reasons: BTreeMap<String, u64>,
    /// For each rule, the number of pairs that lack its key.
    pub not_judged: BTreeMap<&'static str, u64>,
}

impl CleanedPairs {
    /// Returns the counts.
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

/// Counts a pair that lacks the key of a rule.
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

/// `file:line`.
pub(super) fn place(file: &Path, line: u64) -> String {
    format!("{}:{line}", file.display())
}

/// Checks that the ends of a range are in order.
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

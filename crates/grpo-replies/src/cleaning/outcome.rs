//! Pairs that are left, and why the others went.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use grpo_data::DataError;
use serde::{Deserialize, Serialize};

use crate::PairRecord;

/// Why a pair goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule; rules are counted by it.
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

/// A pair that goes, with every rule that it breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPair {
    /// The pair as it was read.
    pub pair: PairRecord,
    /// `filter`, `validation` or `cleaning`.
    pub step: &'static str,
    /// At least one.
    pub reasons: Vec<Reason>,
}

/// What is left, and what went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CleanedPairs {
    /// With cleaned replies, the best first (see [`quality`]); in their order where nothing is cleaned.
    pub pairs: Vec<PairRecord>,
    /// In the order in which they went.
    pub rejected: Vec<RejectedPair>,
    /// Rules that pairs could not be held against, and how many: their records lack the key.
    pub not_judged: BTreeMap<&'static str, u64>,
}

/// Counts of a cleaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleaningReport {
    /// Pairs that came in.
    pub total: usize,
    /// Pairs that are left.
    pub valid: usize,
    /// Pairs that went.
    pub invalid: usize,
    /// 100 valid / total; 0 without pairs.
    pub valid_percentage: f64,
    /// How many pairs break each rule; one pair can break several.
    pub rejection_reasons: BTreeMap<String, u64>,
    /// How many pairs lack what a rule looks at.
    pub not_judged: BTreeMap<&'static str, u64>,
}

impl CleanedPairs {
    /// The counts.
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

/// Notes that a pair lacks what a rule looks at.
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

/// Looks whether the smaller end of a range is the smaller one.
pub(super) fn check_range<T: PartialOrd + fmt::Display>(
    key: &str,
    [least, most]: [T; 2],
) -> Result<(), DataError> {
    match least <= most {
        true => Ok(()),
        false => {
            let found = format!("[{least}, {most}]");
            Err(DataError::setting(key, found, "the smaller number first"))
        }
    }
}

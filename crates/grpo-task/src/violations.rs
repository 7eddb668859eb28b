//! Violations that an audit of a run finds.

use std::fmt;

use grpo_run::{Finding, RecordPlan, RunFolder, audit_records};
use grpo_train::MetricTable;

/// A violation and the property that it violates.
pub struct PropertyViolation {
    /// Name of the property. `None` if the run could not be audited.
    pub property: Option<&'static str>,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl fmt::Display for PropertyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(property) = self.property {
            write!(f, "{property}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Audits the files of a run without a ledger and returns all violations.
pub fn violations_of_supervised(folder: &RunFolder) -> Vec<PropertyViolation> {
    let plan = RecordPlan {
        trained: None,
        checkpoint_every: 0,
        min_gain: 0.0,
        metrics: MetricTable::default(),
    };
    violations_of(&audit_records(folder, &plan))
}

/// Returns the violations among the findings of an audit.
pub fn violations_of(findings: &[Finding]) -> Vec<PropertyViolation> {
    let mut all = Vec::new();
    for finding in findings {
        let property = Some(finding.property);
        let violations = finding.violations().iter().map(ToString::to_string);
        all.extend(violations.map(|what| PropertyViolation { property, what }));
    }
    all
}

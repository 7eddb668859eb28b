//! Self-test results.

use crate::tensors::Precision;

/// Results from all suites.
#[derive(Clone, Debug)]
pub struct Report {
    /// Suites in the order in which they were run.
    pub suites: Vec<Suite>,
}

impl Report {
    /// Returns whether all suites have passed.
    pub fn passed(&self) -> bool {
        self.suites.iter().all(|suite| suite.missed_cases == 0)
    }
}

/// Results from one suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name of the tested computation.
    pub name: &'static str,
    /// Name of the reference that results are compared with.
    pub against: String,
    /// Precision of the tested values.
    pub precision: Precision,
    /// Number of cases.
    pub cases: usize,
    /// Number of cases with a value that exceeds its tolerance.
    pub missed_cases: usize,
    /// Number of cases that passed only because input rounding was taken into account.
    pub rounded_cases: usize,
    /// Largest |got − expected|.
    pub worst_absolute: f64,
    /// Largest |got − expected| relative to the largest |expected| in the same list. In f64, the
    /// divisor is at least 1.
    pub worst_relative: f64,
    /// First mismatch in each failed case. Only some of the failed cases are included.
    pub misses: Vec<Miss>,
    /// Reason why the suite was skipped.
    pub left_out: Option<&'static str>,
}

/// A value that exceeds its tolerance.
#[derive(Clone, Debug)]
pub struct Miss {
    /// Case index in the file, or number of the generated case, counted from 0.
    pub case: usize,
    /// Description of the case.
    pub label: String,
    /// Name of the value.
    pub what: String,
    /// Expected value, or NaN if there is none.
    pub expected: f64,
    /// Actual value, or NaN if there is none.
    pub got: f64,
    /// Maximum allowed difference.
    pub tolerance: f64,
}

/// Maximum number of mismatches to report per suite.
const MISSES: usize = 5;

impl Suite {
    pub(crate) fn new(
        name: &'static str,
        against: impl Into<String>,
        precision: Precision,
    ) -> Self {
        Self {
            name,
            against: against.into(),
            precision,
            cases: 0,
            missed_cases: 0,
            rounded_cases: 0,
            worst_absolute: 0.0,
            worst_relative: 0.0,
            misses: Vec::new(),
            left_out: None,
        }
    }

    pub(crate) fn left_out(self, why: &'static str) -> Self {
        Self { left_out: Some(why), ..self }
    }

    /// Starts the next case.
    pub(crate) fn case(&mut self, label: impl Into<String>) -> Comparison<'_> {
        self.cases += 1;
        let (case, label) = (self.cases - 1, label.into());
        Comparison { case, suite: self, label, has_missed: false, is_rounded: false }
    }
}

/// Maximum allowed difference, computed over all values in a comparison:
/// `relative · max(floor, largest |expected|) + extra + rounding`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    relative: f64,
    floor: f64,
    extra: f64,
    /// Allowance for rounded inputs.
    rounding: f64,
}

impl Tolerance {
    /// Values must be equal.
    pub(crate) const EXACT: Self = Self { relative: 0.0, floor: 0.0, extra: 0.0, rounding: 0.0 };

    /// Tolerance relative to the largest value.
    pub(crate) fn of_largest(relative: f64) -> Self {
        Self { relative, ..Self::EXACT }
    }

    /// Tolerance relative to the largest value or 1, whichever is larger.
    pub(crate) fn of_largest_or_1(relative: f64) -> Self {
        Self { relative, floor: 1.0, ..Self::EXACT }
    }

    pub(crate) fn plus(self, extra: f64) -> Self {
        Self { extra: self.extra + extra, ..self }
    }

    /// Adds `rounding` to the tolerance if a difference exceeds it.
    pub(crate) fn or(self, got: &[f64], expected: &[f64], rounding: impl Fn() -> f64) -> Self {
        let bound = self.bound(expected);
        let mut pairs = got.iter().zip(expected);
        if pairs.all(|(got, expected)| difference(*got, *expected) <= bound) {
            return self;
        }
        // A non-finite rounding error must not hide a failure.
        let rounding = rounding();
        Self { rounding: if rounding.is_finite() { rounding } else { 0.0 }, ..self }
    }

    fn unit(self, expected: &[f64]) -> f64 {
        largest(expected).max(self.floor)
    }

    fn bound(self, expected: &[f64]) -> f64 {
        self.relative * self.unit(expected) + self.extra + self.rounding
    }
}

/// Collects the comparisons for one case.
pub(crate) struct Comparison<'a> {
    suite: &'a mut Suite,
    case: usize,
    label: String,
    has_missed: bool,
    is_rounded: bool,
}

impl Comparison<'_> {
    pub(crate) fn number(&mut self, what: &str, got: f64, expected: f64, tolerance: Tolerance) {
        self.list(&|_| what.to_owned(), &[got], &[expected], tolerance);
    }

    /// Compares `[b][t]` values.
    pub(crate) fn rows(
        &mut self,
        what: &str,
        got: &[Vec<f64>],
        expected: &[Vec<f64>],
        tolerance: Tolerance,
    ) {
        let width = expected.first().map_or(1, Vec::len).max(1);
        let place = |i: usize| format!("{what}[{}][{}]", i / width, i % width);
        self.list(&place, &got.concat(), &expected.concat(), tolerance);
    }

    /// Compares a list of values. `what` returns the name of the value at an index.
    pub(crate) fn list(
        &mut self,
        what: &dyn Fn(usize) -> String,
        got: &[f64],
        expected: &[f64],
        tolerance: Tolerance,
    ) {
        let unit = tolerance.unit(expected);
        let bound = tolerance.bound(expected);
        for i in 0..got.len().max(expected.len()) {
            let number = |list: &[f64]| list.get(i).copied().unwrap_or(f64::NAN);
            let (got, expected) = (number(got), number(expected));
            let difference = difference(got, expected);
            self.suite.worst_absolute = self.suite.worst_absolute.max(difference);
            if difference > 0.0 {
                self.suite.worst_relative = self.suite.worst_relative.max(difference / unit);
            }
            if difference > bound - tolerance.rounding && difference <= bound && !self.is_rounded {
                self.is_rounded = true;
                self.suite.rounded_cases += 1;
            }
            // Written so that a NaN bound also counts as a mismatch.
            if difference.is_nan() || bound.is_nan() || difference > bound {
                self.miss(Miss {
                    case: self.case,
                    label: self.label.clone(),
                    what: what(i),
                    expected,
                    got,
                    tolerance: bound,
                });
            }
        }
    }

    fn miss(&mut self, miss: Miss) {
        if self.has_missed {
            return;
        }
        self.has_missed = true;
        self.suite.missed_cases += 1;
        if self.suite.misses.len() < MISSES {
            self.suite.misses.push(miss);
        }
    }
}

/// Returns the absolute difference. Equal infinities and two NaNs have a difference of 0, and a
/// single NaN has an infinite difference.
fn difference(got: f64, expected: f64) -> f64 {
    if got == expected || (got.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    let difference = (got - expected).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

/// Returns the largest absolute value, or 0 if there are no values.
pub(crate) fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().fold(0.0, |most, value| most.max(value.abs()))
}

//! Results of a self-test.

use crate::tensors::Precision;

/// Results of all suites.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of execution.
    pub suites: Vec<Suite>,
}

impl Report {
    /// Returns whether all suites passed.
    pub fn passed(&self) -> bool {
        self.suites.iter().all(|suite| suite.missed_cases == 0)
    }
}

/// Results of a suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// What is tested.
    pub name: &'static str,
    /// What it is compared with.
    pub against: String,
    /// Number format of the tested values.
    pub precision: Precision,
    /// Number of cases.
    pub cases: usize,
    /// Cases with a value out of tolerance.
    pub missed_cases: usize,
    /// Cases that need the allowance for rounded inputs.
    pub rounded_cases: usize,
    /// Largest |got − expected|.
    pub worst_absolute: f64,
    /// Largest |got − expected| of a list, relative to its largest |expected|, in f64 relative to
    /// at least 1.
    pub worst_relative: f64,
    /// The first value out of tolerance of each of the first such cases.
    pub misses: Vec<Miss>,
    /// Why the suite was skipped, if it was.
    pub left_out: Option<&'static str>,
}

/// A value out of tolerance.
#[derive(Clone, Debug)]
pub struct Miss {
    /// Index of the case in its file, or number of the generated case, from 0.
    pub case: usize,
    /// Description of the case.
    pub label: String,
    /// Name of the value.
    pub what: String,
    /// Expected value; NaN for none.
    pub expected: f64,
    /// Actual value; NaN for none.
    pub got: f64,
    /// Largest allowed difference.
    pub tolerance: f64,
}

/// Number of cases whose misses are kept.
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

/// The largest allowed difference: `relative · max(floor, largest |expected|) + extra + rounding`,
/// over the values compared together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    relative: f64,
    floor: f64,
    extra: f64,
    /// Effect of rounding the inputs.
    rounding: f64,
}

impl Tolerance {
    /// Requires equal numbers.
    pub(crate) const EXACT: Self = Self { relative: 0.0, floor: 0.0, extra: 0.0, rounding: 0.0 };

    /// Relative to the largest value.
    pub(crate) fn of_largest(relative: f64) -> Self {
        Self { relative, ..Self::EXACT }
    }

    /// Relative to the largest value, at least 1.
    pub(crate) fn of_largest_or_1(relative: f64) -> Self {
        Self { relative, floor: 1.0, ..Self::EXACT }
    }

    pub(crate) fn plus(self, extra: f64) -> Self {
        Self { extra: self.extra + extra, ..self }
    }

    /// Returns the tolerance, increased by `rounding` if a difference exceeds it.
    pub(crate) fn or(self, got: &[f64], expected: &[f64], rounding: impl Fn() -> f64) -> Self {
        let bound = self.bound(expected);
        let mut pairs = got.iter().zip(expected);
        if pairs.all(|(got, expected)| difference(*got, *expected) <= bound) {
            return self;
        }
        // Non-finite rounding excuses nothing.
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

/// The comparisons of one case.
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

    /// `[b][t]`.
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

    /// Compares values together; `what` names the one at an index.
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
            // Also if the bound is NaN.
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

/// Returns 0 for equal numbers, including infinities and NaNs; infinity if only one is NaN.
fn difference(got: f64, expected: f64) -> f64 {
    if got == expected || (got.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    let difference = (got - expected).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

/// Returns the largest absolute value; 0 without values.
pub(crate) fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().fold(0.0, |most, value| most.max(value.abs()))
}

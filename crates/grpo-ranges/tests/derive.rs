//! Tests what the derive macro checks. This file stands in for `grpo-data`, so that each check is seen.

extern crate self as grpo_data;

use std::ops::RangeInclusive;

use grpo_ranges::Ranges;

/// A check that failed: section, key and range.
#[derive(Debug, PartialEq)]
pub struct ConfigFault(String);

/// The trait that the macro implements.
pub trait Ranges {
    /// Returns the first check that fails.
    fn check_ranges(&self, section: &str) -> Result<(), ConfigFault>;
}

/// Fails for numbers out of range.
pub fn check_range(
    value: &f64,
    section: &str,
    key: &str,
    range: RangeInclusive<f64>,
) -> Result<(), ConfigFault> {
    let fault = || ConfigFault(format!("{section} {key} {range:?}"));
    if range.contains(value) { Ok(()) } else { Err(fault()) }
}

#[derive(Default, Ranges)]
struct Section<T> {
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    both: f64,
    #[schemars(range(min = -2.5))]
    low: f64,
    #[schemars(extend("x-basic" = true), range(max = 3))]
    high: f64,
    #[schemars(inner(range(min = 0, max = 0.5)))]
    inner: f64,
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    exclusive: f64,
    #[schemars(range(min = 0, max = 1))]
    r#type: f64,
    /// Without a range.
    free: f64,
    #[schemars(skip)]
    other: T,
}

/// Checks a section in which one value is changed.
#[track_caller]
fn check(change: impl Fn(&mut Section<u8>), expected: Option<&str>) {
    let mut section = Section { both: 1.0, ..Section::default() };
    change(&mut section);
    assert_eq!(section.other, 0);
    let found = section.check_ranges("train").err().map(|ConfigFault(fault)| fault);
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn each_bound_is_checked_and_included() {
    check(|_| (), None);
    check(|it| it.both = 1e6, None);
    check(|it| it.both = 0.5, Some("train both 1.0..=1000000.0"));
    check(|it| it.both = f64::NAN, Some("train both 1.0..=1000000.0"));
    check(|it| it.low = -2.5, None);
    check(|it| it.low = -3.0, Some("train low -2.5..=1.7976931348623157e308"));
    check(|it| it.high = -1e300, None);
    check(|it| it.high = 3.1, Some("train high -1.7976931348623157e308..=3.0"));
    check(|it| it.inner = 0.6, Some("train inner 0.0..=0.5"));
    check(|it| it.r#type = 2.0, Some("train type 0.0..=1.0"));
}

/// The code of the section says what an exclusive bound means.
#[test]
fn exclusive_bounds_are_left_to_the_section() {
    check(|it| it.exclusive = 2.0, None);
    check(|it| it.free = f64::INFINITY, None);
}

/// The first field that is out of range is reported.
#[test]
fn fields_are_checked_in_their_order() {
    check(|it| (it.high, it.low) = (4.0, -4.0), Some("train low -2.5..=1.7976931348623157e308"));
}

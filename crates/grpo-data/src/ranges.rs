//! Ranges of settings.

use std::ops::RangeInclusive;

use crate::{ConfigFault, short_number};

/// Settings whose attributes `#[schemars(range(…))]` give their ranges. `#[derive(Ranges)]` implements it.
pub trait Ranges {
    /// Checks that all values are in range. `section` is the name of the configuration section.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    fn check_ranges(&self, section: &str) -> Result<(), ConfigFault>;
}

/// Checks that a configuration value is in `range`.
///
/// # Errors
/// Returns an error that contains `key` if the value is out of range.
pub fn in_range(key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), ConfigFault> {
    let (low, high) = (range.start(), range.end());
    // A setting that is stored with 32 bits is compared with limits of 32 bits.
    let (single, singles) = (value as f32, *low as f32..=*high as f32);
    let is_single = value.is_finite() && f64::from(single) == value;
    if range.contains(&value) || (is_single && singles.contains(&single)) {
        return Ok(());
    }
    let expected = match (*low <= f64::MIN / 2.0, *high >= f64::MAX / 2.0) {
        (true, true) => "a finite number".to_owned(),
        (true, false) => format!("at most {}", short_number(*high)),
        (false, true) => format!("{low} or more"),
        (false, false) => format!("{low} to {}", short_number(*high)),
    };
    Err(ConfigFault::out_of_range(key, value, &expected))
}

/// Checks the numbers of a setting, if it has any.
///
/// # Errors
/// Returns an error that names `section` and `key` if a number is out of range.
pub fn check_range(
    value: &impl Numbers,
    section: &str,
    key: &str,
    range: RangeInclusive<f64>,
) -> Result<(), ConfigFault> {
    let dot = if section.is_empty() { "" } else { "." };
    value.each(&mut |index, value| {
        let index = index.map_or(String::new(), |index| format!("[{index}]"));
        in_range(&format!("{section}{dot}{key}{index}"), value, range.clone())
    })
}

/// A number, none, or several.
pub trait Numbers {
    /// Calls `check` with each number and, in a list, its index.
    ///
    /// # Errors
    /// Returns the first error of `check`.
    fn each(
        &self,
        check: &mut dyn FnMut(Option<usize>, f64) -> Result<(), ConfigFault>,
    ) -> Result<(), ConfigFault>;
}

macro_rules! single_numbers {
    ($($number:ty: $convert:expr,)*) => {
        $(
            impl Numbers for $number {
                fn each(
                    &self,
                    check: &mut dyn FnMut(Option<usize>, f64) -> Result<(), ConfigFault>,
                ) -> Result<(), ConfigFault> {
                    let convert: fn($number) -> f64 = $convert;
                    check(None, convert(*self))
                }
            }
        )*
    };
}

single_numbers! {
    f64: std::convert::identity,
    f32: f64::from,
    u32: f64::from,
    i64: |number| number as f64,
    u64: |number| number as f64,
    usize: |number| number as f64,
}

impl<T: Numbers> Numbers for Option<T> {
    fn each(
        &self,
        check: &mut dyn FnMut(Option<usize>, f64) -> Result<(), ConfigFault>,
    ) -> Result<(), ConfigFault> {
        self.iter().try_for_each(|value| value.each(check))
    }
}

impl<T: Numbers, const N: usize> Numbers for [T; N] {
    fn each(
        &self,
        check: &mut dyn FnMut(Option<usize>, f64) -> Result<(), ConfigFault>,
    ) -> Result<(), ConfigFault> {
        self.iter()
            .enumerate()
            .try_for_each(|(index, value)| value.each(&mut |_, number| check(Some(index), number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &impl Numbers, range: RangeInclusive<f64>, expect: Option<&str>) {
        let found = check_range(value, "train", "x", range).err().map(|fault| fault.to_string());
        assert_eq!(found.as_deref(), expect);
    }

    #[test]
    fn numbers_lists_and_missing_values() {
        check(&0u32, 1.0..=1e9, Some("train.x = 0 is out of range; expected 1 to 1000000000"));
        check(&-1.0, 0.0..=f64::MAX, Some("train.x = -1 is out of range; expected 0 or more"));
        check(&[0.5, 2.0], 0.0..=1.0, Some("train.x[1] = 2 is out of range; expected 0 to 1"));
        check(&7.5, f64::MIN..=7.0, Some("train.x = 7.5 is out of range; expected at most 7"));
        check(
            &f64::INFINITY,
            f64::MIN..=7.0,
            Some("train.x = inf is out of range; expected at most 7"),
        );
        check(&-1e300, f64::MIN..=7.0, None);
        check(&Some(7usize), 1.0..=5.0, Some("train.x = 7 is out of range; expected 1 to 5"));
        check(&None::<f64>, 1.0..=5.0, None);
        check(&0.9f32, 0.0..=0.9, None);
        check(&f64::NAN, 0.0..=1.0, Some("train.x = NaN is out of range; expected 0 to 1"));
    }
}

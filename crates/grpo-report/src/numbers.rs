//! Formatting of numbers and durations.

/// Formats a number with four significant digits.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "–".to_owned()
    } else if value == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.3e}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
        let text = format!("{value:.decimals$}");
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    }
}

/// Formats a number with three significant digits, for use in sentences.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if !(1e-3..1e3).contains(&size) {
        return number(value);
    }
    let decimals = (2 - size.log10().floor() as i32).clamp(0, 3) as usize;
    format!("{value:.decimals$}")
}

/// Formats a number with `decimals` decimal places. Numbers with more than six digits before the
/// decimal point use scientific notation.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if value.abs() < 1e6 { format!("{value:.decimals$}") } else { format!("{value:.3e}") }
}

/// Formats a number of a table with four decimal places, so that numbers can be compared at a
/// glance. Whole numbers have none, and tiny and huge numbers use scientific notation.
pub(crate) fn tabular(value: f64) -> String {
    let is_fraction = (1e-3..1e6).contains(&value.abs()) && value.fract() != 0.0;
    if is_fraction { format!("{value:.4}") } else { number(value) }
}

/// Like [`fixed`], but always with a sign.
pub(crate) fn signed(value: f64, decimals: usize) -> String {
    if value.abs() < 1e6 { format!("{value:+.decimals$}") } else { format!("{value:+.3e}") }
}

/// Capitalizes the first letter.
pub(crate) fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// Formats a duration, e.g. `1 h 02 min`, `3 min 04 s` or `5.6 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.7876177, "0.7876"),
            (33.0078, "33.01"),
            (6541.4, "6541"),
            (-0.25, "-0.25"),
            (1.5e-5, "1.500e-5"),
            (266290.0, "266290"),
            (4.2e9, "4.200e9"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
        for (value, text) in [(0.84841, "0.848"), (1.9415, "1.94"), (0.9, "0.900"), (33.04, "33.0")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (fixed(0.25, 4), fixed(1e300, 4)),
            ("0.2500".to_owned(), "1.000e300".to_owned())
        );
        assert_eq!(
            (signed(0.25, 3), signed(-1e300, 3)),
            ("+0.250".to_owned(), "-1.000e300".to_owned())
        );
        for (value, text) in
            [(0.25, "0.2500"), (-309.11, "-309.1100"), (120.0, "120"), (f64::NAN, "–")]
        {
            assert_eq!(tabular(value), text);
        }
        assert_eq!((tabular(1.5e-5), tabular(2e7)), ("1.500e-5".to_owned(), "2.000e7".to_owned()));
        assert_eq!((short(0.0), short(6541.4)), ("0".to_owned(), "6541".to_owned()));
        for (seconds, text) in [(5.64, "5.6 s"), (184.0, "3 min 04 s"), (3725.0, "1 h 02 min")] {
            assert_eq!(duration(seconds), text);
        }
    }
}

//! Numbers in CSV tables.

/// Returns a number as a cell of a CSV table, with six decimals as in all tables of this program.
pub fn number_cell(value: f64) -> String {
    format!("{value:.6}")
}

/// Returns the end of a message about a cell that is not a number, if it would be one with a point in
/// place of its comma. A comma before exactly three digits, as in `12,500`, may separate thousands: then
/// there is no remedy.
pub fn decimal_comma_remedy(text: &str) -> &'static str {
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    let has_decimal_comma = text.matches(',').count() == 1
        && is_number(&text.replacen(',', ".", 1))
        && !may_separate_thousands(text);
    match has_decimal_comma {
        true => " with a decimal point instead of a comma",
        false => "",
    }
}

/// Returns whether the comma of a number has one to three digits before it and exactly three after it.
fn may_separate_thousands(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['+', '-']);
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(',').is_some_and(|(before, after)| {
        (1..=3).contains(&before.len()) && after.len() == 3 && is_digits(before) && is_digits(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_with_a_decimal_comma_get_the_remedy() {
        for text in
            ["1,5", " -0,25", "1,5e3", ",5", "1,50", "1,5000", "1234,500", ",500", "1,500e3"]
        {
            assert_ne!(decimal_comma_remedy(text), "", "{text}");
        }
        for text in ["1.5", "1,000,000", "1,000", " -12,500", "999,999", "a,b", "", ",", "inf,"] {
            assert_eq!(decimal_comma_remedy(text), "", "{text}");
        }
    }
}

//! Numbers in CSV tables.

/// Returns a number as a cell of a CSV table, with six decimals as in all tables of this program.
pub fn number_cell(value: f64) -> String {
    format!("{value:.6}")
}

/// Returns the end of a message about a cell that is not a number, if it would be one with a point in
/// place of its comma.
pub fn decimal_comma_remedy(text: &str) -> &'static str {
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    match text.matches(',').count() == 1 && is_number(&text.replacen(',', ".", 1)) {
        true => " with a decimal point instead of a comma",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_with_a_decimal_comma_get_the_remedy() {
        for text in ["1,5", " -0,25", "1,5e3", ",5"] {
            assert_ne!(decimal_comma_remedy(text), "", "{text}");
        }
        for text in ["1.5", "1,000,000", "a,b", "", ",", "inf,"] {
            assert_eq!(decimal_comma_remedy(text), "", "{text}");
        }
    }
}

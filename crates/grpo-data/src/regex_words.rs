//! Errors of regular expressions in plain words.

use std::fmt::Display;

/// Describes what is wrong with a regular expression of a user, and how to fix it where that is not
/// obvious.
pub fn regex_reason(error: &impl Display) -> String {
    let text = error.to_string();
    if text.starts_with("Compiled regex exceeds size limit") {
        return "it is too large; use smaller repetition counts, or * and + instead".to_owned();
    }
    // The last line contains the error. The preceding lines show its position in the pattern.
    let fault = text.lines().last().unwrap_or_default();
    fault.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn reasons_are_plain_words() {
        let too_large = "it is too large; use smaller repetition counts, or * and + instead";
        for (pattern, expected) in [
            ("a{1000}{1000}", too_large),
            (r"(?:\w{100}){100}", too_large),
            ("(?:(?:a{100}){100}){100}", too_large),
            ("(", "unclosed group"),
            ("*", "repetition operator missing expression"),
        ] {
            let error = Regex::new(pattern).unwrap_err();
            assert_eq!(regex_reason(&error), expected, "{pattern}");
        }
    }
}

//! Tokenization of texts into words.

/// Iterates over the lower-cased words of a text: runs of letters, digits and apostrophes, without
/// apostrophes at their ends, so that `'no'` is `no` and `don't` is one word. Typographic
/// apostrophes are replaced.
///
/// Every measure of this crate uses these words.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let is_apart = |c: char| !(c.is_alphanumeric() || is_apostrophe(c));
    text.split(is_apart)
        .map(|run| run.trim_matches(is_apostrophe))
        .filter(|word| !word.is_empty())
        .map(|word| word.to_lowercase().replace('\u{2019}', "'"))
}

/// Returns whether a text has capital letters and no lower-case ones.
pub fn is_all_capitals(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
}

fn is_apostrophe(c: char) -> bool {
    c == '\'' || c == '\u{2019}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(words(text).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn words_are_runs_of_letters_digits_and_apostrophes() {
        check(
            "Don't tell the AI-people: 3 of 4!",
            &["don't", "tell", "the", "ai", "people", "3", "of", "4"],
        );
        check("\u{2018}no\u{2019}, it\u{2019}s 'fine' 🎉", &["no", "it's", "fine"]);
        check("ÜBER straße", &["über", "straße"]);
        check("... ' 🎉", &[]);
    }
}

//! Splits texts into words.

/// Iterates over the words of a text, converted to lower case. Words are runs of letters, digits and apostrophes.
/// Apostrophes at the ends are removed, so `'no'` becomes `no`, but `don't` remains one word.
/// Typographic apostrophes are replaced by straight ones.
///
/// All measures in this crate use these words.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let is_apart = |c: char| !(c.is_alphanumeric() || is_apostrophe(c));
    text.split(is_apart)
        .map(|run| run.trim_matches(is_apostrophe))
        .filter(|word| !word.is_empty())
        .map(|word| word.to_lowercase().replace('\u{2019}', "'"))
}

/// Returns whether a text contains upper-case letters but no lower-case letters.
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

//! Error messages in a single sentence.

use std::error::Error;

use grpo_data::{in_plain_words, json_reason, plain_numbers};

/// Joins an error and its causes into one sentence without repetitions.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(words) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    // Values from files and arguments may contain line breaks.
    let sentence = sentence.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    without_os_codes(&sentence)
}

/// Describes a cause. Those of libraries have words of Rust.
fn words(cause: &(dyn Error + 'static)) -> String {
    if let Some(error) = cause.downcast_ref::<serde_json::Error>() {
        return json_reason(error);
    }
    if let Some(error) = cause.downcast_ref::<toml::de::Error>() {
        return in_plain_words(error.message(), "table");
    }
    plain_numbers(&cause.to_string())
}

/// Returns a command line that a POSIX shell reads as these words.
pub fn command_line<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let quoted = |word: S| {
        let word = word.as_ref();
        let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%^".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.to_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Operating system messages and their replacements.
const OS_FAULTS: [(&str, &str); 7] = [
    ("No such file or directory", "no such file or folder"),
    ("File exists", "a file with this name exists"),
    ("Is a directory", "it is a folder"),
    ("Not a directory", "part of the path is not a folder"),
    ("Permission denied", "permission denied"),
    ("No space left on device", "no space left on the disk"),
    ("File too large", "the file is too large"),
];

/// Replaces messages such as `Is a directory (os error 21)`.
fn without_os_codes(text: &str) -> String {
    const CODE: &str = " (os error ";
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, (_, after))) =
        rest.split_once(CODE).and_then(|(before, after)| Some((before, after.split_once(')')?)))
    {
        let known = OS_FAULTS
            .iter()
            .find_map(|(fault, ours)| before.strip_suffix(fault).map(|start| (start, *ours)));
        let (start, fault) = known.unwrap_or((before, ""));
        plain.push_str(start);
        plain.push_str(fault);
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_operating_system_are_left_out() {
        let check = |text: &str, expect: &str| assert_eq!(without_os_codes(text), expect);
        check(
            "cannot read `a`: No such file or directory (os error 2); check that it is there",
            "cannot read `a`: no such file or folder; check that it is there",
        );
        check(
            "a: Is a directory (os error 21): b: Strange (os error 99)",
            "a: it is a folder: b: Strange",
        );
        check("nothing (os error", "nothing (os error");
    }
}

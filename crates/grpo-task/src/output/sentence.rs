//! Error messages in a single sentence.

use std::error::Error;
use std::io;

use grpo_data::{in_plain_words, json_reason, plain_numbers, shell_word, system_words};

/// Joins an error and its causes into one sentence without repetitions.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(|cause| without_traceback(words(cause))) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence.truncate(start_of_repetition(&sentence, &cause));
            if !sentence.is_empty() && !sentence.ends_with(": ") {
                sentence.push_str(": ");
            }
            sentence.push_str(&cause);
        }
    }
    // Values from files and arguments may contain line breaks.
    let sentence = sentence.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    cut(without_os_codes(&sentence))
}

/// Start of a frame of a Python traceback.
const FRAME: &str = "  File \"";

/// First lines of a Python traceback. That of a syntax error has no heading.
const TRACEBACKS: [&str; 2] = ["Traceback (most recent call last):", FRAME];

/// Returns the lines of the first Python traceback in an error.
pub(crate) fn traceback(error: &anyhow::Error) -> Option<Vec<String>> {
    error.chain().find_map(|cause| {
        let words = words(cause);
        let start = start_of_traceback(&words)?;
        Some(words[start..].lines().map(str::to_owned).collect())
    })
}

fn start_of_traceback(words: &str) -> Option<usize> {
    let is_start = |at: &usize| *at == 0 || words[..*at].ends_with(['\n', ' ']);
    TRACEBACKS.into_iter().filter_map(|first| words.find(first)).filter(is_start).min()
}

/// Replaces a traceback by the lines after its frames: the type and the message of the exception.
fn without_traceback(words: String) -> String {
    let Some(start) = start_of_traceback(&words) else { return words };
    let lines: Vec<&str> = words[start..].lines().collect();
    let last_frame = lines.iter().rposition(|line| line.starts_with(FRAME)).unwrap_or_default();
    // The source of a frame is indented, and so may be all lines of a message but the first.
    let exception = lines[last_frame + 1..].iter().skip_while(|line| line.starts_with(' '));
    let exception = exception.map(|line| line.trim()).filter(|line| !line.is_empty());
    let exception: Vec<&str> = exception.collect();
    if exception.is_empty() { words } else { words[..start].to_owned() + &exception.join(" ") }
}

/// Returns a reason in one line, without the traceback of a Python function.
pub fn reason_line(reason: &str) -> String {
    let words = without_traceback(reason.to_owned());
    words.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the start of the trailing words of `sentence` that `cause` repeats, e.g. `cannot write a.csv`
/// in `eval: cannot write a.csv` and `cannot write a.csv: permission denied`.
fn start_of_repetition(sentence: &str, cause: &str) -> usize {
    let after_colons = sentence.match_indices(": ").map(|(at, colon)| at + colon.len());
    let mut starts = std::iter::once(0).chain(after_colons);
    let is_repeated = |start: &usize| {
        let rest = cause.strip_prefix(&sentence[*start..]);
        rest.is_some_and(|rest| rest.starts_with([':', ';', ',', ' ']))
    };
    starts.find(is_repeated).unwrap_or(sentence.len())
}

/// Number of characters of an error that are shown. Longer ones quote a file or an argument.
const LONGEST: usize = 4000;

/// Cuts a long text in the middle, because the remedy is at its end.
fn cut(text: String) -> String {
    let length = text.chars().count();
    if length <= LONGEST {
        return text;
    }
    let start = text.chars().take(LONGEST / 2);
    let end = text.chars().skip(length - LONGEST / 2);
    start.chain(" … ".chars()).chain(end).collect()
}

/// Describes a cause. Those of libraries have words of Rust.
fn words(cause: &(dyn Error + 'static)) -> String {
    let of_system = cause.downcast_ref::<io::Error>().and_then(system_words);
    if let Some((what, remedy)) = of_system {
        return format!("{what}; {remedy}");
    }
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
    words.into_iter().map(|word| shell_word(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Operating system messages and their replacements.
const OS_FAULTS: [(&str, &str); 17] = [
    ("No such file or directory", "no such file or folder"),
    ("File exists", "a file with this name exists"),
    ("Is a directory", "it is a folder"),
    ("Not a directory", "part of the path is not a folder"),
    ("Permission denied", "permission denied"),
    ("No space left on device", "no space left on the disk"),
    ("File too large", "the file is too large"),
    ("File name too long", "a name in the path, or the path, is too long; use a shorter one"),
    ("Too many levels of symbolic links", "its symbolic links lead in a circle; use another path"),
    ("Too many open files", "the limit on open files is too low; raise it with `ulimit -n 1024`"),
    ("Too many open files in system", "the machine has too many open files; end other programs"),
    ("Input/output error", "the disk reports an input or output error; check the disk"),
    ("Cannot allocate memory", "the memory is used up or limited (ulimit -v)"),
    (
        "Resource temporarily unavailable",
        "memory or the number of processes is limited (ulimit -v, ulimit -u)",
    ),
    ("Disk quota exceeded", "the disk quota is used up"),
    ("Read-only file system", "the file system is read-only"),
    ("Directory not empty", "the folder is not empty"),
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
        for code in [5, 11, 12, 23, 24, 30, 36, 39, 40] {
            let raw = std::io::Error::from_raw_os_error(code).to_string();
            let said = without_os_codes(&raw);
            assert!(said.starts_with(char::is_lowercase), "{raw}: {said}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_cause_is_not_repeated() {
        let cause = || io::Error::from_raw_os_error(nix::errno::Errno::ELOOP as i32);
        let expected =
            "its symbolic links lead in a circle; remove one of them, or use another path";
        let outer = grpo_data::with_remedy(&cause(), "free some space");
        let of = |error: anyhow::Error| assert_eq!(sentence(&error), format!("a: {expected}"));
        of(anyhow::Error::new(cause()).context(format!("a: {outer}")));
        of(anyhow::Error::new(cause()).context("a"));
    }

    #[test]
    fn a_cause_that_begins_with_the_words_before_it_replaces_them() {
        for (outer, cause, expected) in [
            ("cannot write a", "cannot write a: it is full", "cannot write a: it is full"),
            ("x: cannot write a", "cannot write a: it is full", "x: cannot write a: it is full"),
            ("x: a.csv", "a.csv is empty", "x: a.csv is empty"),
            ("x: a", "ab is empty", "x: a: ab is empty"),
            ("a.csv", "it is empty", "a.csv: it is empty"),
        ] {
            let error = anyhow::anyhow!("{cause}").context(outer.to_owned());
            assert_eq!(sentence(&error), expected);
        }
    }

    #[test]
    fn the_lines_of_a_traceback_follow_the_sentence() {
        let frames = "Traceback (most recent call last):\n  File \"r.py\", line 5, in reward\n    raise X\n    ^^^^^^^\n";
        for (words, expected) in [
            (
                format!("reward raised an exception:\n{frames}ValueError: bad luck"),
                "outer: reward raised an exception: ValueError: bad luck",
            ),
            (
                format!("an exception: {frames}ValueError: a\nb"),
                "outer: an exception: ValueError: a b",
            ),
            (
                format!("an exception: {frames}Boost.Python.ArgumentError: Python argument types in\n    MolToSmiles(NoneType)\ndid not match C++ signature:\n    MolToSmiles(Mol mol)\n    MolToSmiles(Mol mol, bool)"),
                "outer: an exception: Boost.Python.ArgumentError: Python argument types in MolToSmiles(NoneType) did not match C++ signature: MolToSmiles(Mol mol) MolToSmiles(Mol mol, bool)",
            ),
            (
                format!("an exception: {frames}ValueError: a\n\n  b\nc\n"),
                "outer: an exception: ValueError: a b c",
            ),
            (
                "an exception: Traceback (most recent call last):\nValueError: a".to_owned(),
                "outer: an exception: ValueError: a",
            ),
            (
                format!("an exception: {frames}  File \"b.py\", line 1\n    def f(\n         ^\nSyntaxError: '(' was never closed"),
                "outer: an exception: SyntaxError: '(' was never closed",
            ),
            (
                format!("an exception:\n{frames}KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n{frames}ValueError: b"),
                "outer: an exception: ValueError: b",
            ),
            (
                "r.py cannot be imported:\n  File \"r.py\", line 1\n    def f(\n         ^\nSyntaxError: '(' was never closed".to_owned(),
                "outer: r.py cannot be imported: SyntaxError: '(' was never closed",
            ),
        ] {
            let error = anyhow::anyhow!(words.clone()).context("outer");
            assert_eq!(sentence(&error), expected);
            let lines = traceback(&error).unwrap();
            assert!(words.trim_end().ends_with(&lines.join("\n")), "{lines:?}");
            assert!(lines[0].contains("Traceback") || lines[0].starts_with("  File"), "{lines:?}");
        }
        assert_eq!(traceback(&anyhow::anyhow!("a file: File \"x\" is missing")), None);
    }

    #[test]
    fn long_errors_are_cut_in_the_middle() {
        let long = anyhow::anyhow!("a.csv: {}; correct it", "ä".repeat(300_000));
        let said = sentence(&long);
        assert_eq!(said.chars().count(), LONGEST + 3);
        assert!(said.starts_with("a.csv: ä") && said.ends_with("ä; correct it"));
        assert_eq!(sentence(&anyhow::anyhow!("short")), "short");
    }
}

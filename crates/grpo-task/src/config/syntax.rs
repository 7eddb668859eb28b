//! Syntax errors of configuration files in plain words.

use grpo_data::{Shortened, in_plain_words};
use toml::de::Error;

/// How values are written.
const VALUE: &str = "write a number, true, false, or text in double quotes";

/// What the parser says about the structure of a file, and our words.
const STRUCTURE: [(&str, &str); 24] = [
    ("missing value", "there is no value after `=`; add one"),
    ("extra `=`", "there is a second `=`; remove one of them"),
    ("unclosed array table", "the name of a section is not closed; add `]]`"),
    ("unclosed table", "the name of a section is not closed; add `]`"),
    ("unclosed array", "a list is not closed; add `]`"),
    ("unclosed inline table", "a table is not closed; add `}`"),
    (
        "missing comma between array elements",
        "there is no comma between two items of a list; add it",
    ),
    (
        "missing comma between key-value pairs",
        "there is no comma between two keys of a table; add it",
    ),
    ("extra comma in array", "a list has two commas in a row; remove one of them"),
    ("extra comma in inline table", "a table has a comma too many; remove it"),
    ("unexpected `=` in array", "a list has a `=`; write KEY = VALUE in a table in braces"),
    ("extra assignment between key-value pairs", "a table has a second `=`; remove one of them"),
    (
        "missing key for inline table element",
        "a table has a value without a key; write { KEY = VALUE }",
    ),
    (
        "missing assignment between key-value pairs",
        "a table has a key without a value; write { KEY = VALUE }",
    ),
    ("invalid inline table element", "a table has a value without a key; write { KEY = VALUE }"),
    ("missing inline table opening", "a `}` closes nothing; remove it"),
    ("missing array opening", "a `]` closes nothing; remove it"),
    ("missing table open", "a `]` closes nothing; remove it"),
    ("invalid table", "the name of a section is missing; write [NAME]"),
    ("duplicate key", "this key or section is already there; remove one of them"),
    (
        "cannot extend value of type",
        "this key or section already has another value; remove one of them",
    ),
    ("cannot recurse further", "it is nested too deeply; use fewer levels"),
    ("recursion limit", "it is nested too deeply; use fewer levels"),
    (
        "carriage return must be followed",
        "a line ends with a carriage return alone; save the file with usual line endings",
    ),
];

/// Describes a syntax error in `text`: what is wrong and how to fix it.
pub(super) fn syntax_fault(text: &str, error: &Error) -> String {
    // A number that is too large is not an error of the syntax.
    if ["invalid type", "u64 value", "i64 value"]
        .iter()
        .any(|start| error.message().starts_with(start))
    {
        return in_plain_words(error.message(), "table");
    }
    let said = error.message().lines().next().unwrap_or_default();
    let said = said.split_once(", expected").map_or(said, |(said, _)| said);
    let start = error.span().map_or(text.len(), |span| span.start.min(text.len()));
    let line = line_at(text, start);
    let is_about = |words: &[&str]| words.iter().any(|word| said.contains(word));
    // Before the words of strings and keys, which occur in them as well.
    if let Some((_, ours)) = STRUCTURE.iter().find(|(theirs, _)| said.starts_with(theirs)) {
        return (*ours).to_owned();
    }
    if is_about(&["escape", "unicode"]) {
        return "a backslash is not followed by a character that it can escape; write \\\\ for a backslash, or use single quotes".to_owned();
    }
    if is_about(&["unexpected key or value", "unexpected content"]) {
        let shown = shortened(line);
        return format!("`{shown}` has more text after its value; write one KEY = VALUE per line");
    }
    if is_about(&["key"]) {
        return fault_of_key(line);
    }
    if is_about(&["unquoted string", "must be quoted", "float", "boolean", "integer", "number"])
        || is_about(&["date", "time", "mantissa", "fraction", "exponent", "radix", "leading zero"])
        || is_about(&["sign", "invalid value", "digits"])
    {
        return fault_of_value(value_at(text, start));
    }
    if is_about(&["string", "quote"]) {
        return "text in quotes is not closed on its line; add the closing quote".to_owned();
    }
    if is_about(&["comment", "unexpected"]) {
        return format!(
            "`{}` is not expected here; write one KEY = VALUE per line",
            shortened(line)
        );
    }
    format!("`{}` is not valid TOML; write KEY = VALUE", shortened(line))
}

fn fault_of_key(line: &str) -> String {
    let shown = shortened(line);
    match (line.contains('='), line.split_once(':')) {
        (false, Some((key, value))) if !key.trim().contains([' ', '{']) => {
            let (key, value) = (key.trim(), value.trim());
            format!("`{shown}` has a colon; write `{} = {}`", shortened(key), shortened(value))
        }
        (false, _) => format!("`{shown}` is a key without a value; write KEY = VALUE"),
        (true, _) => format!(
            "`{shown}` does not begin with a key; write KEY = VALUE, with letters, digits, _ and - in the key"
        ),
    }
}

fn fault_of_value(value: &str) -> String {
    let shown = shortened(value);
    match value.to_lowercase().as_str() {
        "null" | "none" | "nil" | "undefined" | "~" => {
            format!("`{shown}` is not a value; leave the key out, or {VALUE}")
        }
        lower @ ("true" | "false") => format!("`{shown}` is not a value; write {lower}"),
        "" => format!("there is no value; {VALUE}"),
        _ => format!("`{shown}` is not a value; {VALUE}"),
    }
}

/// Returns the line around an offset.
fn line_at(text: &str, offset: usize) -> &str {
    let offset = (0..=offset).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
    text[start..].lines().next().unwrap_or_default().trim()
}

/// Returns the value of which a character is at an offset.
fn value_at(text: &str, offset: usize) -> &str {
    let offset = (0..=offset).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let ends = |c: char| "\r\n,[]{}=#".contains(c);
    let start = text[..offset].rfind(ends).map_or(0, |end| end + 1);
    let start = (start..=offset).find(|at| text.is_char_boundary(*at)).unwrap_or(offset);
    let length = text[start..].find(ends).unwrap_or(text.len() - start);
    text[start..start + length].trim()
}

fn shortened(text: &str) -> String {
    Shortened(text).to_string()
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::*;

    #[test]
    fn syntax_errors_have_plain_words() {
        const REST: &str = "write a number, true, false, or text in double quotes";
        let value = |found: &str| format!("`{found}` is not a value; {REST}");
        let without =
            |found: &str| format!("`{found}` is not a value; leave the key out, or {REST}");
        let check = |text: &str, expected: &str| {
            let error = toml::from_str::<Table>(text).unwrap_err();
            let fault = syntax_fault(text, &error);
            assert_eq!(fault, expected, "{text}: {}", error.message());
        };
        for found in ["null", "None", "nil"] {
            check(&format!("a = {found}"), &without(found));
        }
        for found in ["1.0.0", "molecule", "01", "1__0", "0xZZ", "1e", "+-1", "2020-13-01"] {
            check(&format!("[b]\na = {found}\n"), &value(found));
        }
        check("a = True", "`True` is not a value; write true");
        check("a = FALSE", "`FALSE` is not a value; write false");
        check("[reward]\ntype: \"x\"", "`type: \"x\"` has a colon; write `type = \"x\"`");
        check(
            "a = 1 b = 2",
            "`a = 1 b = 2` has more text after its value; write one KEY = VALUE per line",
        );
        check("{\"a\": 1}", "`{\"a\": 1}` is a key without a value; write KEY = VALUE");
        check("a", "`a` is a key without a value; write KEY = VALUE");
        check(
            "a =\nb = 1",
            "there is no value; write a number, true, false, or text in double quotes",
        );
        check("a = [1, 2", "a list is not closed; add `]`");
        check("[a\nb = 1", "the name of a section is not closed; add `]`");
        check("a = { b = 1", "a table is not closed; add `}`");
        check("a = [1 2]", &value("1 2"));
        check("a = 1\na = 2", "this key or section is already there; remove one of them");
        check("a = \"b", "text in quotes is not closed on its line; add the closing quote");
        check(
            "a = \"C:\\data\"",
            "a backslash is not followed by a character that it can escape; write \\\\ for a backslash, or use single quotes",
        );
    }

    /// Whatever is wrong, the message has no words of the parser.
    #[test]
    fn no_message_has_words_of_the_parser() {
        let whole = "[a]\nb = 1.5 # c\nd = \"e\\n\"\nf = [1, 2]\ng = { h = true, i = 'j' }\n[[k]]\nl = 2020-01-01\n";
        let words =
            ["expected", "literal", "basic", "scalar", "mantissa", "inline", "array", "unexpected"];
        for at in 0..whole.len() {
            for put in [
                "", "=", "[", "]", "{", "}", "\"", "'", "\\", ",", "\n", ":", "x", "é", "\u{1}",
                ".",
            ] {
                let text =
                    format!("{}{put}{}", &whole[..at], &whole[at + usize::from(put.is_empty())..]);
                let Err(error) = toml::from_str::<Table>(&text) else { continue };
                let fault = syntax_fault(&text, &error);
                let plain = fault.replace("is not expected here", "");
                assert!(fault.contains("; "), "{text}: {fault}");
                for word in words {
                    assert!(!plain.contains(word), "{text}: {fault} ({})", error.message());
                }
            }
        }
    }
}

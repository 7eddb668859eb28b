//! Messages of libraries in plain words.

use crate::error::Shortened;

/// Messages of `serde`, `toml` and `serde_json` whose words are not those of a user, by their
/// beginnings.
const SENTENCES: [(&str, &str); 17] = [
    ("u64 value was too large", "a whole number is larger than 9223372036854775807"),
    ("i64 value was too small", "a whole number is smaller than -9223372036854775808"),
    ("recursion limit exceeded", "it is nested too deeply"),
    ("expected ident", "expected true, false or null"),
    ("lone leading surrogate in hex escape", "half of a character in an escape such as \\ud83d"),
    ("unexpected end of hex escape", "half of a character in an escape such as \\ud83d"),
    (
        "control character (\\u0000-\\u001F) found while parsing a string",
        "a control character in a string",
    ),
    ("invalid unicode code point", "a character that does not exist"),
    ("expected value", "a value is missing or misspelled (text has double quotes)"),
    ("key must be a string", "a key has no double quotes"),
    ("trailing characters", "there is more text after the end of the value"),
    ("trailing comma", "there is a comma before a closing bracket"),
    ("expected `:`", "there is no colon after a key"),
    ("expected `,` or `]`", "there is no comma or closing bracket after an item of a list"),
    ("expected `,` or `}`", "there is no comma or closing bracket after a value of an object"),
    ("invalid escape", "a backslash is not followed by a character that it can escape"),
    ("number out of range", "a number is too large"),
];

/// Messages of number parsers.
const NUMBERS: [(&str, &str); 7] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("cannot parse integer from empty string", "it is empty"),
    ("cannot parse float from empty string", "it is empty"),
    ("invalid float literal", "it is not a number"),
    ("stream did not contain valid UTF-8", "it is not UTF-8 text"),
];

/// Replaces the messages of number parsers anywhere in `text`, and shortens numbers with hundreds of
/// digits, such as 1e308 or 1e-320.
pub fn plain_numbers(text: &str) -> String {
    let text =
        NUMBERS.iter().fold(text.to_owned(), |text, (found, words)| text.replace(found, words));
    let text = plain_range(&text).unwrap_or(text);
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_digit) {
        let (before, number) = rest.split_at(start);
        let (number, after) =
            number.split_at(number.find(|c| !is_digit(c)).unwrap_or(number.len()));
        shown.push_str(before);
        match number.parse::<f64>().ok().filter(|_| number.len() > LONGEST_NUMBER) {
            Some(value) if value.is_finite() => shown.push_str(&format!("{value:e}")),
            Some(_) => shown.push_str(&format!("{}…", &number[..LONGEST_NUMBER])),
            None => shown.push_str(number),
        }
        rest = after;
    }
    shown + rest
}

/// Leaves out the code at the end of a message of the operating system, as in `Exec format error (os
/// error 8)`.
pub fn without_os_code(message: &str) -> &str {
    message.split(" (os error ").next().unwrap_or_default()
}

/// Longest number that is printed with all its digits.
const LONGEST_NUMBER: usize = 30;

/// Replaces a range of Rust, as in `7 is not in 0..=3`.
fn plain_range(text: &str) -> Option<String> {
    let (before, range) = text.split_once(" is not in ")?;
    let (range, rest) = range.split_at(range.find(char::is_whitespace).unwrap_or(range.len()));
    let (low, high) = range.split_once("..=")?;
    let expected = match high {
        // The limit of the type.
        "4294967295" | "18446744073709551615" => format!("{low} or more"),
        high => format!("{low} to {high}"),
    };
    Some(format!("{before} is out of range; expected {expected}{rest}"))
}

/// Replaces words of Rust and its libraries in the message of a parser. `map` is the format's word
/// for a map, such as `table`.
pub fn in_plain_words(message: &str, map: &str) -> String {
    if let Some((_, rest)) = message.split_once("did not match any variant of untagged enum ") {
        let rest = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        return format!("unsupported value{rest}");
    }
    for (start, words) in SENTENCES {
        if let Some(rest) = message.strip_prefix(start) {
            return format!("{words}{rest}");
        }
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        let message = &message.replace(", there are no fields", ", there are none");
        let renamed = [
            ("missing field ", "missing key "),
            ("duplicate field ", "duplicate key "),
            ("unknown field ", "unknown key "),
        ];
        let renamed = renamed
            .iter()
            .find_map(|(from, to)| message.strip_prefix(from).map(|rest| format!("{to}{rest}")));
        return renamed.unwrap_or_else(|| message.to_owned());
    };
    let ends = [expected.find(['\n', ',']), expected.find(" at line ")];
    let end = ends.into_iter().flatten().min().unwrap_or(expected.len());
    let (expected, rest) = expected.split_at(end);
    if let Some(name) = found.strip_prefix("unknown variant ") {
        return format!("unknown value {}, expected {expected}{rest}", Shortened(name));
    }
    if let Some(name) = found.strip_prefix("unknown field ") {
        return format!("unknown key {name}, expected {expected}{rest}");
    }
    match value_words(found, map) {
        Some(value) => {
            format!("found {value}; expected {}{rest}", type_words(expected, found, map))
        }
        None => format!("{found}, expected {}{rest}", type_words(expected, found, map)),
    }
}

/// Describes the value in `invalid type: integer `3`` and similar messages.
fn value_words(found: &str, map: &str) -> Option<String> {
    if let Some(length) = found.strip_prefix("invalid length ") {
        return Some(format!("a list of {length}"));
    }
    let value = found.strip_prefix("invalid type: ").or(found.strip_prefix("invalid value: "))?;
    let value = value.trim_end_matches(" as i128").trim_end_matches(" as u128");
    Some(match value {
        "map" => format!("{} {map}", article(map)),
        "sequence" | "list" => "a list".to_owned(),
        "unit value" | "null" | "Option value" => "null".to_owned(),
        "byte array" => "bytes".to_owned(),
        value => {
            let kinds = ["integer ", "floating point ", "boolean ", "string ", "character "];
            let plain = kinds.iter().find_map(|kind| value.strip_prefix(kind)).unwrap_or(value);
            Shortened(plain.trim_matches('`')).to_string()
        }
    })
}

/// Describes the type that a deserializer expects.
fn type_words(expected: &str, found: &str, map: &str) -> String {
    let is_positive = !found.contains("`-");
    let is_negative = found.starts_with("invalid value: integer `-");
    let is_too_large = found.ends_with(" as i128")
        || (found.starts_with("invalid value: integer `") && is_positive);
    let words = match expected {
        // The limits of the type would hide the smaller range of the key.
        "u8"
        | "u16"
        | "u32"
        | "u64"
        | "usize"
        | "i8"
        | "i16"
        | "i32"
        | "i64"
        | "isize"
        | "any valid TOML value"
            if is_too_large =>
        {
            "a smaller whole number"
        }
        // The type does not say whether 0 is in the range of the key.
        "u8" | "u16" | "u32" | "u64" | "usize" | "u128" if is_negative => {
            "a whole number that is not negative"
        }
        "u8" | "u16" | "u32" | "u64" | "usize" | "u128" | "i8" | "i16" | "i32" | "i64"
        | "isize" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "path string" => "a path",
        "a borrowed string" | "string" | "string or map" | "variant identifier" => "a string",
        "unit" => "null",
        "any valid TOML value" | "any valid JSON value" => "a value",
        other => {
            let type_name = ["struct ", "a map", "enum ", "externally tagged enum "];
            if other.starts_with("internally tagged enum ") {
                return format!("{} {map} with `type`", article(map));
            }
            if type_name.iter().any(|name| other.starts_with(name)) {
                return format!("{} {map}", article(map));
            }
            return list_of(other).unwrap_or_else(|| other.to_owned());
        }
    };
    words.to_owned()
}

/// Describes a list of a fixed length, such as `a tuple of size 2`.
fn list_of(expected: &str) -> Option<String> {
    let sizes = ["a tuple of size ", "an array of length ", "fewer elements in ", "tuple of "];
    let size = sizes.iter().find_map(|start| expected.strip_prefix(start))?;
    Some(format!("a list of {}", size.trim_end_matches(" elements")))
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with('o') { "an" } else { "a" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_number_parsers_have_no_words_of_rust() {
        for (message, expected) in [
            ("'x': invalid digit found in string\n\nMore", "'x': it is not a whole number\n\nMore"),
            ("'-1': -1 is not in 1..=65535\n", "'-1': -1 is out of range; expected 1 to 65535\n"),
            ("-1 is not in 0..=4294967295", "-1 is out of range; expected 0 or more"),
            ("a is not in b", "a is not in b"),
            (&format!("x = {} is", 1e308), "x = 1e308 is"),
            (&format!("x = -{} is", 1e-320), "x = -1e-320 is"),
            (&"9".repeat(400), "999999999999999999999999999999…"),
            ("1.5 and 12345678901234567890 é.", "1.5 and 12345678901234567890 é."),
        ] {
            assert_eq!(plain_numbers(message), expected);
        }
    }

    #[test]
    fn messages_have_no_words_of_rust() {
        for (message, expected) in [
            ("invalid type: string \"x\", expected u32", "found \"x\"; expected a whole number"),
            (
                "invalid value: integer `-1`, expected u32",
                "found -1; expected a whole number that is not negative",
            ),
            (
                "invalid value: integer `5000000000`, expected u32",
                "found 5000000000; expected a smaller whole number",
            ),
            (
                "invalid type: integer `18446744073709551616` as i128, expected any valid TOML value",
                "found 18446744073709551616; expected a smaller whole number",
            ),
            ("u64 value was too large", "a whole number is larger than 9223372036854775807"),
            ("invalid type: integer `3`, expected struct TrainConfig", "found 3; expected a table"),
            ("invalid type: map, expected a sequence\n", "found a table; expected a list\n"),
            ("invalid type: null, expected a string", "found null; expected a string"),
            ("invalid type: boolean `true`, expected f64", "found true; expected a number"),
            (
                "invalid length 1, expected struct X with 3 elements",
                "found a list of 1; expected a table",
            ),
            (
                "invalid length 3, expected a tuple of size 2",
                "found a list of 3; expected a list of 2",
            ),
            (
                "invalid type: integer `1`, expected string or map at line 1 column 3",
                "found 1; expected a string at line 1 column 3",
            ),
            ("unknown variant `x`, expected `a` or `b`", "unknown value `x`, expected `a` or `b`"),
            (
                "unknown field `x`, expected one of `a`, `b`",
                "unknown key `x`, expected one of `a`, `b`",
            ),
            ("missing field `x`", "missing key `x`"),
            ("unknown field `x`, there are no fields", "unknown key `x`, there are none"),
            ("duplicate field `x` at line 1", "duplicate key `x` at line 1"),
            (
                "data did not match any variant of untagged enum Several at line 2 column 1",
                "unsupported value at line 2 column 1",
            ),
            ("data did not match any variant of untagged enum Several", "unsupported value"),
            (
                "expected value at line 1 column 1",
                "a value is missing or misspelled (text has double quotes) at line 1 column 1",
            ),
            (
                "key must be a string at line 2 column 3",
                "a key has no double quotes at line 2 column 3",
            ),
            (
                "trailing characters at line 1 column 4",
                "there is more text after the end of the value at line 1 column 4",
            ),
            (
                "expected `,` or `}` at line 1 column 9",
                "there is no comma or closing bracket after a value of an object at line 1 column 9",
            ),
            (
                "expected ident at line 1 column 2",
                "expected true, false or null at line 1 column 2",
            ),
        ] {
            assert_eq!(in_plain_words(message, "table"), expected);
        }
    }
}

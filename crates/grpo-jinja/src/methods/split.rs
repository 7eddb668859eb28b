//! Methods of strings that split.

use crate::arguments::Arguments;
use crate::python_text::is_space;
use crate::value::{Result, Value, fail};

pub(super) fn call(text: &str, name: &'static str, arguments: Arguments) -> Result<Value> {
    match name {
        "splitlines" => {
            let bound = arguments.bind(name, &["keepends"])?;
            Ok(list(lines(text, bound.is_true(0))))
        }
        "partition" | "rpartition" => {
            let bound = arguments.unnamed(name, &["sep"])?;
            let separator = &**bound.text(0)?;
            if separator.is_empty() {
                return fail("empty separator");
            }
            let (is_first, found) = match name {
                "partition" => (true, text.split_once(separator)),
                _ => (false, text.rsplit_once(separator)),
            };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if is_first => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::tuple(parts.map(Value::from).to_vec()))
        }
        _ => {
            let bound = arguments.bind(name, &["sep", "maxsplit"])?;
            let most = usize::try_from(bound.int_or_none(1)?.unwrap_or(-1)).unwrap_or(usize::MAX);
            let from_right = name == "rsplit";
            let Some(separator) = bound.text_or_none(0)? else {
                return Ok(list(words(text, most, from_right)));
            };
            if separator.is_empty() {
                return fail("empty separator");
            }
            let pieces = most.saturating_add(1);
            if from_right {
                let mut parts: Vec<&str> = text.rsplitn(pieces, &**separator).collect();
                parts.reverse();
                return Ok(list(parts));
            }
            Ok(list(text.splitn(pieces, &**separator).collect()))
        }
    }
}

fn list(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect::<Vec<_>>().into()
}

/// Splits at whitespace, at most `most` times.
fn words(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut words = vec![];
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let position = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(position) = position.filter(|_| words.len() < most) else {
            // What is not split keeps the whitespace at its other end.
            let whole = match from_right {
                true => &text[..rest_end(text, rest)],
                false => &text[rest_start(text, rest)..],
            };
            words.push(if words.len() < most { rest } else { whole });
            break;
        };
        let (before, after) = rest.split_at(position);
        if from_right {
            words.push(after.trim_start_matches(is_space));
            rest = before.trim_end_matches(is_space);
        } else {
            words.push(before);
            rest = after.trim_start_matches(is_space);
        }
    }
    if from_right {
        words.reverse();
    }
    words
}

/// Returns the position in `text` where its slice `part` starts.
fn rest_start(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

fn rest_end(text: &str, part: &str) -> usize {
    rest_start(text, part) + part.len()
}

/// Splits at the line boundaries of Python's `str.splitlines`.
pub(crate) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_break = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let Some(end) = rest.find(is_break) else {
            lines.push(rest);
            break;
        };
        let c = rest[end..].chars().next().map_or(1, char::len_utf8);
        let length = if rest[end..].starts_with("\r\n") { 2 } else { c };
        lines.push(&rest[..if keep_ends { end + length } else { end }]);
        rest = &rest[end + length..];
    }
    lines
}

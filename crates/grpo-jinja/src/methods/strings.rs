//! Methods of strings, other than the ones that split.

use super::split;
use crate::arguments::{Arguments, Bound};
use crate::formatting::template;
use crate::python_text::{check_length, is_printable, is_space};
use crate::value::{Result, Value, fail};
use std::sync::Arc;

pub(super) fn call(text: &Arc<str>, name: &'static str, arguments: Arguments) -> Result<Value> {
    match name {
        "format" => return template::format(text, &arguments),
        "format_map" => {
            let bound = arguments.unnamed(name, &["mapping"])?;
            return template::format_map(text, bound.required(0)?);
        }
        "encode" | "maketrans" | "translate" => {
            return fail(format!("the method `{name}` of strings is not supported"));
        }
        "split" | "rsplit" | "splitlines" | "partition" | "rpartition" => {
            return split::call(text, name, arguments);
        }
        _ => {}
    }
    if let Some(value) = without_arguments(text, name) {
        arguments.unnamed(name, &[])?;
        return value;
    }
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let bound = arguments.unnamed(name, &["chars"])?;
            let chars = bound.text_or_none(0)?.cloned();
            let removed =
                |c: char| chars.as_ref().map_or_else(|| is_space(c), |set| set.contains(c));
            let start = if name == "rstrip" { text } else { text.trim_start_matches(removed) };
            Ok(if name == "lstrip" { start } else { start.trim_end_matches(removed) }.into())
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            searched(text, name, &arguments.unnamed(name, &["sub", "start", "end"])?)
        }
        "removeprefix" | "removesuffix" => {
            let bound = arguments.unnamed(name, &["affix"])?;
            let affix = &**bound.text(0)?;
            let rest = match name {
                "removeprefix" => text.strip_prefix(affix),
                _ => text.strip_suffix(affix),
            };
            Ok(rest.unwrap_or(text).into())
        }
        "replace" => {
            let bound = arguments.unnamed(name, &["old", "new", "count"])?;
            let count = bound.int_or_none(2)?.unwrap_or(-1);
            Ok(replace(text, bound.text(0)?, bound.text(1)?, count)?.into())
        }
        "join" => {
            let bound = arguments.unnamed(name, &["iterable"])?;
            join(text, bound.required(0)?)
        }
        "center" | "ljust" | "rjust" | "zfill" => padded(text, name, arguments),
        "expandtabs" => {
            let size = arguments.bind(name, &["tabsize"])?.int_or_none(0)?.unwrap_or(8);
            expanded(text, size.max(0))
        }
        _ => fail(format!("the method `{name}` of strings is not supported")),
    }
}

/// Returns the result of a method that takes no arguments.
fn without_arguments(text: &str, name: &str) -> Option<Result<Value>> {
    let all = |is: fn(char) -> bool| Value::Bool(!text.is_empty() && text.chars().all(is));
    let decimal = |c: char| c.is_ascii_digit() || c.is_numeric() && !c.is_ascii() && is_decimal(c);
    Some(Ok(match name {
        "upper" => text.to_uppercase().into(),
        "lower" => text.to_lowercase().into(),
        "casefold" => text.to_lowercase().replace('ß', "ss").replace('ς', "σ").into(),
        "capitalize" => capitalized(text).into(),
        "swapcase" => {
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            };
            text.chars().map(swap).collect::<String>().into()
        }
        "title" => title(text).into(),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => text.is_ascii().into(),
        "isdecimal" => Value::Bool(!text.is_empty() && text.chars().all(decimal)),
        "isdigit" => {
            let digit = |c: char| decimal(c) || "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉".contains(c);
            Value::Bool(!text.is_empty() && text.chars().all(digit))
        }
        "isnumeric" => all(char::is_numeric),
        "isspace" => all(is_space),
        "isprintable" => text.chars().all(is_printable).into(),
        "isidentifier" => {
            let first = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
            (first && text.chars().all(|c| c.is_alphanumeric() || c == '_')).into()
        }
        "islower" => is_cased(text, char::is_lowercase, char::is_uppercase).into(),
        "isupper" => is_cased(text, char::is_uppercase, char::is_lowercase).into(),
        "istitle" => is_title(text).into(),
        _ => return None,
    }))
}

/// Whether a numeric character that is not ASCII is a decimal digit, whose block of ten is aligned.
fn is_decimal(c: char) -> bool {
    // Digits of scripts come in blocks of ten, fractions and other numbers don't.
    let code = c as u32;
    let zeros = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50,
        0xed0, 0xf20, 0xff10,
    ];
    zeros.iter().any(|zero| (*zero..zero + 10).contains(&code))
}

pub(crate) fn is_cased(text: &str, wanted: fn(char) -> bool, other: fn(char) -> bool) -> bool {
    text.chars().any(wanted) && !text.chars().any(other)
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase(),
        None => String::new(),
    }
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let cased = c.is_lowercase() || c.is_uppercase();
        match (cased, in_word) {
            (true, true) => out.extend(c.to_lowercase()),
            (true, false) => out.extend(c.to_uppercase()),
            _ => out.push(c),
        }
        in_word = cased;
    }
    out
}

fn is_title(text: &str) -> bool {
    let (mut any, mut in_word) = (false, false);
    for c in text.chars() {
        let wrong = c.is_uppercase() && in_word || c.is_lowercase() && !in_word;
        if wrong {
            return false;
        }
        in_word = c.is_lowercase() || c.is_uppercase();
        any |= in_word;
    }
    any
}

/// Replaces at most `count` occurrences, or all if `count` is negative.
pub(crate) fn replace(text: &str, old: &str, new: &str, count: i128) -> Result<String> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    check_length(text.len().saturating_add(found.min(most).saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, most))
}

pub(crate) fn join(separator: &str, items: &Value) -> Result<Value> {
    let mut out = String::new();
    if !items.is_iterable() {
        return fail("can only join an iterable");
    }
    for (i, item) in items.iterate()?.enumerate() {
        let item = item?;
        let Some(text) = item.text() else {
            let name = item.type_name();
            return fail(format!("sequence item {i}: expected str instance, {name} found"));
        };
        check_length(out.len() + separator.len() + text.len())?;
        out.push_str(if i > 0 { separator } else { "" });
        out.push_str(text);
    }
    Ok(out.into())
}

/// Returns the part of the text between two positions, counted in characters, and where it starts.
fn between<'a>(text: &'a str, bound: &Bound) -> Result<Option<(&'a str, usize)>> {
    let (start, end) = (bound.int_or_none(1)?, bound.int_or_none(2)?);
    if start.is_none() && end.is_none() {
        return Ok(Some((text, 0)));
    }
    let length = text.chars().count() as i128;
    let position = |at: i128| if at < 0 { (at + length).max(0) } else { at };
    let (start, end) = (position(start.unwrap_or(0)), position(end.unwrap_or(length)).min(length));
    if start > end {
        return Ok(None);
    }
    let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
    Ok(Some((&text[byte(start)..byte(end)], start as usize)))
}

fn searched(text: &str, name: &str, bound: &Bound) -> Result<Value> {
    let window = between(text, bound)?;
    if matches!(name, "startswith" | "endswith") {
        let affixes = match bound.required(0)? {
            Value::Tuple(affixes) => affixes.to_vec(),
            _ => vec![Value::Str(Arc::clone(bound.text(0)?))],
        };
        let mut any = false;
        for affix in &affixes {
            let Some(affix) = affix.text() else {
                let found = affix.type_name();
                return fail(format!("tuple for {name} must only contain str, not {found}"));
            };
            any |= window.is_some_and(|(text, _)| match name {
                "startswith" => text.starts_with(&**affix),
                _ => text.ends_with(&**affix),
            });
        }
        return Ok(any.into());
    }
    let part = &**bound.text(0)?;
    if name == "count" {
        return Ok(window.map_or(0, |(text, _)| text.matches(part).count()).into());
    }
    let found = window.and_then(|(text, start)| {
        let byte = if name.starts_with('r') { text.rfind(part) } else { text.find(part) };
        byte.map(|byte| start + text[..byte].chars().count())
    });
    match found {
        Some(at) => Ok(at.into()),
        None if name.ends_with("index") => fail("substring not found"),
        None => Ok(Value::Int(-1)),
    }
}

fn padded(text: &str, name: &str, arguments: Arguments) -> Result<Value> {
    let bound = arguments.unnamed(name, &["width", "fillchar"])?;
    let width = usize::try_from(bound.int(0)?.max(0)).unwrap_or(usize::MAX);
    let fill = match (name, bound.text_or_none(1)?) {
        ("zfill", _) => '0',
        (_, None) => ' ',
        (_, Some(fill)) => match (fill.chars().next(), fill.chars().count()) {
            (Some(fill), 1) => fill,
            _ => return fail("The fill character must be exactly one character long"),
        },
    };
    let length = text.chars().count();
    let missing = width.saturating_sub(length);
    check_length(missing.saturating_mul(4))?;
    let left = match name {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let repeat = |count: usize| fill.to_string().repeat(count);
    if name == "zfill" && text.starts_with(['+', '-']) {
        return Ok(format!("{}{}{}", &text[..1], repeat(missing), &text[1..]).into());
    }
    Ok(format!("{}{text}{}", repeat(left), repeat(missing - left)).into())
}

fn expanded(text: &str, size: i128) -> Result<Value> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    check_length(text.matches('\t').count().saturating_mul(size))?;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let blanks = size - column % size;
                out.push_str(&" ".repeat(blanks));
                column += blanks;
            }
            '\t' => {}
            _ => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(out.into())
}

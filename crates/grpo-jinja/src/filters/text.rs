//! Filters of texts.

use crate::arguments::Arguments;
use crate::methods::{capitalized, lines, replace};
use crate::python_text::{check_length, escaped, is_space};
use crate::value::{Result, Value, View, fail};

pub(super) fn apply(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    let text = || value.to_text();
    let keep = |text: String| match value {
        Value::Markup(_) => Value::Markup(text.into()),
        _ => text.into(),
    };
    match name {
        "e" | "escape" | "forceescape" | "safe" | "upper" | "lower" | "string" | "capitalize"
        | "title" | "wordcount" => {
            arguments.unnamed(name, &[])?;
            Ok(match name {
                "e" | "escape" => Value::Markup(escaped(value)?),
                "forceescape" => Value::Markup(escaped(&text()?.into())?),
                "safe" => Value::Markup(text()?.into()),
                "upper" => keep(text()?.to_uppercase()),
                "lower" => keep(text()?.to_lowercase()),
                "string" => keep(text()?),
                "capitalize" => keep(capitalized(&text()?)),
                "title" => title(&text()?).into(),
                _ => word_count(&text()?).into(),
            })
        }
        "trim" => {
            let bound = arguments.bind(name, &["chars"])?;
            let chars = bound.text_or_none(0)?;
            let removed = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
            Ok(keep(text()?.trim_matches(removed).to_owned()))
        }
        "replace" => {
            let bound = arguments.bind(name, &["old", "new", "count"])?;
            let (old, new) = (bound.required(0)?.to_text()?, bound.required(1)?.to_text()?);
            let count = bound.int_or_none(2)?.unwrap_or(-1);
            Ok(replace(&text()?, &old, &new, count)?.into())
        }
        "center" => {
            let bound = arguments.bind(name, &["width"])?;
            let width = bound.int_or_none(0)?.unwrap_or(80);
            let text = Value::from(text()?);
            crate::methods::call(&text, "center", Arguments::new(vec![Value::Int(width)]))
        }
        "indent" => indent(value, arguments),
        "truncate" => truncate(value, arguments),
        _ => {
            arguments.unnamed(name, &[])?;
            urlencode(value)
        }
    }
}

/// Capitalises words as Jinja does, which differs from Python's `str.title`.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at_start = true;
    for c in text.chars() {
        let separates = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        match (separates, at_start) {
            (true, _) => out.push(c),
            (false, true) => out.extend(c.to_uppercase()),
            (false, false) => out.extend(c.to_lowercase()),
        }
        at_start = separates;
    }
    out
}

/// Counts the matches of `\w+`.
fn word_count(text: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()
}

fn indent(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("indent", &["width", "first", "blank"])?;
    let Some(text) = value.text() else {
        return fail(match value {
            Value::Undefined(reason) => reason.to_string(),
            _ => format!("unsupported operand type(s) for +=: '{}' and 'str'", value.type_name()),
        });
    };
    let indentation = match bound.get(0) {
        Some(width) if width.text().is_some() => width.to_text()?,
        _ => {
            let width = bound.int_or_none(0)?.unwrap_or(4).max(0);
            let width = usize::try_from(width).unwrap_or(usize::MAX);
            check_length(width)?;
            " ".repeat(width)
        }
    };
    let text = format!("{text}\n");
    let lines = lines(&text, false);
    check_length(text.len().saturating_add(lines.len().saturating_mul(indentation.len())))?;
    let mut out = String::new();
    if bound.is_true(1) {
        out.push_str(&indentation);
    }
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
            if bound.is_true(2) || !line.is_empty() {
                out.push_str(&indentation);
            }
        }
        out.push_str(line);
    }
    Ok(match value {
        Value::Markup(_) => Value::Markup(out.into()),
        _ => out.into(),
    })
}

fn truncate(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("truncate", &["length", "killwords", "end", "leeway"])?;
    let length = bound.int_or_none(0)?.unwrap_or(255);
    let end = bound.text_or_none(2)?.map_or("...", |end| end);
    let end_length = end.chars().count() as i128;
    let leeway = bound.int_or_none(3)?.unwrap_or(5);
    if length < end_length {
        return fail(format!("expected length >= {end_length}, got {length}"));
    }
    if leeway < 0 {
        return fail(format!("expected leeway >= 0, got {leeway}"));
    }
    let Some(found) = value.length() else {
        return fail(format!("object of type '{}' has no len()", value.type_name()));
    };
    if found as i128 <= length + leeway {
        return Ok(value.clone());
    }
    let Some(text) = value.text() else {
        return fail(format!("the filter `truncate` of {} is not supported", value.type_name()));
    };
    let start: String = text.chars().take((length - end_length) as usize).collect();
    let start = match start.rsplit_once(' ') {
        Some((before, _)) if !bound.is_true(1) => before,
        _ => &start,
    };
    Ok(format!("{start}{end}").into())
}

fn urlencode(value: &Value) -> Result<Value> {
    let pairs = match value {
        Value::Dict(dict) => Value::View(View::Items, std::rc::Rc::clone(dict)),
        _ if value.text().is_some() || !value.is_iterable() => {
            return Ok(quoted(&value.to_text()?, false).into());
        }
        _ => value.clone(),
    };
    let mut out = vec![];
    for pair in pairs.iterate()? {
        let pair = pair?.items()?;
        let [key, value] = &pair[..] else {
            return fail("urlencode takes pairs");
        };
        out.push(format!("{}={}", quoted(&key.to_text()?, true), quoted(&value.to_text()?, true)));
    }
    Ok(out.join("&").into())
}

/// Percent-encodes a text, for a query string or for a path.
fn quoted(text: &str, for_query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' | b'-' | b'~' => {
                out.push(byte.into())
            }
            b'/' if !for_query => out.push('/'),
            b' ' if for_query => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

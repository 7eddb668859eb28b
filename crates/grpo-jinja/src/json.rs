//! The filter `tojson`, which is Python's `json.dumps`.

use crate::arguments::Arguments;
use crate::python_text::{DEEPEST, check_length, float_repr};
use crate::value::{Result, Value, fail};
use std::fmt::Write as _;
use std::sync::Arc;

struct Style {
    ascii: bool,
    sort_keys: bool,
    /// The indentation of a level.
    indent: Option<String>,
    between_items: Arc<str>,
    after_key: Arc<str>,
}

/// Returns Python's `json.dumps(value, ensure_ascii=False)` with the other options of
/// `transformers`. Unlike Jinja's own filter, it does not escape HTML.
///
/// # Errors
/// Returns an error if the value cannot be written as JSON.
pub(crate) fn tojson(value: &Value, arguments: Arguments) -> Result<Value> {
    let names = &["ensure_ascii", "indent", "separators", "sort_keys"];
    let bound = arguments.bind("tojson", names)?;
    let indent = match bound.some(1) {
        None => None,
        Some(indent) => match (indent.int(), indent.text()) {
            (Some(width), _) => {
                let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
                check_length(width)?;
                Some(" ".repeat(width))
            }
            (_, Some(text)) => Some(text.to_string()),
            _ => return fail("the argument `indent` of tojson is neither a number nor a text"),
        },
    };
    let (between_items, after_key) = match bound.some(2) {
        None => ((if indent.is_some() { "," } else { ", " }).into(), ": ".into()),
        Some(separators) => match &separators.items()?[..] {
            [between, after] => match (between.text(), after.text()) {
                (Some(between), Some(after)) => (Arc::clone(between), Arc::clone(after)),
                _ => return fail("the separators of tojson are not texts"),
            },
            _ => return fail("tojson takes two separators"),
        },
    };
    let (ascii, sort_keys) = (bound.is_true(0), bound.is_true(3));
    let style = Style { ascii, sort_keys, indent, between_items, after_key };
    let mut out = String::new();
    write(value, &style, 0, &mut out)?;
    Ok(out.into())
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<()> {
    if depth > DEEPEST {
        return fail("maximum recursion depth exceeded while encoding a JSON object");
    }
    check_length(out.len())?;
    match value {
        Value::None => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => _ = write!(out, "{number}"),
        Value::Float(number) => out.push_str(&float(*number)),
        Value::Str(text) | Value::Markup(text) => string(text, style.ascii, out),
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
            if items.is_empty() {
                out.push_str("[]");
                return Ok(());
            }
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                separate(i, style, depth + 1, out)?;
                write(item, style, depth + 1, out)?;
            }
            end(']', style, depth, out)?;
        }
        Value::Dict(dict) => {
            if dict.len() == 0 {
                out.push_str("{}");
                return Ok(());
            }
            let mut entries: Vec<_> = dict.entries().iter().collect();
            if style.sort_keys {
                crate::sorting::sort_by(&mut entries, |(a, _), (b, _)| {
                    crate::operators::order(a, b, "<")
                })?;
            }
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                separate(i, style, depth + 1, out)?;
                string(&key_text(key)?, style.ascii, out);
                out.push_str(&style.after_key);
                write(value, style, depth + 1, out)?;
            }
            end('}', style, depth, out)?;
        }
        _ => {
            let name = value.type_name();
            return fail(format!("Object of type {name} is not JSON serializable"));
        }
    }
    Ok(())
}

fn float(number: f64) -> String {
    match float_repr(number).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        text => text.to_owned(),
    }
}

fn key_text(key: &Value) -> Result<String> {
    Ok(match key {
        Value::Str(text) | Value::Markup(text) => text.to_string(),
        Value::None => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float(*number),
        _ => {
            let name = key.type_name();
            return fail(format!("keys must be str, int, float, bool or None, not {name}"));
        }
    })
}

/// Writes what stands in front of item number `i`.
fn separate(i: usize, style: &Style, depth: usize, out: &mut String) -> Result<()> {
    if i > 0 {
        out.push_str(&style.between_items);
    }
    new_line(style, depth, out)
}

fn end(bracket: char, style: &Style, depth: usize, out: &mut String) -> Result<()> {
    new_line(style, depth, out)?;
    out.push(bracket);
    Ok(())
}

fn new_line(style: &Style, depth: usize, out: &mut String) -> Result<()> {
    if let Some(indent) = &style.indent {
        check_length(out.len().saturating_add(indent.len().saturating_mul(depth)))?;
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
    Ok(())
}

fn string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\0'..='\x1f' => _ = write!(out, "\\u{:04x}", c as u32),
            _ if ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

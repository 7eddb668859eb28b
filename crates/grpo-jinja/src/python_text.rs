//! Python's `str` and `repr`, and its classes of characters.

use crate::value::{Result, Value, View, fail};
use std::fmt::Write as _;
use std::sync::Arc;

/// The deepest nesting that is printed, compared or written as JSON. Python fails at about 1000.
pub(crate) const DEEPEST: usize = 500;

/// The longest text that an operation creates, in bytes.
pub(crate) const LONGEST: usize = 8 << 20;

/// Returns an error if an operation would create a text of more than [`LONGEST`] bytes.
pub(crate) fn check_length(bytes: usize) -> Result<()> {
    if bytes > LONGEST {
        return fail(format!("the text would have more than {LONGEST} bytes"));
    }
    Ok(())
}

/// Whether Python's `str.isspace` counts the character as whitespace.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

impl Value {
    /// Returns Python's `str(value)`.
    ///
    /// # Errors
    /// Returns an error if the value is nested too deeply or its text depends on addresses.
    pub(crate) fn to_text(&self) -> Result<String> {
        match self {
            Self::Str(text) | Self::Markup(text) => Ok(text.to_string()),
            Self::Undefined(_) => Ok(String::new()),
            _ => self.to_repr(),
        }
    }

    /// Returns Python's `repr(value)`.
    ///
    /// # Errors
    /// As [`Value::to_text`].
    pub(crate) fn to_repr(&self) -> Result<String> {
        let mut out = String::new();
        self.write_repr(&mut out, 0)?;
        Ok(out)
    }

    fn write_repr(&self, out: &mut String, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return fail("maximum recursion depth exceeded: the value is nested too deeply");
        }
        check_length(out.len())?;
        match self {
            Self::Undefined(_) => out.push_str("Undefined"),
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(number) => _ = write!(out, "{number}"),
            Self::Float(number) => out.push_str(&float_repr(*number)),
            Self::Str(text) => quote(text, out),
            Self::Markup(text) => {
                out.push_str("Markup(");
                quote(text, out);
                out.push(')');
            }
            Self::List(items) => write_items("[", items, "]", out, depth)?,
            Self::Tuple(items) | Self::Group(items) => {
                let end = if items.len() == 1 { ",)" } else { ")" };
                write_items("(", items, end, out, depth)?;
            }
            Self::Dict(dict) => {
                out.push('{');
                for (i, (key, value)) in dict.entries().iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    key.write_repr(out, depth + 1)?;
                    out.push_str(": ");
                    value.write_repr(out, depth + 1)?;
                }
                out.push('}');
            }
            Self::Range(range) => {
                _ = write!(out, "range({}, {}", range[0], range[1]);
                if range[2] != 1 {
                    _ = write!(out, ", {}", range[2]);
                }
                out.push(')');
            }
            Self::View(kind, _) => {
                let name = match kind {
                    View::Keys => "dict_keys([",
                    View::Values => "dict_values([",
                    View::Items => "dict_items([",
                };
                write_items(name, &self.items()?, "])", out, depth)?;
            }
            Self::Macro(it) => {
                _ = write!(out, "<Macro ");
                quote(&it.definition.name, out);
                out.push('>');
            }
            Self::Namespace(attributes) => {
                out.push_str("<Namespace {");
                for (i, (name, value)) in attributes.borrow().iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    quote(name, out);
                    out.push_str(": ");
                    value.write_repr(out, depth + 1)?;
                }
                out.push_str("}>");
            }
            Self::Loop(state) => {
                _ = write!(out, "<LoopContext {}/{}>", state.index.get() + 1, state.items.len());
            }
            _ => {
                return fail(format!(
                    "the text of a {} is not supported; Python's contains an address",
                    self.type_name()
                ));
            }
        }
        Ok(())
    }
}

fn write_items(
    start: &str,
    items: &[Value],
    end: &str,
    out: &mut String,
    depth: usize,
) -> Result<()> {
    out.push_str(start);
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        item.write_repr(out, depth + 1)?;
    }
    out.push_str(end);
    Ok(())
}

/// Returns the shortest decimal number that reads back as `number`, in Python's notation.
pub(crate) fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Writes Python's `repr` of a string.
pub(crate) fn quote(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == mark => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            _ => {
                let code = c as u32;
                _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(mark);
}

/// Whether Python's `str.isprintable` is true for the character.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // Rust escapes the same categories of characters. In front of them stands a letter, because
    // combining characters are escaped at the start only.
    let mut text = ['a'; 2];
    text[1] = c;
    let text: String = text.iter().collect();
    !text.escape_debug().skip(1).collect::<String>().starts_with("\\u{")
}

/// Returns the text of a value as HTML. Text that is marked as escaped stays as it is.
pub(crate) fn escaped(value: &Value) -> Result<Arc<str>> {
    match value {
        Value::Markup(text) => Ok(Arc::clone(text)),
        _ => {
            let text = value.to_text()?.replace('&', "&amp;").replace('>', "&gt;");
            let text = text.replace('<', "&lt;").replace('\'', "&#39;").replace('"', "&#34;");
            Ok(text.into())
        }
    }
}

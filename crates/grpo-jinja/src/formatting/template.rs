//! `'…'.format(…)`, with the lookups of Jinja's sandbox.

use super::percent::ascii;
use super::spec;
use crate::access::{attribute, item};
use crate::arguments::Arguments;
use crate::python_text::check_length;
use crate::value::{Result, Value, fail};

/// Returns Python's `text.format(*arguments)`.
///
/// # Errors
/// Returns an error if a field is missing or does not fit its specification.
pub(crate) fn format(text: &str, arguments: &Arguments) -> Result<Value> {
    Formatter { arguments, mapping: None, next: Some(0) }.format(text, 3).map(Value::from)
}

/// Returns Python's `text.format_map(mapping)`.
///
/// # Errors
/// As [`format`].
pub(crate) fn format_map(text: &str, mapping: &Value) -> Result<Value> {
    let arguments = &Arguments::default();
    Formatter { arguments, mapping: Some(mapping), next: Some(0) }.format(text, 3).map(Value::from)
}

struct Formatter<'a> {
    arguments: &'a Arguments,
    mapping: Option<&'a Value>,
    /// The number of the next field without a name; `None` after a field with a number.
    next: Option<usize>,
}

impl Formatter<'_> {
    fn format(&mut self, text: &str, depth: usize) -> Result<String> {
        if depth == 0 {
            return fail("Max string recursion exceeded");
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(position) = rest.find(['{', '}']) {
            out.push_str(&rest[..position]);
            let brace = &rest[position..position + 1];
            rest = &rest[position + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                out.push_str(brace);
                rest = after;
            } else if brace == "}" {
                return fail("Single '}' encountered in format string");
            } else {
                let Some(end) = closing(rest) else {
                    return fail(match rest {
                        "" => "Single '{' encountered in format string",
                        _ => "expected '}' before end of string",
                    });
                };
                let field = self.field(&rest[..end], depth)?;
                check_length(out.len() + field.len())?;
                out.push_str(&field);
                rest = &rest[end + 1..];
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Formats what is between braces: `name!conversion:specification`.
    fn field(&mut self, field: &str, depth: usize) -> Result<String> {
        // Brackets can contain the other signs.
        let mut in_brackets = false;
        let end = field.find(|c| {
            in_brackets = c == '[' || in_brackets && c != ']';
            !in_brackets && (c == '!' || c == ':')
        });
        let (name, rest) = field.split_at(end.unwrap_or(field.len()));
        let (conversion, specification) = match rest.strip_prefix('!') {
            Some(rest) => {
                let Some(conversion) = rest.chars().next() else {
                    return fail("unmatched '{' in format spec");
                };
                let rest = &rest[conversion.len_utf8()..];
                match rest.strip_prefix(':') {
                    None if !rest.is_empty() => {
                        return fail("expected ':' after conversion specifier");
                    }
                    specification => (Some(conversion), specification.unwrap_or("")),
                }
            }
            None => (None, rest.strip_prefix(':').unwrap_or("")),
        };
        let value = self.value(name)?;
        let value = match conversion {
            None => value,
            Some('s') => value.to_text()?.into(),
            Some('r') => value.to_repr()?.into(),
            Some('a') => ascii(&value.to_repr()?).into(),
            Some(other) => return fail(format!("Unknown conversion specifier {other}")),
        };
        let specification = self.format(specification, depth - 1)?;
        spec::format(&value, &specification)
    }

    /// Returns the value of a name such as `0.content[key]`.
    fn value(&mut self, name: &str) -> Result<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let mut value = self.first(first)?;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let Some(end) = after.find(']') else {
                    return fail("Missing ']' in format string");
                };
                let key = &after[..end];
                value = match key.parse::<i128>() {
                    Ok(index) if key.bytes().all(|c| c.is_ascii_digit()) => {
                        item(&value, &Value::Int(index))?
                    }
                    _ => item(&value, &key.into())?,
                };
                rest = &after[end + 1..];
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = attribute(&value, &after[..end])?;
                rest = &after[end..];
            } else {
                return fail("Only '.' or '[' may follow ']' in format field specifier");
            }
        }
        Ok(value)
    }

    fn first(&mut self, name: &str) -> Result<Value> {
        let index = if name.is_empty() {
            let Some(next) = self.next else {
                return fail(
                    "cannot switch from manual field specification to automatic field numbering",
                );
            };
            self.next = Some(next + 1);
            next
        } else if name.bytes().all(|c| c.is_ascii_digit()) {
            if self.next.is_some_and(|next| next > 0) {
                return fail(
                    "cannot switch from manual field specification to automatic field numbering",
                );
            }
            self.next = None;
            name.parse().unwrap_or(usize::MAX)
        } else {
            let found = match self.mapping {
                Some(Value::Dict(dict)) => dict.get(&name.into())?.cloned(),
                Some(other) => {
                    return fail(format!("'{}' object is not subscriptable", other.type_name()));
                }
                None => {
                    let mut named = self.arguments.named.iter();
                    named.find(|(known, _)| **known == *name).map(|(_, value)| value.clone())
                }
            };
            return found.map_or_else(|| fail(format!("'{name}'")), Ok);
        };
        match self.arguments.positional.get(index) {
            Some(value) => Ok(value.clone()),
            None => {
                fail(format!("Replacement index {index} out of range for positional args tuple"))
            }
        }
    }
}

/// Returns the position of the brace that closes the field.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

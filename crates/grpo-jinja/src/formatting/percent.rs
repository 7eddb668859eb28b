//! `'…' % values`.

use super::{Layout, float_digits};
use crate::python_text::check_length;
use crate::value::{Result, Value, fail};

/// Returns Python's `template % values`.
///
/// # Errors
/// Returns an error if the values do not fit the template.
pub(crate) fn format(template: &Value, values: &Value) -> Result<Value> {
    let Some(text) = template.text() else { return fail("the template is not a text") };
    let mut values = Values {
        positional: match values {
            Value::Tuple(items) | Value::Group(items) => items.to_vec(),
            single => vec![single.clone()],
        },
        mapping: matches!(values, Value::Dict(_)).then(|| values.clone()),
        used: 0,
        has_named: false,
    };
    let mut out = String::new();
    let mut rest = &**text;
    while let Some(position) = rest.find('%') {
        out.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        let (text, after) = conversion(rest, &mut values)?;
        check_length(out.len() + text.len())?;
        out.push_str(&text);
        rest = after;
    }
    out.push_str(rest);
    let unused = values.used < values.positional.len();
    let is_container = match &values.positional[..] {
        [Value::Dict(_)] => true,
        // Python allows an unused value that is a mapping, such as a list.
        [Value::List(_) | Value::Range(_) | Value::Undefined(_)] => values.used == 0,
        _ => false,
    };
    if unused && !is_container {
        return fail("not all arguments converted during string formatting");
    }
    Ok(match template {
        Value::Markup(_) => Value::Markup(out.into()),
        _ => out.into(),
    })
}

struct Values {
    positional: Vec<Value>,
    mapping: Option<Value>,
    used: usize,
    has_named: bool,
}

impl Values {
    fn next(&mut self) -> Result<Value> {
        let value = self.positional.get(self.used).cloned();
        self.used += 1;
        value.map_or_else(|| fail("not enough arguments for format string"), Ok)
    }
}

/// Formats one conversion behind `%` and returns the rest.
fn conversion<'a>(text: &'a str, values: &mut Values) -> Result<(String, &'a str)> {
    let mut rest = text;
    let mut named = None;
    if let Some(inner) = rest.strip_prefix('(') {
        let Some(end) = closing(inner) else { return fail("incomplete format key") };
        let Some(Value::Dict(dict)) = &values.mapping else {
            return fail("format requires a mapping");
        };
        let name = &inner[..end];
        match dict.get(&name.into())? {
            Some(value) => named = Some(value.clone()),
            None => return fail(format!("'{name}'")),
        }
        rest = &inner[end + 1..];
        values.has_named = true;
    }
    let mut layout = Layout::default();
    let mut left = false;
    while let Some(flag) = rest.chars().next().filter(|c| "-+ #0".contains(*c)) {
        match flag {
            '-' => left = true,
            '+' => layout.sign = Some('+'),
            ' ' => layout.sign = layout.sign.or(Some(' ')),
            '#' => layout.alternate = true,
            _ => layout.zero = true,
        }
        rest = &rest[1..];
    }
    let width;
    (width, rest) = size(rest, values)?;
    let width = width.unwrap_or(0);
    left |= width < 0;
    layout.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    if let Some(after) = rest.strip_prefix('.') {
        let precision;
        (precision, rest) = size(after, values)?;
        layout.precision = Some(usize::try_from(precision.unwrap_or(0)).unwrap_or(0));
    }
    rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
    let Some(kind) = rest.chars().next() else { return fail("incomplete format") };
    let rest = &rest[kind.len_utf8()..];
    if left {
        layout.align = Some('<');
        layout.zero = false;
    }
    if kind == '%' {
        return Ok(("%".to_owned(), rest));
    }
    let value = match named {
        Some(value) => {
            values.used = values.positional.len();
            value
        }
        None => values.next()?,
    };
    Ok((converted(&value, kind, layout)?, rest))
}

/// Returns the position of the bracket that closes the key.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Reads a width or precision, which can be the next value.
fn size<'a>(text: &'a str, values: &mut Values) -> Result<(Option<i128>, &'a str)> {
    if let Some(rest) = text.strip_prefix('*') {
        return match values.next()?.int() {
            Some(size) => Ok((Some(size), rest)),
            None => fail("* wants int"),
        };
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    match text[..end].parse() {
        Ok(size) => Ok((Some(size), &text[end..])),
        Err(_) => fail("width too big"),
    }
}

fn converted(value: &Value, kind: char, mut layout: Layout) -> Result<String> {
    let wrong = |expected: &str| {
        fail(format!("%{kind} format: {expected} is required, not {}", value.type_name()))
    };
    match kind {
        's' | 'r' | 'a' => {
            layout.zero = false;
            let text = match kind {
                's' => value.to_text()?,
                'r' => value.to_repr()?,
                _ => ascii(&value.to_repr()?),
            };
            layout.text(&text, '>')
        }
        'c' => {
            layout.zero = false;
            layout.precision = None;
            let c = match (value.int(), value.text()) {
                (Some(code), _) => u32::try_from(code).ok().and_then(char::from_u32),
                (_, Some(text)) if text.chars().count() == 1 => text.chars().next(),
                _ => return fail("%c requires int or char"),
            };
            match c {
                Some(c) => layout.text(&c.to_string(), '>'),
                None => fail("%c arg not in range(0x110000)"),
            }
        }
        'd' | 'i' | 'u' => {
            let number = match value {
                Value::Float(number) if number.is_finite() => number.trunc() as i128,
                _ => match value.int() {
                    Some(number) => number,
                    None => return wrong("a real number"),
                },
            };
            integer(number, "", number.unsigned_abs().to_string(), layout)
        }
        'x' | 'X' | 'o' => {
            let Some(number) = value.int() else { return wrong("an integer") };
            let size = number.unsigned_abs();
            let (prefix, digits) = match kind {
                'x' => ("0x", format!("{size:x}")),
                'X' => ("0X", format!("{size:X}")),
                _ => ("0o", format!("{size:o}")),
            };
            integer(number, if layout.alternate { prefix } else { "" }, digits, layout)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            if let Value::Undefined(reason) = value {
                return fail(&**reason);
            }
            let Some(number) = value.float() else {
                return fail(format!("must be real number, not {}", value.type_name()));
            };
            let precision = layout.precision.take().unwrap_or(6);
            let digits =
                float_digits(number, kind.to_ascii_lowercase(), precision, layout.alternate)?;
            let digits = if kind.is_uppercase() { digits.to_uppercase() } else { digits };
            layout.number(number.is_sign_negative() && !number.is_nan(), "", &digits)
        }
        _ => fail(format!("unsupported format character '{kind}' (0x{:x})", kind as u32)),
    }
}

fn integer(number: i128, prefix: &str, digits: String, mut layout: Layout) -> Result<String> {
    let zeros = layout.precision.take().unwrap_or(0).saturating_sub(digits.len());
    check_length(zeros)?;
    layout.number(number < 0, prefix, &("0".repeat(zeros) + &digits))
}

/// Escapes what is not ASCII, as Python's `ascii` does.
pub(crate) fn ascii(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c as u32 {
            0..=0x7f => out.push(c),
            code @ 0x80..=0xff => out.push_str(&format!("\\x{code:02x}")),
            code @ 0x100..=0xffff => out.push_str(&format!("\\u{code:04x}")),
            code => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out
}

//! Format specifications, e.g. `>8.2f`.

use super::{Layout, float_digits};
use crate::python_text::float_repr;
use crate::value::{Result, Value, fail};

/// Returns Python's `format(value, spec)`.
///
/// # Errors
/// Returns an error if the specification does not fit the value.
pub(super) fn format(value: &Value, spec: &str) -> Result<String> {
    if spec.is_empty() {
        return value.to_text();
    }
    let name = value.type_name();
    let (mut layout, kind) = parse(spec, name)?;
    let invalid = || {
        fail(format!("Unknown format code '{}' for object of type '{name}'", kind.unwrap_or(' ')))
    };
    if value.text().is_some() {
        if !matches!(kind, None | Some('s')) {
            return invalid();
        }
        if layout.sign.is_some() {
            return fail("Sign not allowed in string format specifier");
        }
        if layout.align == Some('=') {
            return fail("'=' alignment not allowed in string format specifier");
        }
        return layout.text(&value.to_text()?, '<');
    }
    let is_int_code = matches!(kind, Some('d' | 'b' | 'o' | 'x' | 'X' | 'c' | 'n'));
    if let Some(number) = value.int()
        && (is_int_code || kind.is_none())
    {
        return integer(value, number, kind, layout);
    }
    let Some(number) = value.float() else {
        return fail(format!("unsupported format string passed to {name}.__format__"));
    };
    let negative = number.is_sign_negative() && !number.is_nan();
    let precision = layout.precision.take();
    let digits = match kind {
        None => match precision {
            None => float_repr(number.abs()),
            Some(precision) => general(number, precision, layout.alternate)?,
        },
        Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 'n')) => {
            let plain = if kind == 'n' { 'g' } else { kind.to_ascii_lowercase() };
            float_digits(number, plain, precision.unwrap_or(6), layout.alternate)?
        }
        Some(_) => return invalid(),
    };
    let upper = kind.is_some_and(char::is_uppercase);
    layout.number(negative, "", &if upper { digits.to_uppercase() } else { digits })
}

/// As `g`, but with at least one digit behind the point.
fn general(number: f64, precision: usize, alternate: bool) -> Result<String> {
    let precision = precision.max(1);
    let exponent = format!("{:.*e}", precision - 1, number.abs());
    let exponent: i32 = exponent.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let digits = float_digits(number, 'g', precision, alternate)?;
    // Python switches to the exponent one digit earlier here, so that a digit remains.
    if exponent >= precision as i32 - 1 && !digits.contains(['e', '.', 'n']) {
        let digits = float_digits(number, 'e', precision - 1, alternate)?;
        let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "+00"));
        let mantissa = match mantissa.contains('.') {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => mantissa,
        };
        return Ok(format!("{mantissa}e{exponent}"));
    }
    Ok(if digits.contains(['.', 'e', 'n']) { digits } else { digits + ".0" })
}

fn integer(value: &Value, number: i128, kind: Option<char>, mut layout: Layout) -> Result<String> {
    if layout.precision.is_some() {
        return fail("Precision not allowed in integer format specifier");
    }
    if let (None, Value::Bool(_)) = (kind, value)
        && layout.grouping.is_none()
        && layout.sign.is_none()
        && layout.width == 0
    {
        return value.to_text();
    }
    let size = number.unsigned_abs();
    let (prefix, digits) = match kind {
        Some('b') => ("0b", format!("{size:b}")),
        Some('o') => ("0o", format!("{size:o}")),
        Some('x') => ("0x", format!("{size:x}")),
        Some('X') => ("0X", format!("{size:X}")),
        Some('c') => {
            let c = u32::try_from(number).ok().and_then(char::from_u32);
            let Some(c) = c else { return fail("%c arg not in range(0x110000)") };
            layout.align = layout.align.or(Some('<'));
            return layout.text(&c.to_string(), '<');
        }
        _ => ("", size.to_string()),
    };
    layout.number(number < 0, if layout.alternate { prefix } else { "" }, &digits)
}

fn parse(spec: &str, name: &str) -> Result<(Layout, Option<char>)> {
    let mut layout = Layout::default();
    let mut chars = spec.chars().peekable();
    let second = spec.chars().nth(1).filter(|c| "<>^=".contains(*c));
    if let Some(align) = second {
        layout.fill = chars.next();
        layout.align = Some(align);
        chars.next();
    } else if let Some(align) = chars.next_if(|c| "<>^=".contains(*c)) {
        layout.align = Some(align);
    }
    layout.sign = chars.next_if(|c| "+- ".contains(*c));
    layout.alternate = chars.next_if_eq(&'#').is_some();
    layout.zero = chars.next_if_eq(&'0').is_some();
    let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<usize>> {
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        match digits.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) if digits.is_empty() => Ok(None),
            Err(_) => fail("Too many decimal digits in format string"),
        }
    };
    layout.width = number(&mut chars)?.unwrap_or(0);
    layout.grouping = chars.next_if(|c| ",_".contains(*c));
    if chars.next_if_eq(&'.').is_some() {
        match number(&mut chars)? {
            Some(precision) => layout.precision = Some(precision),
            None => return fail("Format specifier missing precision"),
        }
    }
    let kind = chars.next();
    if chars.next().is_some() {
        return fail(format!("Invalid format specifier '{spec}' for object of type '{name}'"));
    }
    Ok((layout, kind))
}

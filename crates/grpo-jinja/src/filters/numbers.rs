//! Filters that return numbers.

use super::sequences::Getter;
use crate::arguments::Arguments;
use crate::operators::binary;
use crate::syntax::Operator;
use crate::value::{Result, Value, fail};

pub(super) fn apply(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    if let (Value::Undefined(reason), "abs" | "float" | "int" | "round" | "filesizeformat") =
        (value, name)
    {
        return fail(&**reason);
    }
    match name {
        "abs" => {
            arguments.unnamed(name, &[])?;
            match (value.int(), value.float()) {
                (Some(number), _) => match number.checked_abs() {
                    Some(number) => Ok(Value::Int(number)),
                    None => fail("the integer has more than 127 bits"),
                },
                (_, Some(number)) => Ok(Value::Float(number.abs())),
                _ => fail(format!("bad operand type for abs(): '{}'", value.type_name())),
            }
        }
        "int" => {
            let bound = arguments.bind(name, &["default", "base"])?;
            let base = bound.int_or_none(1)?.unwrap_or(10);
            let default = bound.get(0).cloned().unwrap_or(Value::Int(0));
            int(value, default, base)
        }
        "float" => {
            let bound = arguments.bind(name, &["default"])?;
            let number = value.float().or_else(|| value.text().and_then(|text| parse_float(text)));
            Ok(match number {
                Some(number) => Value::Float(number),
                None => bound.get(0).cloned().unwrap_or(Value::Float(0.0)),
            })
        }
        "round" => {
            let bound = arguments.bind(name, &["precision", "method"])?;
            let precision = bound.int_or_none(0)?.unwrap_or(0);
            let method = bound.text_or_none(1)?.map_or("common", |method| method);
            round(value, precision, method)
        }
        "sum" => {
            let bound = arguments.bind(name, &["attribute", "start"])?;
            let getter = Getter::new(bound.get(0), false)?;
            let mut sum = bound.get(1).cloned().unwrap_or(Value::Int(0));
            if sum.text().is_some() {
                return fail("sum() can't sum strings [use ''.join(seq) instead]");
            }
            for item in value.iterate()? {
                sum = binary(Operator::Add, &sum, &getter.get(&item?)?)?;
            }
            Ok(sum)
        }
        _ => {
            let binary = arguments.bind(name, &["binary"])?.is_true(0);
            let number = value.float().or_else(|| value.text().and_then(|text| parse_float(text)));
            match number {
                Some(bytes) => Ok(file_size(bytes, binary).into()),
                None => fail(format!("could not convert {} to float", value.type_name())),
            }
        }
    }
}

fn int(value: &Value, default: Value, base: i128) -> Result<Value> {
    if let Some(number) = value.int() {
        return Ok(Value::Int(number));
    }
    let number = match value {
        Value::Float(number) if number.is_infinite() => {
            return fail("cannot convert float infinity to integer");
        }
        Value::Float(number) => Some(*number),
        _ => match value.text() {
            Some(text) => match parse_int(text, base)? {
                Some(number) => return Ok(Value::Int(number)),
                None => parse_float(text),
            },
            None => None,
        },
    };
    Ok(match number {
        Some(number) if number.is_finite() => {
            if number.abs() > 1e38 {
                return fail("the integer has more than 127 bits");
            }
            Value::Int(number.trunc() as i128)
        }
        _ => default,
    })
}

/// Returns Python's `int(text, base)`, or `None` where it raises a `ValueError`.
fn parse_int(text: &str, base: i128) -> Result<Option<i128>> {
    let text = text.trim_matches(crate::python_text::is_space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut base = base;
    let mut digits = digits;
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let has = digits.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        if has && (base == 0 || base == radix) {
            base = radix;
            digits = digits[2..].strip_prefix('_').unwrap_or(&digits[2..]);
        }
    }
    let radix = match base {
        0 => 10,
        2..=36 => base as u32,
        _ => return Ok(None),
    };
    let Some(plain) = without_underscores(digits, radix) else { return Ok(None) };
    match i128::from_str_radix(&plain, radix) {
        Ok(number) => Ok(Some(if negative { -number } else { number })),
        Err(_) => fail("the integer has more than 127 bits"),
    }
}

/// Removes single underscores between digits. Returns `None` if the text has anything else.
fn without_underscores(text: &str, radix: u32) -> Option<String> {
    let valid = !text.is_empty()
        && text.split('_').all(|part| !part.is_empty() && part.chars().all(|c| c.is_digit(radix)));
    valid.then(|| text.replace('_', ""))
}

/// Returns Python's `float(text)`, or `None` where it raises a `ValueError`.
fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(crate::python_text::is_space);
    let lower = text.to_ascii_lowercase();
    let word = lower.trim_start_matches(['+', '-']);
    if matches!(word, "inf" | "infinity" | "nan") {
        return lower.parse().ok();
    }
    let starts = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    if !text.starts_with(starts) {
        return None;
    }
    let bytes = text.as_bytes();
    let between_digits = |at: usize| {
        let digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        digit(at.checked_sub(1)) && digit(Some(at + 1))
    };
    if text.match_indices('_').any(|(at, _)| !between_digits(at)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn round(value: &Value, precision: i128, method: &str) -> Result<Value> {
    if !matches!(method, "common" | "ceil" | "floor") {
        return fail("method must be common, ceil or floor");
    }
    let precision = i32::try_from(precision).unwrap_or(if precision < 0 { -400 } else { 400 });
    let precision = precision.clamp(-400, 400);
    let Some(number) = value.float() else {
        let name = value.type_name();
        return fail(format!("type {name} doesn't define __round__ method"));
    };
    if method != "common" {
        let power = 10_f64.powi(precision);
        let scaled = number * power;
        if !scaled.is_finite() {
            return fail("cannot convert float infinity or NaN to integer");
        }
        let rounded = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
        // The result passes through an integer, which has no negative zero.
        return Ok(Value::Float((rounded + 0.0) / power));
    }
    if let Some(integer) = value.int() {
        if precision >= 0 {
            return Ok(Value::Int(integer));
        }
        let Some(power) = 10_i128.checked_pow(precision.unsigned_abs()) else {
            return Ok(Value::Int(0));
        };
        let (quotient, rest) = (integer.div_euclid(power), integer.rem_euclid(power));
        let up = rest * 2 > power || rest * 2 == power && quotient % 2 != 0;
        return Ok(Value::Int((quotient + i128::from(up)) * power));
    }
    if !number.is_finite() {
        return Ok(Value::Float(number));
    }
    if precision >= 0 {
        let text = format!("{number:.0$}", precision as usize);
        return Ok(Value::Float(text.parse().unwrap_or(number)));
    }
    let power = 10_f64.powi(-precision);
    Ok(Value::Float(if power.is_infinite() {
        0.0_f64.copysign(number)
    } else {
        (number / power).round_ties_even() * power
    }))
}

fn file_size(bytes: f64, binary: bool) -> String {
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return "1 Byte".to_owned();
    }
    if bytes < base {
        return format!("{} Bytes", bytes as i128);
    }
    let prefixes = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    for (i, prefix) in prefixes.into_iter().enumerate() {
        unit = base.powi(i as i32 + 2);
        if bytes < unit || i + 1 == prefixes.len() {
            let prefix = if binary { prefix.to_uppercase() + "i" } else { prefix.to_owned() };
            return format!("{:.1} {prefix}B", base * bytes / unit);
        }
    }
    format!("{:.1}", base * bytes / unit)
}

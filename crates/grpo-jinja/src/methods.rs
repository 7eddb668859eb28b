//! Methods of Python's types.

mod split;
mod strings;
pub(crate) mod table;

pub(crate) use split::lines;
pub(crate) use strings::{capitalized, is_cased, join, replace};

use crate::arguments::Arguments;
use crate::operators::equal;
use crate::value::{Dict, Result, Value, View, fail};
use std::rc::Rc;

/// Calls a method.
///
/// # Errors
/// Returns an error if the arguments are wrong or the method fails.
pub(crate) fn call(value: &Value, name: &'static str, arguments: Arguments) -> Result<Value> {
    match value {
        Value::Str(text) | Value::Markup(text) => {
            let result = strings::call(text, name, arguments)?;
            Ok(match (value, result) {
                (Value::Markup(_), Value::Str(text)) => Value::Markup(text),
                (Value::Markup(_), Value::List(parts)) => marked(&parts).into(),
                (Value::Markup(_), Value::Tuple(parts)) => Value::tuple(marked(&parts)),
                (_, result) => result,
            })
        }
        Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
            list(items, name, arguments)
        }
        Value::Range(_) => list(&value.items()?, name, arguments),
        Value::Dict(dict) => dict_method(dict, name, arguments),
        Value::Function(_) => from_keys(arguments),
        Value::Cycler(state) => {
            arguments.unnamed(name, &[])?;
            let mut position = state.1.borrow_mut();
            if name == "reset" {
                *position = 0;
                return Ok(Value::None);
            }
            let current = state.0[*position].clone();
            *position = (*position + 1) % state.0.len();
            Ok(current)
        }
        _ => number(value, name, arguments),
    }
}

/// Marks the parts of a split text as escaped.
fn marked(parts: &[Value]) -> Vec<Value> {
    let mark = |part: &Value| part.text().map_or(Value::None, |text| Value::Markup(text.clone()));
    parts.iter().map(mark).collect()
}

fn list(items: &[Value], name: &str, arguments: Arguments) -> Result<Value> {
    if name == "copy" {
        arguments.unnamed(name, &[])?;
        return Ok(items.to_vec().into());
    }
    let names: &'static [&'static str] = &["value", "start", "stop"];
    let bound = arguments.unnamed(name, if name == "count" { &names[..1] } else { names })?;
    let value = bound.required(0)?;
    let length = items.len() as i128;
    let position = |at: Option<i128>, otherwise: i128| {
        let at = at.unwrap_or(otherwise);
        (if at < 0 { at + length } else { at }).clamp(0, length) as usize
    };
    if name == "count" {
        let mut count = 0_usize;
        for item in items {
            count += usize::from(equal(item, value)?);
        }
        return Ok(count.into());
    }
    let (start, end) =
        (position(bound.int_or_none(1)?, 0), position(bound.int_or_none(2)?, length));
    for (at, item) in items.iter().enumerate().take(end).skip(start) {
        if equal(item, value)? {
            return Ok(at.into());
        }
    }
    fail(format!("{} is not in list", value.to_repr()?))
}

fn dict_method(dict: &Rc<Dict>, name: &str, arguments: Arguments) -> Result<Value> {
    if let Some(view) = View::of_method(name) {
        arguments.unnamed(name, &[])?;
        return Ok(Value::View(view, Rc::clone(dict)));
    }
    match name {
        "get" => {
            let bound = arguments.unnamed(name, &["key", "default"])?;
            let found = dict.get(bound.required(0)?)?;
            Ok(found.or(bound.get(1)).cloned().unwrap_or(Value::None))
        }
        "copy" => {
            arguments.unnamed(name, &[])?;
            Ok(Value::Dict(Rc::new((**dict).clone())))
        }
        _ => from_keys(arguments),
    }
}

fn from_keys(arguments: Arguments) -> Result<Value> {
    let bound = arguments.unnamed("fromkeys", &["iterable", "value"])?;
    let mut dict = Dict::default();
    for key in bound.required(0)?.iterate()? {
        dict.set(key?, bound.get(1).cloned().unwrap_or(Value::None))?;
    }
    Ok(Value::Dict(Rc::new(dict)))
}

fn number(value: &Value, name: &str, arguments: Arguments) -> Result<Value> {
    match (name, value.int(), value) {
        ("bit_length" | "bit_count", Some(number), _) => {
            arguments.unnamed(name, &[])?;
            let magnitude = number.unsigned_abs();
            let bits = match name {
                "bit_length" => 128 - magnitude.leading_zeros(),
                _ => magnitude.count_ones(),
            };
            Ok(Value::Int(bits.into()))
        }
        ("conjugate", Some(number), _) => {
            arguments.unnamed(name, &[])?;
            Ok(Value::Int(number))
        }
        ("as_integer_ratio", Some(number), _) => {
            arguments.unnamed(name, &[])?;
            Ok(Value::tuple(vec![Value::Int(number), Value::Int(1)]))
        }
        ("is_integer", _, Value::Float(number)) => {
            arguments.unnamed(name, &[])?;
            Ok((number.is_finite() && number.fract() == 0.0).into())
        }
        ("conjugate", _, Value::Float(number)) => {
            arguments.unnamed(name, &[])?;
            Ok(Value::Float(*number))
        }
        _ => fail(format!("the method `{name}` of {} is not supported", value.type_name())),
    }
}

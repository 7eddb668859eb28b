//! Methods of Python's types.

mod split;
mod strings;

pub(crate) use split::lines;
pub(crate) use strings::{capitalized, is_cased, join, replace};

use crate::access::view;
use crate::arguments::Arguments;
use crate::operators::equal;
use crate::value::{Dict, Result, Value, fail};
use std::rc::Rc;

const STRINGS: [&str; 45] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

/// Methods of strings that need values which templates don't have.
const OTHER_STRINGS: [&str; 2] = ["maketrans", "translate"];
const LISTS: [&str; 3] = ["copy", "count", "index"];
const TUPLES: [&str; 2] = ["count", "index"];
const DICTS: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const INTS: [&str; 6] =
    ["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"];
const FLOATS: [&str; 5] = ["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];

/// Returns the method of a value, if Python's type has it.
pub(crate) fn method_of(value: &Value, name: &str) -> Option<Value> {
    let known: &[&'static str] = match value {
        Value::Str(_) | Value::Markup(_) => {
            let all = STRINGS.iter().chain(&OTHER_STRINGS);
            return all.copied().find(|known| *known == name).map(|name| bound(value, name));
        }
        Value::List(_) => &LISTS,
        Value::Tuple(_) | Value::Group(_) | Value::Range(_) => &TUPLES,
        Value::Dict(_) => &DICTS,
        Value::Int(_) | Value::Bool(_) => &INTS,
        Value::Float(_) => &FLOATS,
        Value::Cycler(_) => &["next", "reset"],
        Value::Function("dict") => &["fromkeys"],
        _ => &[],
    };
    known.iter().copied().find(|known| *known == name).map(|name| bound(value, name))
}

fn bound(value: &Value, name: &'static str) -> Value {
    Value::Method(Rc::new(value.clone()), name)
}

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
    if let Some(view) = view(name) {
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

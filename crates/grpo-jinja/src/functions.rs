//! Jinja's global functions and the ones that `transformers` adds.

use crate::arguments::Arguments;
use crate::value::{Dict, Error, Result, Value, fail, range_length};
use chrono::{DateTime, Local};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::SystemTime;

const NAMES: [&str; 9] = [
    "range",
    "dict",
    "namespace",
    "cycler",
    "joiner",
    "lipsum",
    "raise_exception",
    "self",
    "strftime_now",
];

/// The most items that the sandbox allows for a range.
const LONGEST_RANGE: usize = 100_000;

/// Returns the global function of this name.
pub(crate) fn function(name: &str) -> Option<Value> {
    NAMES.into_iter().find(|known| *known == name).map(Value::Function)
}

/// Calls a global function.
///
/// # Errors
/// Returns an error if the arguments are wrong or the function fails.
pub(crate) fn call(name: &str, arguments: Arguments) -> Result<Value> {
    match name {
        "range" => range(arguments),
        "dict" => dict(arguments),
        "namespace" => namespace(arguments),
        "cycler" => {
            if !arguments.named.is_empty() {
                return fail("cycler() takes no keyword arguments");
            }
            if arguments.positional.is_empty() {
                return fail("at least one item has to be provided");
            }
            Ok(Value::Cycler(Rc::new((arguments.positional, RefCell::new(0)))))
        }
        "joiner" => {
            let bound = arguments.bind(name, &["sep"])?;
            let separator = bound.get(0).cloned().unwrap_or_else(|| ", ".into());
            Ok(Value::Joiner(Rc::new((separator, RefCell::new(false)))))
        }
        "raise_exception" => {
            let bound = arguments.bind(name, &["message"])?;
            Err(Error::new(bound.required(0)?.to_text()?))
        }
        "strftime_now" => {
            let bound = arguments.bind(name, &["format"])?;
            strftime_now(bound.text(0)?)
        }
        _ => fail(format!("the function `{name}` is not supported")),
    }
}

fn range(arguments: Arguments) -> Result<Value> {
    let bound = arguments.unnamed("range", &["start", "stop", "step"])?;
    let number = |at: usize| -> Result<Option<i64>> {
        let Some(value) = bound.get(at) else { return Ok(None) };
        if let Value::Undefined(reason) = value {
            return fail(&**reason);
        }
        match value.int().map(i64::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => fail("Python int too large to convert to C ssize_t"),
            None => {
                let name = value.type_name();
                fail(format!("'{name}' object cannot be interpreted as an integer"))
            }
        }
    };
    let range = match (number(0)?, number(1)?, number(2)?) {
        (None, ..) => return fail("range expected at least 1 argument, got 0"),
        (Some(end), None, _) => [0, end, 1],
        (Some(start), Some(end), step) => [start, end, step.unwrap_or(1)],
    };
    if range[2] == 0 {
        return fail("range() arg 3 must not be zero");
    }
    if range_length(&range) > LONGEST_RANGE {
        return fail(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({LONGEST_RANGE})."
        ));
    }
    Ok(Value::Range(Rc::new(range)))
}

fn dict(arguments: Arguments) -> Result<Value> {
    let mut dict = Dict::default();
    let most = arguments.positional.len();
    if most > 1 {
        return fail(format!("dict expected at most 1 argument, got {most}"));
    }
    match arguments.positional.first() {
        None => {}
        Some(Value::Dict(other)) => dict = (**other).clone(),
        Some(pairs) => {
            for (i, pair) in pairs.iterate()?.enumerate() {
                let pair = pair?;
                if !pair.is_iterable() {
                    return fail(format!(
                        "cannot convert dictionary update sequence element #{i} to a sequence"
                    ));
                }
                match &pair.items()?[..] {
                    [key, value] => dict.set(key.clone(), value.clone())?,
                    items => {
                        let length = items.len();
                        return fail(format!(
                            "dictionary update sequence element #{i} has length {length}; 2 is required"
                        ));
                    }
                }
            }
        }
    }
    for (name, value) in arguments.named {
        dict.set_text(&name, value);
    }
    Ok(Value::Dict(Rc::new(dict)))
}

fn namespace(arguments: Arguments) -> Result<Value> {
    let Value::Dict(entries) = dict(arguments)? else { return fail("namespace() takes a mapping") };
    let mut attributes = vec![];
    for (name, value) in entries.entries() {
        let Some(name) = name.text() else {
            return fail("names of attributes of a namespace are texts");
        };
        check_attribute(name)?;
        attributes.push((name.clone(), value.clone()));
    }
    Ok(Value::Namespace(Rc::new(RefCell::new(attributes))))
}

/// Refuses names that `transformers` refuses for attributes of a namespace.
pub(crate) fn check_attribute(name: &str) -> Result<()> {
    if name.starts_with('_') {
        return fail(format!(
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{name}'. Please rename the attribute."
        ));
    }
    Ok(())
}

fn strftime_now(format: &str) -> Result<Value> {
    let mut text = String::new();
    // Writing an unknown directive returns an error. `to_string` would panic.
    if write!(text, "{}", DateTime::<Local>::from(SystemTime::now()).format(format)).is_err() {
        return fail(format!("strftime_now does not support the format `{format}`"));
    }
    Ok(text.into())
}

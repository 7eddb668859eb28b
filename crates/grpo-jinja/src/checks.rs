//! Jinja's tests, e.g. `is defined`.

use crate::arguments::Arguments;
use crate::filters::names::is_filter;
use crate::methods::is_cased;
use crate::operators::{binary, compare, contains, equal, same};
use crate::syntax::{Comparison, Operator};
use crate::value::{Result, Value, fail};

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Applies a test.
///
/// # Errors
/// Returns an error if there is no such test, or if it fails.
pub(crate) fn test(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    let compared = |comparison| -> Result<Value> {
        let other = arguments.clone().bind(name, &["other"])?;
        Ok(compare(comparison, value, other.required(0)?)?.into())
    };
    match name {
        "eq" | "equalto" | "==" => return compared(Comparison::Eq),
        "ne" | "!=" => return compared(Comparison::Ne),
        "lt" | "lessthan" | "<" => return compared(Comparison::Lt),
        "le" | "<=" => return compared(Comparison::Le),
        "gt" | "greaterthan" | ">" => return compared(Comparison::Gt),
        "ge" | ">=" => return compared(Comparison::Ge),
        "in" => {
            let bound = arguments.bind(name, &["seq"])?;
            return Ok(contains(bound.required(0)?, value)?.into());
        }
        "sameas" => {
            let bound = arguments.bind(name, &["other"])?;
            return Ok(same(value, bound.required(0)?).into());
        }
        "divisibleby" => {
            let bound = arguments.bind(name, &["num"])?;
            let rest = binary(Operator::Mod, value, bound.required(0)?)?;
            return Ok(equal(&rest, &Value::Int(0))?.into());
        }
        _ => {}
    }
    if !NAMES.contains(&name) {
        return fail(format!("No test named '{name}'."));
    }
    arguments.bind(name, &[])?;
    plain(name, value).map(Value::Bool)
}

/// Applies a test without arguments.
fn plain(name: &str, value: &Value) -> Result<bool> {
    Ok(match name {
        "defined" => !matches!(value, Value::Undefined(_)),
        "undefined" => matches!(value, Value::Undefined(_)),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.float().is_some(),
        "string" => value.text().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "iterable" => value.is_iterable(),
        "sequence" => match value {
            Value::View(..) | Value::Loop(_) => false,
            _ => value.length().is_some(),
        },
        "callable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Function(_)
                | Value::Method(..)
                | Value::Macro(_)
                | Value::Loop(_)
                | Value::Joiner(_)
        ),
        "escaped" => matches!(value, Value::Markup(_)),
        "odd" | "even" => {
            let rest = binary(Operator::Mod, value, &Value::Int(2))?;
            equal(&rest, &Value::Int(i128::from(name == "odd")))?
        }
        "lower" => is_cased(&value.to_text()?, char::is_lowercase, char::is_uppercase),
        "upper" => is_cased(&value.to_text()?, char::is_uppercase, char::is_lowercase),
        "filter" | "test" => match value.text() {
            Some(known) if name == "filter" => is_filter(known),
            Some(known) => NAMES.contains(&&**known),
            None => false,
        },
        _ => false,
    })
}

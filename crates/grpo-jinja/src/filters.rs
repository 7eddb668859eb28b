//! Jinja's filters.

pub(crate) mod names;
mod numbers;
mod sequences;
mod text;

use crate::access;
use crate::arguments::Arguments;
use crate::formatting::percent;
use crate::json::tojson;
use crate::value::{Dict, Result, Value, View, fail};
use names::{UNSUPPORTED, is_filter};
use std::rc::Rc;

/// Applies a filter.
///
/// # Errors
/// Returns an error if there is no such filter, or if it fails.
pub(crate) fn apply(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    match name {
        "default" | "d" => {
            let bound = arguments.bind("default", &["default_value", "boolean"])?;
            let missing =
                matches!(value, Value::Undefined(_)) || bound.is_true(1) && !value.is_true();
            match missing {
                true => Ok(bound.get(0).cloned().unwrap_or_else(|| "".into())),
                false => Ok(value.clone()),
            }
        }
        "attr" => {
            let bound = arguments.bind(name, &["name"])?;
            access::only_attribute(value, bound.text(0)?)
        }
        "length" | "count" => {
            arguments.unnamed("len", &[])?;
            match value.length() {
                Some(length) => Ok(length.into()),
                None => fail(format!("object of type '{}' has no len()", value.type_name())),
            }
        }
        "tojson" => tojson(value, arguments),
        "format" => {
            let text = Value::from(value.to_text()?);
            let Arguments { positional, named } = arguments;
            if named.is_empty() {
                return percent::format(&text, &Value::tuple(positional));
            }
            if !positional.is_empty() {
                return fail("can't handle positional and keyword arguments at the same time");
            }
            let mut dict = Dict::default();
            for (name, value) in named {
                dict.set_text(&name, value);
            }
            percent::format(&text, &Value::Dict(Rc::new(dict)))
        }
        "items" => {
            arguments.bind(name, &[])?;
            match value {
                Value::Undefined(_) => Ok(Value::generator(vec![], None)),
                Value::Dict(dict) => {
                    Ok(Value::generator(Value::View(View::Items, Rc::clone(dict)).items()?, None))
                }
                // The generator fails when it is iterated over.
                _ => {
                    let reason = "Can only get item pairs from a mapping.";
                    Ok(Value::generator(vec![], Some(crate::value::Error::new(reason))))
                }
            }
        }
        "abs" | "float" | "int" | "round" | "sum" | "filesizeformat" => {
            numbers::apply(name, value, arguments)
        }
        "batch" | "dictsort" | "first" | "groupby" | "join" | "last" | "list" | "map" | "max"
        | "min" | "reject" | "rejectattr" | "reverse" | "select" | "selectattr" | "slice"
        | "sort" | "unique" => sequences::apply(name, value, arguments, apply),
        _ if UNSUPPORTED.contains(&name) => fail(format!("the filter `{name}` is not supported")),
        _ if is_filter(name) => text::apply(name, value, arguments),
        _ => fail(format!("No filter named '{name}'.")),
    }
}

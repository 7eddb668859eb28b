//! Attributes, items and slices, with the rules of Jinja's sandbox.

use crate::methods::table::method_of;
use crate::python_text::check_length;
use crate::value::{Result, Value, fail, range_length};
use std::rc::Rc;

/// Methods that change a value, which the sandbox refuses.
fn is_mutation(value: &Value, name: &str) -> bool {
    match value {
        Value::List(_) => matches!(
            name,
            "append" | "clear" | "pop" | "reverse" | "insert" | "sort" | "extend" | "remove"
        ),
        Value::Dict(_) => matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update"),
        _ => false,
    }
}

/// Returns Python's `getattr(value, name)`, if the value has the attribute.
fn attribute_of(value: &Value, name: &str) -> Result<Option<Value>> {
    let unsafe_name = name.starts_with('_') && is_special(name);
    if unsafe_name || is_mutation(value, name) {
        let kind = value.type_name();
        return Ok(Some(Value::undefined(format!(
            "access to attribute '{name}' of '{kind}' object is unsafe."
        ))));
    }
    Ok(match value {
        Value::Undefined(reason) => return fail(&**reason),
        Value::Namespace(attributes) => {
            let attributes = attributes.borrow();
            attributes.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.clone())
        }
        Value::Loop(state) => state.attribute(name)?,
        Value::Group(items) => match name {
            "grouper" => Some(items[0].clone()),
            "list" => Some(items[1].clone()),
            _ => method_of(value, name),
        },
        Value::Cycler(state) => match name {
            "current" => Some(state.0[*state.1.borrow()].clone()),
            _ => method_of(value, name),
        },
        Value::Range(range) => match name {
            "start" => Some(Value::Int(range[0].into())),
            "stop" => Some(Value::Int(range[1].into())),
            "step" => Some(Value::Int(range[2].into())),
            _ => method_of(value, name),
        },
        Value::Macro(it) if name == "name" => Some(Value::Str(it.definition.name.clone())),
        Value::Int(_) | Value::Bool(_) => match (name, value.int()) {
            ("real" | "numerator", Some(number)) => Some(Value::Int(number)),
            ("imag", _) => Some(Value::Int(0)),
            ("denominator", _) => Some(Value::Int(1)),
            _ => method_of(value, name),
        },
        Value::Float(_) => match name {
            "real" => Some(value.clone()),
            "imag" => Some(Value::Float(0.0)),
            _ => method_of(value, name),
        },
        _ => method_of(value, name),
    })
}

/// Whether all values of Python have an attribute of this kind.
fn is_special(name: &str) -> bool {
    matches!(
        name,
        "__class__"
            | "__doc__"
            | "__dir__"
            | "__eq__"
            | "__ge__"
            | "__gt__"
            | "__hash__"
            | "__init__"
            | "__le__"
            | "__lt__"
            | "__ne__"
            | "__new__"
            | "__reduce__"
            | "__reduce_ex__"
            | "__repr__"
            | "__str__"
            | "__setattr__"
            | "__delattr__"
            | "__getattribute__"
            | "__format__"
            | "__sizeof__"
            | "__init_subclass__"
            | "__subclasshook__"
    )
}

/// Returns `value[key]`, if there is one.
fn item_of(value: &Value, key: &Value) -> Option<Value> {
    match value {
        // A key that cannot be hashed is a missing one.
        Value::Dict(dict) => dict.get(key).ok().flatten().cloned(),
        _ => {
            let index = key.int()?;
            if let Value::Str(text) | Value::Markup(text) = value {
                let count = if index < 0 { text.chars().count() as i128 } else { 0 };
                let index = usize::try_from(index + count).ok()?;
                let c = text.chars().nth(index)?.to_string();
                return Some(match value {
                    Value::Markup(_) => Value::Markup(c.into()),
                    _ => c.into(),
                });
            }
            let length = match value {
                Value::Range(range) => range_length(range),
                _ => value.sequence()?.len(),
            };
            let index = if index < 0 { index + length as i128 } else { index };
            let index = usize::try_from(index).ok().filter(|index| *index < length)?;
            match value {
                Value::Range(range) => {
                    Some(Value::Int(i128::from(range[0]) + index as i128 * i128::from(range[2])))
                }
                _ => value.sequence()?.get(index).cloned(),
            }
        }
    }
}

/// Returns `value.name` as Jinja does: an attribute of the value in Python, else its item.
///
/// # Errors
/// Returns an error if the value is undefined.
pub(crate) fn attribute(value: &Value, name: &str) -> Result<Value> {
    if let Some(found) = attribute_of(value, name)? {
        return Ok(found);
    }
    Ok(item_of(value, &name.into()).unwrap_or_else(|| missing(value, &name.into())))
}

/// Returns `value[key]` as Jinja does: the item, or an attribute if the key is a text.
///
/// # Errors
/// Returns an error if the value is undefined.
pub(crate) fn item(value: &Value, key: &Value) -> Result<Value> {
    if let Value::Undefined(reason) = value {
        return fail(&**reason);
    }
    if let Some(found) = item_of(value, key) {
        return Ok(found);
    }
    if let Some(name) = key.text()
        && let Some(found) = attribute_of(value, name)?
    {
        return Ok(found);
    }
    Ok(missing(value, key))
}

/// Returns only what is an attribute in Python, as the filter `attr` does.
///
/// # Errors
/// Returns an error if the value is undefined.
pub(crate) fn only_attribute(value: &Value, name: &str) -> Result<Value> {
    Ok(attribute_of(value, name)?.unwrap_or_else(|| missing(value, &name.into())))
}

fn missing(value: &Value, key: &Value) -> Value {
    let key_text = key.to_repr().unwrap_or_else(|_| key.type_name().to_owned());
    let kind = value.described();
    Value::undefined(match key {
        Value::Str(_) | Value::Markup(_) => format!("'{kind}' has no attribute {key_text}"),
        _ => format!("{kind} has no element {key_text}"),
    })
}

/// Returns `value[start:end:step]`.
///
/// # Errors
/// Returns an error if the value cannot be sliced or a bound is not an integer.
pub(crate) fn slice(value: &Value, bounds: [Value; 3]) -> Result<Value> {
    if let Value::Undefined(reason) = value {
        return fail(&**reason);
    }
    let bound = |value: &Value| match value {
        Value::None => Ok(None),
        _ => match value.int() {
            Some(number) => Ok(Some(number)),
            None => fail("slice indices must be integers or None or have an __index__ method"),
        },
    };
    if let Some(text) = value.text() {
        let (start, end, step) = (bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?);
        check_length(text.len())?;
        let sliced: String = if step.unwrap_or(1) == 1 {
            let length = text.chars().count();
            let Positions { first, count, .. } = positions(length, start, end, 1)?;
            text.chars().skip(first as usize).take(count).collect()
        } else {
            let characters: Vec<char> = text.chars().collect();
            picked(&characters, start, end, step)?.into_iter().collect()
        };
        return Ok(match value {
            Value::Markup(_) => Value::Markup(sliced.into()),
            _ => sliced.into(),
        });
    }
    let items = match value {
        Value::Range(_) => Rc::new(value.items()?),
        _ => match value.sequence() {
            Some(items) => Rc::clone(items),
            None if matches!(value, Value::Dict(_)) => return fail("unhashable type: 'slice'"),
            None => return fail(format!("'{}' object is not subscriptable", value.type_name())),
        },
    };
    let (start, end, step) = (bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?);
    if let Value::Range(range) = value {
        let Positions { first, end, .. } = positions(items.len(), start, end, step.unwrap_or(1))?;
        let step = i128::from(range[2]) * step.unwrap_or(1);
        let at = |index: i128| i128::from(range[0]) + index * i128::from(range[2]);
        let small = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
        return Ok(Value::Range(Rc::new([small(at(first)), small(at(end)), small(step)])));
    }
    let items = picked(&items, start, end, step)?;
    Ok(match value {
        Value::List(_) => items.into(),
        _ => Value::tuple(items),
    })
}

/// The positions of a slice.
struct Positions {
    first: i128,
    /// The position at which it ends, which it does not contain.
    end: i128,
    /// Number of items.
    count: usize,
}

fn positions(
    length: usize,
    start: Option<i128>,
    end: Option<i128>,
    step: i128,
) -> Result<Positions> {
    if step == 0 {
        return fail("slice step cannot be zero");
    }
    let length = length as i128;
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: i128| {
        let bound = if bound < 0 { bound.saturating_add(length) } else { bound };
        bound.clamp(low, high)
    };
    let first = start.map_or(if step > 0 { low } else { high }, clamp);
    let end = end.map_or(if step > 0 { high } else { low }, clamp);
    let span = if step > 0 { end - first } else { first - end };
    let count = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
    Ok(Positions { first, end, count: usize::try_from(count).unwrap_or(0) })
}

fn picked<T: Clone>(
    items: &[T],
    start: Option<i128>,
    end: Option<i128>,
    step: Option<i128>,
) -> Result<Vec<T>> {
    let step = step.unwrap_or(1);
    let Positions { first, count, .. } = positions(items.len(), start, end, step)?;
    Ok((0..count as i128).map(|i| items[(first + i * step) as usize].clone()).collect())
}

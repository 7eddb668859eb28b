//! Python's operators.

use crate::formatting::percent;
use crate::python_text::{DEEPEST, check_length, escaped};
use crate::syntax::{Comparison, Operator};
use crate::value::{Error, Result, Value, View, fail};
use std::cmp::Ordering;
use std::rc::Rc;

/// The largest number of items of a list that an operation creates.
const MOST_ITEMS: usize = 1_000_000;

pub(crate) fn binary(operator: Operator, left: &Value, right: &Value) -> Result<Value> {
    for side in [left, right] {
        if let Value::Undefined(reason) = side
            && !(operator == Operator::Mod && left.text().is_some())
        {
            return fail(&**reason);
        }
    }
    match operator {
        Operator::Add => add(left, right),
        Operator::Mul => multiply(left, right),
        Operator::Mod if left.text().is_some() => percent::format(left, right),
        _ => numbers(operator, left, right),
    }
}

fn unsupported<T>(operator: Operator, left: &Value, right: &Value) -> Result<T> {
    let sign = match operator {
        Operator::Add => "+",
        Operator::Sub => "-",
        Operator::Mul => "*",
        Operator::Div => "/",
        Operator::FloorDiv => "//",
        Operator::Mod => "%",
        Operator::Pow => "** or pow()",
    };
    let (left, right) = (left.type_name(), right.type_name());
    fail(format!("unsupported operand type(s) for {sign}: '{left}' and '{right}'"))
}

fn add(left: &Value, right: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (left.text(), right.text()) {
        check_length(a.len() + b.len())?;
        return Ok(match (left, right) {
            (Value::Str(_), Value::Str(_)) => format!("{a}{b}").into(),
            // Text that is not marked is escaped when it is added to text that is.
            _ => {
                let (a, b) = (escaped(left)?, escaped(right)?);
                Value::Markup(format!("{a}{b}").into())
            }
        });
    }
    match (left, right) {
        (Value::Str(_) | Value::Markup(_), _) => {
            fail(format!("can only concatenate str (not \"{}\") to str", right.type_name()))
        }
        (Value::List(a), Value::List(b)) => joined(a, b).map(Value::from),
        (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => {
            joined(a, b).map(Value::tuple)
        }
        (Value::List(_) | Value::Tuple(_), _) => {
            let name = left.type_name();
            let other = right.type_name();
            fail(format!("can only concatenate {name} (not \"{other}\") to {name}"))
        }
        _ => numbers(Operator::Add, left, right),
    }
}

fn joined(a: &[Value], b: &[Value]) -> Result<Vec<Value>> {
    check_items(a.len() + b.len())?;
    Ok([a, b].concat())
}

/// Returns an error if an operation would create a list of more than [`MOST_ITEMS`] items.
pub(crate) fn check_items(count: usize) -> Result<()> {
    if count > MOST_ITEMS {
        return fail(format!("the list would have more than {MOST_ITEMS} items"));
    }
    Ok(())
}

fn multiply(left: &Value, right: &Value) -> Result<Value> {
    let repeated = |value: &Value, times: i128| -> Result<Option<Value>> {
        let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
        if let Some(text) = value.text() {
            check_length(text.len().saturating_mul(times))?;
            let text = if text.is_empty() { String::new() } else { text.repeat(times) };
            return Ok(Some(match value {
                Value::Markup(_) => Value::Markup(text.into()),
                _ => text.into(),
            }));
        }
        let Some(items) = value.sequence() else { return Ok(None) };
        check_items(items.len().saturating_mul(times))?;
        let count = if items.is_empty() { 0 } else { items.len() * times };
        let items: Vec<Value> = items.iter().cycle().take(count).cloned().collect();
        Ok(Some(match value {
            Value::List(_) => items.into(),
            _ => Value::tuple(items),
        }))
    };
    for (value, times) in [(left, right), (right, left)] {
        if let Some(times) = times.int()
            && let Some(value) = repeated(value, times)?
        {
            return Ok(value);
        }
        if value.text().is_some() || value.sequence().is_some() {
            let name = times.type_name();
            return fail(format!("can't multiply sequence by non-int of type '{name}'"));
        }
    }
    numbers(Operator::Mul, left, right)
}

fn numbers(operator: Operator, left: &Value, right: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        return integers(operator, a, b);
    }
    let (Some(a), Some(b)) = (left.float(), right.float()) else {
        return unsupported(operator, left, right);
    };
    floats(operator, a, b).map(Value::Float)
}

fn integers(operator: Operator, a: i128, b: i128) -> Result<Value> {
    if b == 0 {
        match operator {
            Operator::Div => return fail("division by zero"),
            Operator::FloorDiv | Operator::Mod => {
                return fail("integer division or modulo by zero");
            }
            _ => {}
        }
    }
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Sub => a.checked_sub(b),
        Operator::Mul => a.checked_mul(b),
        Operator::Div => return Ok(Value::Float(a as f64 / b as f64)),
        Operator::FloorDiv => {
            a.checked_div(b).map(|q| q - i128::from(a % b != 0 && (a < 0) != (b < 0)))
        }
        Operator::Mod => {
            a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
        }
        Operator::Pow if b < 0 => {
            return floats(Operator::Pow, a as f64, b as f64).map(Value::Float);
        }
        Operator::Pow => match u32::try_from(b) {
            Ok(exponent) => a.checked_pow(exponent),
            Err(_) if a == 0 || a == 1 => Some(a),
            Err(_) if a == -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            Err(_) => None,
        },
    };
    match result {
        Some(number) => Ok(Value::Int(number)),
        None => fail("the integer has more than 127 bits"),
    }
}

fn floats(operator: Operator, a: f64, b: f64) -> Result<f64> {
    if b == 0.0 {
        match operator {
            Operator::Div => return fail("float division by zero"),
            Operator::FloorDiv => return fail("float floor division by zero"),
            Operator::Mod => return fail("float modulo"),
            _ => {}
        }
    }
    let modulo = || {
        let rest = a % b;
        match rest {
            _ if rest == 0.0 => 0.0_f64.copysign(b),
            _ if (rest < 0.0) != (b < 0.0) => rest + b,
            _ => rest,
        }
    };
    Ok(match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div => a / b,
        Operator::Mod => modulo(),
        // As CPython computes it, with its rounding.
        Operator::FloorDiv => {
            let rest = a % b;
            let borrow = rest != 0.0 && (b < 0.0) != (rest < 0.0);
            let quotient = (a - rest) / b - f64::from(u8::from(borrow));
            if quotient == 0.0 {
                return Ok(0.0_f64.copysign(a / b));
            }
            let floor = quotient.floor();
            if quotient - floor > 0.5 { floor + 1.0 } else { floor }
        }
        Operator::Pow => {
            if a == 0.0 && b < 0.0 {
                return fail("0.0 cannot be raised to a negative power");
            }
            if a < 0.0 && b.fract() != 0.0 {
                return fail("complex numbers are not supported");
            }
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return fail("(34, 'Numerical result out of range')");
            }
            power
        }
    })
}

/// Returns `-value` or `+value`.
pub(crate) fn signed(value: &Value, negative: bool) -> Result<Value> {
    if let Value::Undefined(reason) = value {
        return fail(&**reason);
    }
    match (value.int(), value.float()) {
        (Some(number), _) if negative => match number.checked_neg() {
            Some(number) => Ok(Value::Int(number)),
            None => fail("the integer has more than 127 bits"),
        },
        (Some(number), _) => Ok(Value::Int(number)),
        (_, Some(number)) => Ok(Value::Float(if negative { -number } else { number })),
        _ => {
            let sign = if negative { '-' } else { '+' };
            fail(format!("bad operand type for unary {sign}: '{}'", value.type_name()))
        }
    }
}

pub(crate) fn compare(comparison: Comparison, left: &Value, right: &Value) -> Result<bool> {
    match comparison {
        Comparison::Eq => equal(left, right),
        Comparison::Ne => Ok(!equal(left, right)?),
        Comparison::In => contains(right, left),
        Comparison::NotIn => Ok(!contains(right, left)?),
        Comparison::Lt => ordered(left, right, "<", |order| order == Ordering::Less),
        Comparison::Le => ordered(left, right, "<=", |order| order != Ordering::Greater),
        Comparison::Gt => ordered(left, right, ">", |order| order == Ordering::Greater),
        Comparison::Ge => ordered(left, right, ">=", |order| order != Ordering::Less),
    }
}

/// Returns Python's `left == right`.
///
/// # Errors
/// Returns an error if the values are nested too deeply.
pub(crate) fn equal(left: &Value, right: &Value) -> Result<bool> {
    equal_at(left, right, 0)
}

fn equal_at(left: &Value, right: &Value, depth: usize) -> Result<bool> {
    if depth > DEEPEST {
        return fail("maximum recursion depth exceeded in comparison");
    }
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (left.float(), right.float()) {
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (left.text(), right.text()) {
        return Ok(a == b);
    }
    let items = |a: &[Value], b: &[Value]| -> Result<bool> {
        if a.len() != b.len() {
            return Ok(false);
        }
        for (a, b) in a.iter().zip(b) {
            if !equal_at(a, b, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::List(a), Value::List(b)) => items(a, b)?,
        (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => items(a, b)?,
        (Value::Dict(a), Value::Dict(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.entries() {
                match b.get(key)? {
                    Some(other) if equal_at(value, other, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(_), Value::Range(_)) => items(&left.items()?, &right.items()?)?,
        (Value::View(View::Keys, a), Value::View(View::Keys, b)) => {
            a.len() == b.len()
                && a.entries().iter().all(|(key, _)| matches!(b.get(key), Ok(Some(_))))
        }
        _ => same(left, right),
    })
}

/// Returns Python's `left is right`.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        // CPython keeps one object for each of these.
        (Value::Int(a), Value::Int(b)) => a == b && (-5..=256).contains(a),
        (Value::Str(a), Value::Str(b)) => {
            std::sync::Arc::ptr_eq(a, b) || a == b && a.chars().count() < 2
        }
        (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b),
        (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b) || a.is_empty() && b.is_empty(),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
        (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
        (Value::Iterator(a), Value::Iterator(b)) => Rc::ptr_eq(a, b),
        (Value::Function(a), Value::Function(b)) => a == b,
        (Value::Method(a, x), Value::Method(b, y)) => x == y && same(a, b),
        _ => false,
    }
}

fn ordered(left: &Value, right: &Value, sign: &str, is: impl Fn(Ordering) -> bool) -> Result<bool> {
    for side in [left, right] {
        if let Value::Undefined(reason) = side {
            return fail(&**reason);
        }
    }
    // Nothing is smaller than or equal to NaN.
    if [left, right].iter().any(|side| matches!(side, Value::Float(x) if x.is_nan()))
        && left.float().is_some()
        && right.float().is_some()
    {
        return Ok(false);
    }
    order(left, right, sign).map(is)
}

/// Compares two values as Python's `sorted` does.
///
/// # Errors
/// Returns an error if Python does not order these types.
pub(crate) fn order(left: &Value, right: &Value, sign: &str) -> Result<Ordering> {
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        return Ok(a.cmp(&b));
    }
    if let (Some(a), Some(b)) = (left.float(), right.float()) {
        return Ok(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
    }
    if let (Some(a), Some(b)) = (left.text(), right.text()) {
        // The order of UTF-8 is the one of code points.
        return Ok(a.cmp(b));
    }
    match (left, right) {
        (Value::List(a), Value::List(b))
        | (Value::Tuple(a) | Value::Group(a), Value::Tuple(b) | Value::Group(b)) => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b)? {
                    return order(a, b, sign);
                }
            }
            Ok(a.len().cmp(&b.len()))
        }
        _ => {
            if let Some(Value::Undefined(reason)) =
                [left, right].into_iter().find(|side| matches!(side, Value::Undefined(_)))
            {
                return fail(&**reason);
            }
            let (left, right) = (left.type_name(), right.type_name());
            fail(format!("'{sign}' not supported between instances of '{left}' and '{right}'"))
        }
    }
}

/// Returns Python's `item in container`.
pub(crate) fn contains(container: &Value, item: &Value) -> Result<bool> {
    if let Some(text) = container.text() {
        let Some(part) = item.text() else {
            let name = item.type_name();
            return fail(format!("'in <string>' requires string as left operand, not {name}"));
        };
        return Ok(text.contains(&**part));
    }
    match container {
        Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(item)?.is_some()),
        _ if container.is_iterable() => {
            for other in container.iterate()? {
                if equal(&other?, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => {
            Err(Error::new(format!("argument of type '{}' is not iterable", container.type_name())))
        }
    }
}

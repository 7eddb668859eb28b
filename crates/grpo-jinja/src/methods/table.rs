//! Which methods Python's types have.

use crate::value::Value;
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

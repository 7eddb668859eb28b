//! Filters of sequences.

use crate::access::item;
use crate::arguments::{Arguments, Bound};
use crate::checks;
use crate::operators::{check_items, equal, order};
use crate::sorting::sort_by;
use crate::value::{Error, Key, Result, Value, fail};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::rc::Rc;

/// Gets an attribute such as `function.name` or `0.role` of an item.
pub(super) struct Getter {
    parts: Vec<Value>,
    /// Whether texts are converted to lowercase.
    lower: bool,
    default: Option<Value>,
}

impl Getter {
    pub(super) fn new(attribute: Option<&Value>, lower: bool) -> Result<Self> {
        let parts = match attribute {
            None | Some(Value::None) => vec![],
            Some(attribute) => match attribute.text() {
                Some(text) => text.split('.').map(part).collect(),
                None => vec![attribute.clone()],
            },
        };
        Ok(Self { parts, lower, default: None })
    }

    pub(super) fn get(&self, value: &Value) -> Result<Value> {
        let mut value = value.clone();
        for part in &self.parts {
            value = item(&value, part)?;
            if let (Value::Undefined(_), Some(default)) = (&value, &self.default) {
                value = default.clone();
            }
        }
        Ok(match value.text() {
            Some(text) if self.lower => text.to_lowercase().into(),
            _ => value,
        })
    }
}

fn part(text: &str) -> Value {
    let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    match text.parse() {
        Ok(index) if is_number => Value::Int(index),
        _ => text.into(),
    }
}

/// Applies a filter of any kind.
pub(super) type Apply = fn(&str, &Value, Arguments) -> Result<Value>;

/// Applies a filter of this module. `any` is what `map` applies.
pub(super) fn apply(name: &str, value: &Value, arguments: Arguments, any: Apply) -> Result<Value> {
    match name {
        "first" => {
            arguments.unnamed(name, &[])?;
            let first = match value {
                Value::Iterator(iterator) => Value::next_item(iterator),
                _ => value.iterate()?.next(),
            };
            first.unwrap_or_else(|| Ok(Value::undefined("No first item, sequence was empty.")))
        }
        "last" => {
            arguments.unnamed(name, &[])?;
            if matches!(value, Value::Iterator(_)) || !value.is_iterable() {
                return fail(format!("'{}' object is not reversible", value.type_name()));
            }
            let last = value.items()?.pop();
            Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
        "list" => {
            arguments.unnamed(name, &[])?;
            Ok(value.items()?.into())
        }
        "join" => {
            let bound = arguments.bind(name, &["d", "attribute"])?;
            let getter = Getter::new(bound.get(1), false)?;
            let separator = bound.get(0).map(Value::to_text).transpose()?.unwrap_or_default();
            let mut texts = vec![];
            for item in value.iterate()? {
                texts.push(Value::from(getter.get(&item?)?.to_text()?));
            }
            crate::methods::join(&separator, &texts.into())
        }
        "reverse" => {
            arguments.unnamed(name, &[])?;
            reverse(value)
        }
        "batch" | "slice" => pieces(name, value, arguments),
        "dictsort" => dictsort(value, arguments),
        "groupby" => groupby(value, arguments),
        "max" | "min" => extreme(name, value, arguments),
        "sort" => sort(value, arguments),
        "unique" => unique(value, arguments),
        "map" => Ok(lazily(value, |value| mapper(&arguments, value, any))),
        _ => Ok(lazily(value, |value| selected(name, value, &arguments))),
    }
}

/// Returns a generator of what `work` adds to the list before it succeeds or fails.
fn lazily(value: &Value, work: impl FnOnce(&Value) -> (Vec<Value>, Option<Error>)) -> Value {
    let (items, error) = if value.is_true() { work(value) } else { (vec![], None) };
    Value::generator(items, error)
}

/// Adds what `step` returns for each item until one fails.
fn each(
    value: &Value,
    mut step: impl FnMut(Value) -> Result<Option<Value>>,
) -> (Vec<Value>, Option<Error>) {
    let mut out = vec![];
    let items = match value.iterate() {
        Ok(items) => items,
        Err(error) => return (out, Some(error)),
    };
    for item in items {
        match item.and_then(&mut step) {
            Ok(item) => out.extend(item),
            Err(error) => return (out, Some(error)),
        }
    }
    (out, None)
}

fn mapper(arguments: &Arguments, value: &Value, any: Apply) -> (Vec<Value>, Option<Error>) {
    if let Some(name) = arguments.positional.first() {
        let rest = Arguments {
            positional: arguments.positional[1..].to_vec(),
            named: arguments.named.clone(),
        };
        let Some(name) = name.text() else {
            let reason = format!("No filter named {}.", name.to_repr().unwrap_or_default());
            return (vec![], Some(Error::new(reason)));
        };
        return each(value, |item| any(name, &item, rest.clone()).map(Some));
    }
    let bound = match arguments.clone().bind("map", &["attribute", "default"]) {
        Ok(bound) if bound.get(0).is_some() => bound,
        Ok(_) => return (vec![], Some(Error::new("map requires a filter argument"))),
        Err(error) => return (vec![], Some(error)),
    };
    match Getter::new(bound.get(0), false) {
        Ok(mut getter) => {
            getter.default = bound.some(1).cloned();
            each(value, |item| getter.get(&item).map(Some))
        }
        Err(error) => (vec![], Some(error)),
    }
}

fn selected(name: &str, value: &Value, arguments: &Arguments) -> (Vec<Value>, Option<Error>) {
    let by_attribute = name.ends_with("attr");
    let wanted = name.starts_with("select");
    let mut rest = arguments.positional.iter();
    let attribute = by_attribute.then(|| rest.next()).flatten();
    if by_attribute && attribute.is_none() {
        return (vec![], Some(Error::new("Missing parameter for attribute name")));
    }
    let getter = match Getter::new(attribute, false) {
        Ok(getter) => getter,
        Err(error) => return (vec![], Some(error)),
    };
    let test = rest.next().cloned();
    let rest = Arguments { positional: rest.cloned().collect(), named: arguments.named.clone() };
    each(value, |item| {
        let found = getter.get(&item)?;
        let truth = match &test {
            None => found.is_true(),
            Some(test) => match test.text() {
                Some(test) => checks::test(test, &found, rest.clone())?.is_true(),
                None => return fail(format!("No test named {}.", test.to_repr()?)),
            },
        };
        Ok((truth == wanted).then_some(item))
    })
}

fn reverse(value: &Value) -> Result<Value> {
    if let Some(text) = value.text() {
        let reversed: String = text.chars().rev().collect();
        return Ok(match value {
            Value::Markup(_) => Value::Markup(reversed.into()),
            _ => reversed.into(),
        });
    }
    if !value.is_iterable() {
        return fail("argument must be iterable");
    }
    let mut items = value.items()?;
    items.reverse();
    Ok(match value {
        Value::Iterator(_) => items.into(),
        Value::List(_) => Value::iterator("list_reverseiterator", items, None),
        Value::Dict(_) => Value::iterator("dict_reversekeyiterator", items, None),
        _ => Value::iterator("reversed", items, None),
    })
}

fn pieces(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind(name, &["count", "fill_with"])?;
    let count = bound.int(0)?;
    let items = value.items()?;
    let fill = bound.some(1);
    let mut out: Vec<Value> = vec![];
    if name == "batch" {
        let size = usize::try_from(count).unwrap_or(0);
        if size == 0 {
            return Ok(Value::generator(
                if items.is_empty() { vec![] } else { vec![items.into()] },
                None,
            ));
        }
        for piece in items.chunks(size) {
            let mut piece = piece.to_vec();
            if let Some(fill) = fill {
                check_items(size)?;
                piece.resize(size, fill.clone());
            }
            out.push(piece.into());
        }
        return Ok(Value::generator(out, None));
    }
    if count == 0 {
        return Ok(Value::generator(
            vec![],
            Some(Error::new("integer division or modulo by zero")),
        ));
    }
    let slices = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    check_items(slices)?;
    let (size, longer) = (items.len() / slices.max(1), items.len() % slices.max(1));
    let mut rest = &items[..];
    for number in 0..slices {
        let (piece, after) = rest.split_at(size + usize::from(number < longer));
        let mut piece = piece.to_vec();
        if number >= longer {
            piece.extend(fill.cloned());
        }
        out.push(piece.into());
        rest = after;
    }
    Ok(Value::generator(out, None))
}

fn dictsort(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("dictsort", &["case_sensitive", "by", "reverse"])?;
    let position = match bound.text_or_none(1)?.map_or("key", |by| by) {
        "key" => 0,
        "value" => 1,
        _ => return fail("You can only sort by either \"key\" or \"value\""),
    };
    let Value::Dict(dict) = value else {
        return fail(match value {
            Value::Undefined(reason) => reason.to_string(),
            _ => format!("'{}' object has no attribute 'items'", value.type_name()),
        });
    };
    let pairs =
        dict.entries().iter().map(|(key, value)| Value::tuple(vec![key.clone(), value.clone()]));
    let getter =
        Getter { parts: vec![Value::Int(position)], lower: !bound.is_true(0), default: None };
    sorted(pairs.collect(), bound.is_true(2), |pair| getter.get(pair))
}

fn sort(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("sort", &["reverse", "case_sensitive", "attribute"])?;
    let lower = !bound.is_true(1);
    let getters: Vec<Getter> = match bound.some(2) {
        Some(attribute) => match attribute.text() {
            Some(names) => names
                .split(',')
                .map(|name| Getter::new(Some(&name.into()), lower))
                .collect::<Result<_>>()?,
            None => vec![Getter::new(Some(attribute), lower)?],
        },
        None => vec![Getter::new(None, lower)?],
    };
    sorted(value.items()?, bound.is_true(0), |item| {
        let keys = getters.iter().map(|getter| getter.get(item));
        Ok(keys.collect::<Result<Vec<_>>>()?.into())
    })
}

/// Returns the items sorted by a key, stably in both directions.
fn sorted(
    items: Vec<Value>,
    reverse: bool,
    key: impl Fn(&Value) -> Result<Value>,
) -> Result<Value> {
    let keyed = items.into_iter().map(|item| Ok((key(&item)?, item)));
    let mut keyed = keyed.collect::<Result<Vec<_>>>()?;
    sort_by(&mut keyed, |(a, _), (b, _)| {
        let order = order(a, b, "<")?;
        Ok(if reverse { order.reverse() } else { order })
    })?;
    Ok(keyed.into_iter().map(|(_, item)| item).collect::<Vec<_>>().into())
}

fn groupby(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("groupby", &["attribute", "default", "case_sensitive"])?;
    let attribute = bound.required(0)?;
    let getter = |lower: bool| -> Result<Getter> {
        let mut getter = Getter::new(Some(attribute), lower)?;
        getter.default = bound.some(1).cloned();
        Ok(getter)
    };
    let (by, shown) = (getter(!bound.is_true(2))?, getter(false)?);
    let items = sorted(value.items()?, false, |item| by.get(item))?.items()?;
    let mut groups: Vec<(Value, Vec<Value>)> = vec![];
    for item in items {
        let key = by.get(&item)?;
        match groups.last_mut() {
            Some((last, members)) if equal(last, &key)? => members.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = vec![];
    for (_, members) in groups {
        let key = shown.get(&members[0])?;
        out.push(Value::Group(Rc::new(vec![key, members.into()])));
    }
    Ok(out.into())
}

fn extreme(name: &str, value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind(name, &["case_sensitive", "attribute"])?;
    let getter = keyed_getter(&bound)?;
    let mut best: Option<(Value, Value)> = None;
    let (sign, wanted) =
        if name == "max" { (">", Ordering::Greater) } else { ("<", Ordering::Less) };
    for item in value.iterate()? {
        let item = item?;
        let key = getter.get(&item)?;
        let better = match &best {
            Some((best, _)) => order(&key, best, sign)? == wanted,
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(match best {
        Some((_, item)) => item,
        None => Value::undefined("No aggregated item, sequence was empty."),
    })
}

fn unique(value: &Value, arguments: Arguments) -> Result<Value> {
    let bound = arguments.bind("unique", &["case_sensitive", "attribute"])?;
    let getter = keyed_getter(&bound)?;
    let mut seen = HashSet::new();
    let (items, error) = each(value, |item| {
        let key = Key::new(&getter.get(&item)?)?;
        Ok(seen.insert(key).then_some(item))
    });
    Ok(Value::generator(items, error))
}

/// Returns the getter of filters with the parameters `case_sensitive` and `attribute`.
fn keyed_getter(bound: &Bound) -> Result<Getter> {
    Getter::new(bound.get(1), !bound.is_true(0))
}

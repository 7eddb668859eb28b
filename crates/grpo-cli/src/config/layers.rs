//! From files and `--set` to one checked configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Reads `path`, what it `extends`, and the `KEY=VALUE` pairs of `set`, later layers over earlier ones.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, set: &[String]) -> anyhow::Result<T> {
    let mut files = Vec::new();
    let mut merged = read_with_bases(path, &mut files)?;
    for pair in set {
        let (key, value) = parse_set(pair)?;
        merge(&mut merged, nested(&key, value));
    }
    let error = match serde_path_to_error::deserialize(Value::Table(merged)) {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    bail!("{}", explain(&error.path().to_string(), error.inner().message(), &files, set))
}

/// A file of the configuration, as text.
struct Layer {
    path: PathBuf,
    /// `path` without `..` and links.
    real: PathBuf,
    text: String,
}

fn read_with_bases(path: &Path, files: &mut Vec<Layer>) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let mut table: Table = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(&text, span.start));
        anyhow::anyhow!("{}:{line}: {}", path.display(), error.message())
    })?;
    // Of two paths to one file, both lead around the same circle.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if files.iter().any(|file| file.real == real) {
        bail!("{}: extends itself", path.display());
    }
    files.push(Layer { path: path.to_owned(), real, text });
    match table.remove("extends") {
        None => Ok(table),
        Some(Value::String(base)) => {
            let base = path.parent().unwrap_or(Path::new("")).join(base);
            let mut merged = read_with_bases(&base, files)
                .with_context(|| format!("{} extends {}", path.display(), base.display()))?;
            merge(&mut merged, table);
            Ok(merged)
        }
        Some(other) => bail!(
            "{}: extends = {other} is not a path; write it as a string, relative to this file",
            path.display()
        ),
    }
}

/// Values of `over` replace those of `under`; tables are merged key by key.
fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// `train.steps=50` → (`train.steps`, 50). A value that is no TOML is a string.
fn parse_set(pair: &str) -> anyhow::Result<(String, Value)> {
    let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        bail!("--set {pair}: expected KEY=VALUE, as in --set train.steps=50");
    };
    let value = value.trim();
    let parsed = toml::from_str::<Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut table| if table.len() == 1 { table.remove("value") } else { None });
    Ok((key.trim().to_owned(), parsed.unwrap_or_else(|| Value::String(value.to_owned()))))
}

fn nested(key: &str, value: Value) -> Table {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = if rest.is_empty() { value } else { Value::Table(nested(rest, value)) };
    Table::from_iter([(first.to_owned(), value)])
}

/// Where the fault is, what it is, and the nearest key that there is.
fn explain(at: &str, message: &str, files: &[Layer], set: &[String]) -> String {
    let message = message.trim();
    let unknown = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(name, rest)| (name.to_owned(), quoted(rest)));
    let at = if at == "." { "" } else { at };
    let Some((name, known)) = unknown else {
        let key = at.to_owned();
        let place = place(&key, files, set);
        let subject = if key.is_empty() { String::new() } else { format!("{key}: ") };
        return format!("{place}{subject}{message}");
    };
    // The path may or may not end in the unknown key itself.
    let section = at.strip_suffix(&name).unwrap_or(at).trim_end_matches('.');
    let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
    let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(known, &name));
    let hint = match nearest {
        Some(nearest) if strsim::jaro_winkler(nearest, &name) > 0.75 => {
            format!("did you mean '{nearest}'?")
        }
        _ => format!("there are: {}", known.join(", ")),
    };
    format!("{}unknown key '{key}'; {hint}", place(&key, files, set))
}

/// What stands in backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// `file:line: ` of the topmost layer that gives `key`, or its table.
fn place(key: &str, files: &[Layer], set: &[String]) -> String {
    // `--set rewrad.qed=1` makes the unknown table `rewrad`.
    let sets = |pair: &&String| {
        let given = pair.split_once('=').map_or("", |(given, _)| given.trim());
        !key.is_empty() && format!("{given}.").starts_with(&format!("{key}."))
    };
    if let Some(pair) = set.iter().rev().find(sets) {
        return format!("--set {pair}: ");
    }
    let mut parts: Vec<&str> = key.split('.').filter(|part| !part.is_empty()).collect();
    loop {
        for file in files {
            if let Some(line) = line_of_key(&file.text, &parts) {
                return format!("{}:{line}: ", file.path.display());
            }
        }
        if parts.pop().is_none() {
            return String::new();
        }
    }
}

fn line_of_key(text: &str, parts: &[&str]) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let (last, above) = parts.split_last()?;
    for part in above {
        table = table.get(*part)?.get_ref().as_table()?;
    }
    let (key, _) = table.get_key_value(*last)?;
    Some(line_of(text, key.span().start))
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

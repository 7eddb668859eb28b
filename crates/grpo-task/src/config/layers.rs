//! Loads configurations from files and `--set` options.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use grpo_data::{ConfigFault, FileOrigin, Ranges, Shortened, deserialize_settings, regular_file};
use grpo_train::TrainError;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::published_names::published_name;
use super::syntax::syntax_fault;
use crate::example_hint::example_hint;

/// A configuration and the origin of its keys.
pub struct Loaded<T> {
    /// The configuration.
    pub value: T,
    /// Where each key was set.
    pub origin: Origin,
}

/// The layers of a configuration. Error messages use them to report where a key was set.
pub struct Origin {
    /// The requested file, followed by the files that it extends.
    files: Vec<Layer>,
    /// `KEY=VALUE` overrides, each with its source.
    set: Vec<(&'static str, String)>,
}

/// Keys set by a command. They take precedence over files, but not over `--set`.
pub struct Command {
    /// Source name in error messages.
    pub name: &'static str,
    /// Keys and their values.
    pub keys: Vec<(&'static str, Value)>,
}

/// Loads the configuration file `path` together with the files that it `extends` and the
/// `KEY=VALUE` pairs in `set`. Later layers override earlier ones.
pub fn load<T: DeserializeOwned>(path: &Path, set: &[String]) -> anyhow::Result<Loaded<T>> {
    load_for(path, &Command { name: "", keys: Vec::new() }, set)
}

/// Loads a configuration from `--set` pairs alone.
pub fn of_sets<T: DeserializeOwned>(set: &[String]) -> anyhow::Result<Loaded<T>> {
    loaded(Table::new(), Vec::new(), &Command { name: "", keys: Vec::new() }, set)?.parse()
}

/// Like [`load`], but the keys of `command` override the files.
pub fn load_for<T: DeserializeOwned>(
    path: &Path,
    command: &Command,
    set: &[String],
) -> anyhow::Result<Loaded<T>> {
    let mut files = Vec::new();
    let merged = read_with_bases(path, &mut files)?;
    loaded(merged, files, command, set)?.parse()
}

/// Merges the keys of a command and of `--set` into those from files.
fn loaded(
    mut merged: Table,
    files: Vec<Layer>,
    command: &Command,
    set: &[String],
) -> anyhow::Result<Loaded<Table>> {
    let mut given = Vec::new();
    for (key, value) in &command.keys {
        merge(&mut merged, nested(key, value.clone()));
        given.push((command.name, format!("{key}={value}")));
    }
    for pair in set {
        let (key, value) = parse_set(pair)?;
        merge(&mut merged, nested(&key, value));
        given.push(("--set", pair.clone()));
    }
    Ok(Loaded { value: merged, origin: Origin { files, set: given } })
}

/// Parses the text of a configuration that has not been written to `path` yet.
pub fn of_text(path: &Path, text: String) -> anyhow::Result<Loaded<Table>> {
    of_text_for(path, text, &Command { name: "", keys: Vec::new() }, &[])
}

/// Like [`of_text`], with the keys of `command` and `KEY=VALUE` pairs as in [`load_for`].
pub fn of_text_for(
    path: &Path,
    text: String,
    command: &Command,
    set: &[String],
) -> anyhow::Result<Loaded<Table>> {
    let value = parse_text(path, &text)?;
    let layer = Layer { path: path.to_owned(), real: path.to_owned(), text };
    loaded(value, vec![layer], command, set)
}

impl Loaded<Table> {
    /// Deserializes the merged keys.
    pub fn parse<T: DeserializeOwned>(self) -> anyhow::Result<Loaded<T>> {
        let Self { value, origin } = self;
        match deserialize_settings(value) {
            Ok(value) => Ok(Loaded { value, origin }),
            Err(fault) => Err(origin.misread(&fault)),
        }
    }
}

impl Origin {
    /// Adds the location and the most similar key to a deserialization error.
    pub fn misread(&self, fault: &ConfigFault) -> anyhow::Error {
        anyhow::anyhow!("{}", self.fault(&fault.key, &fault.to_string()))
    }

    /// Adds the location of the key to a training error.
    pub fn explain(&self, error: impl Into<TrainError>) -> anyhow::Error {
        match error.into() {
            TrainError::Config(fault) => self.locate(fault).into(),
            error => anyhow::anyhow!("{}{error}", self.place("")),
        }
    }

    /// Adds the location of the key to an error.
    pub fn locate(&self, fault: ConfigFault) -> ConfigFault {
        let place = self.place(&fault.key);
        fault.at(place.trim_end_matches(": ").to_owned())
    }

    /// Returns an error with the location of the key if a value of a section is out of range.
    pub fn check_ranges(&self, section: &str, settings: &impl Ranges) -> anyhow::Result<()> {
        settings.check_ranges(section).map_err(|fault| self.locate(fault).into())
    }

    /// Returns `file:line: ` for the topmost layer that contains `key` or its table. If there is no
    /// such layer, returns only the file.
    pub fn place(&self, key: &str) -> String {
        // `--set rewrad.qed=1` creates the unknown table `rewrad`, and `--set loss.mismatch={ … }`
        // contains `loss.mismatch.max`.
        let sets = |(_, pair): &&(&str, String)| {
            let given = pair.split_once('=').map_or("", |(given, _)| given.trim());
            let (given, key) = (format!("{given}."), format!("{}.", key.replace('[', ".")));
            key != "." && (given.starts_with(&key) || key.starts_with(&given))
        };
        if let Some((who, pair)) = self.set.iter().rev().find(sets) {
            return format!("{who} {}: ", Shortened(pair));
        }
        let mut parts: Vec<&str> = key.split('.').filter(|part| !part.is_empty()).collect();
        loop {
            for file in &self.files {
                if let Some(line) = line_of_key(&file.text, &parts) {
                    return format!("{}:{line}: ", file.path.display());
                }
            }
            if parts.pop().is_none() {
                return format!("{}: ", self.files[0].path.display());
            }
        }
    }

    /// Formats a serde error at the key path `at` with its location and the most similar key.
    fn fault(&self, at: &str, message: &str) -> String {
        let message = message.trim();
        let unknown = message
            .strip_prefix("unknown key `")
            .and_then(|rest| rest.split_once('`'))
            .map(|(name, rest)| (name.to_owned(), quoted(rest)));
        let at = if at == "." { "" } else { at };
        let Some((name, known)) = unknown else {
            // Many messages begin with the key.
            let has_key = message
                .strip_prefix(at)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
            let subject = if at.is_empty() || has_key { String::new() } else { format!("{at}: ") };
            return format!("{}{subject}{message}", self.place(at));
        };
        // The path does not always include the unknown key.
        let section = at.strip_suffix(&name).unwrap_or(at).trim_end_matches('.');
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        if let Some(meant) = published_name(section, &name, &known) {
            return format!(
                "{}unknown key '{}'; it is called '{meant}' here",
                self.place(&key),
                Shortened(&key)
            );
        }
        let hint = match nearest(&known, &name) {
            Some(nearest) => format!("did you mean '{nearest}'?"),
            None if known.is_empty() => "there are none".to_owned(),
            None => format!("there are: {}", known.join(", ")),
        };
        format!("{}unknown key '{}'; {hint}", self.place(&key), Shortened(&key))
    }
}

/// Returns the known name that `name` was probably meant to be.
pub fn nearest<'a>(known: &'a [String], name: &str) -> Option<&'a String> {
    // The case of a name, or its first word, is the smallest of mistakes.
    let is_same = |known: &&String| known.eq_ignore_ascii_case(name);
    let is_end = |known: &&String| known.strip_suffix(name).is_some_and(|rest| rest.ends_with('_'));
    let distance = |known: &String| strsim::damerau_levenshtein(known, name);
    let near = known.iter().find(is_same).or_else(|| {
        known.iter().min_by_key(|known| distance(known)).filter(|nearest| {
            2 * distance(nearest) <= name.len() || strsim::jaro_winkler(nearest, name) > 0.75
        })
    });
    near.or_else(|| known.iter().find(is_end))
}

/// Maximum number of files in an `extends` chain.
const MOST_FILES: usize = 32;

/// Maximum number of dot-separated parts in a `--set` key. The longest valid key has 4.
const MOST_PARTS: usize = 32;

/// The text of a configuration file.
struct Layer {
    path: PathBuf,
    /// Canonical path.
    real: PathBuf,
    text: String,
}

/// Parses the text of the file `path`.
fn parse_text(path: &Path, text: &str) -> anyhow::Result<Table> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        anyhow::anyhow!("{}:{line}: {}", path.display(), syntax_fault(text, &error))
    })
}

fn read_with_bases(path: &Path, files: &mut Vec<Layer>) -> anyhow::Result<Table> {
    if !path.exists() {
        bail!("configuration file {} does not exist{}", path.display(), example_hint(path));
    }
    refuse_folder(path)?;
    let text = regular_file::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))
        .map_err(|error| misread(path, None, error))?;
    let mut table = parse_text(path, &text).map_err(|error| misread(path, Some(&text), error))?;
    // Different paths to the same file would hide a cycle.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if files.iter().any(|file| file.real == real) {
        bail!("{}: extends itself", path.display());
    }
    if files.len() == MOST_FILES {
        bail!(
            "{}: the chain of `extends` is longer than {MOST_FILES} files; merge some of them",
            path.display()
        );
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

/// Returns an error for a folder in place of a configuration.
fn refuse_folder(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if path.join("run.json").is_file() && path.join("config.toml").is_file() {
        bail!(
            "{shown} is a run folder; expected a configuration file, such as its {shown}/config.toml"
        );
    }
    anyhow::ensure!(
        !path.is_dir(),
        "{shown} is a folder; expected a configuration file such as configs/molecules/grpo.toml"
    );
    Ok(())
}

/// Adds to the error of a file that is not a configuration what a configuration is, if the file's name is
/// that of data. The error of a text that cannot be a configuration is replaced, because its line would
/// not help.
fn misread(path: &Path, text: Option<&str>, error: anyhow::Error) -> anyhow::Error {
    const EXPECTED: &str =
        "expected a configuration file such as configs/molecules/grpo.toml, which names the data";
    let (_, ending) = FileOrigin::new(path);
    let is_in = |endings: &[&str]| endings.contains(&ending.as_str());
    let is_format = is_in(&["smi", "smiles", "csv", "tsv", "jsonl", "parquet", "sdf"]);
    // Texts and JSON files may be configurations that have the wrong ending.
    let may_be_either = is_in(&["txt", "json"]);
    let is_binary = || {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.any(|cause| cause.kind() == io::ErrorKind::InvalidData)
    };
    let is_data = match text {
        Some(text) => is_format || (may_be_either && !has_keys(text)),
        None => (is_format || may_be_either) && is_binary(),
    };
    if is_data {
        anyhow::anyhow!("{} holds data; {EXPECTED}", path.display())
    } else if may_be_either {
        anyhow::anyhow!("{error:#}; the ending .{ending} is that of data: {EXPECTED}")
    } else {
        error
    }
}

/// Returns whether a line of a text is a section or a key of a configuration.
fn has_keys(text: &str) -> bool {
    let is_key = |name: &str| {
        let name = name.trim();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    let is_section = |line: &str| {
        let name = line.strip_prefix('[').map(|rest| rest.trim_matches(['[', ']']));
        // A list of JSON may begin like a section.
        name.is_some_and(|name| is_key(name) && name.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    text.lines()
        .map(str::trim)
        .any(|line| is_section(line) || line.split_once('=').is_some_and(|(name, _)| is_key(name)))
}

/// Merges `over` into `under`. Tables are merged recursively, unless they have different types and
/// therefore different keys.
fn merge(under: &mut Table, over: Table) {
    let is_other = |under: &Table, over: &Table| match (under.get("type"), over.get("type")) {
        (Some(under), Some(over)) => under != over,
        _ => false,
    };
    for (key, value) in over {
        if key == "train"
            && let (Some(Value::Table(under)), Value::Table(over)) = (under.get_mut(&key), &value)
        {
            remove_other_length(under, over);
        }
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) if !is_other(under, &over) => {
                merge(under, over);
            }
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Removes `steps` if `over` sets `epochs`, and the reverse: the length of a run is that of the last
/// layer that sets one.
fn remove_other_length(under: &mut Table, over: &Table) {
    if over.contains_key("steps") {
        under.remove("epochs");
    }
    if over.contains_key("epochs") {
        under.remove("steps");
    }
}

/// Parses `train.steps=50` into (`train.steps`, 50). Values that are not valid TOML are strings.
fn parse_set(pair: &str) -> anyhow::Result<(String, Value)> {
    let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        bail!("--set {}: expected KEY=VALUE, as in --set train.steps=50", Shortened(pair));
    };
    if key.split('.').any(|part| part.trim().is_empty()) {
        bail!(
            "--set {}: a part of the key is empty; expected KEY=VALUE, as in --set train.steps=50",
            Shortened(pair)
        );
    }
    let parts = key.split('.').count();
    if parts > MOST_PARTS {
        let key = Shortened(key);
        bail!(
            "--set {key}: the key has {parts} parts; expected at most {MOST_PARTS}, as in train.steps"
        );
    }
    let value = value.trim();
    let parsed = toml::from_str::<Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut table| if table.len() == 1 { table.remove("value") } else { None });
    let digits = value.trim_start_matches(['+', '-']);
    if parsed.is_none() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!(
            "--set {}: the number has too many digits; expected at most {}",
            Shortened(pair),
            i64::MAX
        );
    }
    Ok((key.trim().to_owned(), parsed.unwrap_or_else(|| Value::String(value.to_owned()))))
}

/// Returns whether one of the `KEY=VALUE` pairs sets `key`, either directly or as part of a table.
pub fn is_set(set: &[String], key: &str) -> bool {
    set.iter().filter_map(|pair| parse_set(pair).ok()).any(|(given, value)| {
        let table = Value::Table(nested(&given, value));
        key.split('.').try_fold(&table, |value, part| value.get(part)).is_some()
    })
}

fn nested(key: &str, value: Value) -> Table {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = if rest.is_empty() { value } else { Value::Table(nested(rest, value)) };
    Table::from_iter([(first.to_owned(), value)])
}

/// Returns the substrings enclosed in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn line_of_key(text: &str, parts: &[&str]) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let (last, above) = parts.split_last()?;
    for part in above {
        // `guards[1]` is a table inside a list.
        let (name, place) = indexed(part);
        let value = table.get(name)?.get_ref();
        let value = match place {
            Some(place) => value.as_array()?.get(place)?.get_ref(),
            None => value,
        };
        table = value.as_table()?;
    }
    let (name, place) = indexed(last);
    let (key, value) = table.get_key_value(name)?;
    let item = place.and_then(|place| value.get_ref().as_array()?.get(place));
    Some(line_of(text, item.map_or(key.span(), |item| item.span()).start))
}

/// Splits `guards[1]` into `guards` and 1.
fn indexed(part: &str) -> (&str, Option<usize>) {
    let item = part.strip_suffix(']').and_then(|part| part.split_once('['));
    match item.and_then(|(name, place)| Some((name, place.parse().ok()?))) {
        Some((name, place)) => (name, Some(place)),
        None => (part, None),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_once() {
        let path = Path::new("train.toml");
        let origin = of_text(path, "[filter]\nbucket = \"foo\"\n".to_owned()).unwrap().origin;
        let said = |key: &str, message: &str| {
            origin.misread(&ConfigFault::from_sentence(key, message)).to_string()
        };
        for (key, message, expected) in [
            ("filter.bucket", "filter.bucket = \"foo\" is unknown", ""),
            ("filter.bucket", "filter.bucket must be a text", ""),
            ("filter", "filter.bucket = \"foo\" is unknown", ""),
            ("filter.bucket", "unknown value `foo`", "filter.bucket: "),
            ("filter.bucket", "filter.bucket_size is 0", "filter.bucket: "),
        ] {
            let line = if key == "filter" { 1 } else { 2 };
            let expected = format!("train.toml:{line}: {expected}{message}");
            assert_eq!(said(key, message), expected);
        }
    }

    #[test]
    fn a_syntax_error_is_kept_whatever_the_ending_of_the_file() {
        let place = tempfile::tempdir().unwrap();
        let refusal = |name: &str, text: &[u8]| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            let error = load::<Table>(&path, &[]).err().unwrap();
            format!("{error:#}").replace(&place.path().display().to_string(), "HERE")
        };
        let hint = "expected a configuration file such as configs/molecules/grpo.toml, which names the data";
        let toml = b"run = \"run\"\n[train]\nsteps =\n";
        let missing = "there is no value; write a number";
        for (name, end) in [
            ("train.toml.txt", format!("; the ending .txt is that of data: {hint}")),
            ("train.json", format!("; the ending .json is that of data: {hint}")),
        ] {
            let said = refusal(name, toml);
            assert!(said.starts_with(&format!("HERE/{name}:3: ")), "{said}");
            assert!(said.contains(missing) && said.ends_with(&end), "{said}");
        }
        let said = refusal("train.toml", toml);
        assert!(said.starts_with("HERE/train.toml:3: ") && !said.contains(hint), "{said}");
        for (name, text) in [
            ("a.txt", &b"The quick brown fox.\n"[..]),
            ("a.json", b"{\"prompt\": \"a = b\"}\n"),
            ("a.json", b"[1, 2]\n"),
            ("a.smi", b"CC=O\nC\n"),
            ("a.parquet", &[0xff, 0xfe, 0]),
        ] {
            assert_eq!(refusal(name, text), format!("HERE/{name} holds data; {hint}"));
        }
    }
}

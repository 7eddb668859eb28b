//! The configuration under construction, and the report on how each key was handled.

use std::collections::BTreeSet;

use serde::Serialize;
use toml::Value;

use super::defaults::default_of;
use super::source::{Given, described};

/// A key of the configuration.
pub(super) struct Entry {
    /// Key with its section, such as `train.steps`.
    pub(super) key: &'static str,
    pub(super) value: Value,
    /// Where the value comes from, for a comment.
    pub(super) from: String,
}

/// Formats a value as TOML, with small numbers as `1e-6`.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Float(number) if number.is_finite() => format!("{number:?}"),
        value => value.to_string(),
    }
}

/// How each key was handled.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// Keys that were converted.
    pub(super) taken: Vec<Taken>,
    /// Keys not set in the file whose TRL default differs from ours.
    pub(super) other_defaults: Vec<OtherDefault>,
    /// Keys without a counterpart.
    pub(super) without_counterpart: Vec<Without>,
    /// What remains to be done before the first run.
    pub(super) to_do: Vec<String>,
}

/// TRL keys that were converted to one of ours.
#[derive(Debug, Serialize)]
pub(super) struct Taken {
    pub(super) trl: String,
    pub(super) value: String,
    /// Our key and its value, or `None` if our default is the same.
    pub(super) here: Option<String>,
    pub(super) note: String,
}

/// A TRL default that differs from ours.
#[derive(Debug, Serialize)]
pub(super) struct OtherDefault {
    pub(super) trl: String,
    pub(super) default_of_trl: String,
    pub(super) default_here: String,
    /// The key that was written to keep TRL's default, if any.
    pub(super) written: Option<String>,
    pub(super) note: String,
}

/// TRL keys without a counterpart.
#[derive(Debug, Serialize)]
pub(super) struct Without {
    pub(super) trl: Vec<String>,
    /// The value, if there is a single key.
    pub(super) value: String,
    /// Whether training differs because of this.
    pub(super) changes_training: bool,
    pub(super) remedy: String,
}

/// The configuration under construction.
pub(super) struct Draft<'a> {
    pub(super) given: &'a Given,
    pub(super) entries: Vec<Entry>,
    pub(super) report: Report,
    /// TRL keys that are already in the report.
    mentioned: BTreeSet<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(given: &'a Given) -> Self {
        let (entries, mentioned) = (Vec::new(), BTreeSet::new());
        Self { given, entries, report: Report::default(), mentioned }
    }

    /// Sets one of our keys from TRL keys. If the file sets none of them, the value is TRL's
    /// default, and the key is written only if our default differs.
    pub(super) fn set(
        &mut self,
        trl: &[&str],
        here: &'static str,
        value: impl Into<Value>,
        note: impl Into<String>,
    ) {
        self.set_over(default_of(here), trl, here, value.into(), note.into());
    }

    /// Like [`Self::set`], but for a key whose default depends on other keys.
    pub(super) fn set_over(
        &mut self,
        default: Option<Value>,
        trl: &[&str],
        here: &'static str,
        value: Value,
        note: String,
    ) {
        let given = self.mention(trl);
        let written = format!("{here} = {}", shown(&value));
        let from = if given.is_empty() {
            if default.as_ref() == Some(&value) {
                return;
            }
            self.report.other_defaults.push(OtherDefault {
                trl: trl.join(", "),
                default_of_trl: shown(&value),
                default_here: default.map_or_else(|| "–".to_owned(), |value| shown(&value)),
                written: Some(written),
                note,
            });
            format!("TRL's default of {}", trl.join(", "))
        } else {
            let from = given.join(", ");
            self.report.taken.push(Taken {
                value: self.values(&given),
                trl: from.clone(),
                here: Some(written),
                note,
            });
            from
        };
        self.entries.push(Entry { key: here, value, from });
    }

    /// Sets a key that no TRL key determines. `comment` describes the value.
    pub(super) fn placeholder(
        &mut self,
        here: &'static str,
        value: impl Into<Value>,
        comment: &str,
    ) {
        self.entries.push(Entry { key: here, value: value.into(), from: comment.to_owned() });
    }

    /// Reports keys that need no counterpart because grpo already behaves this way. Keys that are
    /// already in the report are ignored.
    pub(super) fn same(&mut self, trl: &[&str], note: impl Into<String>) {
        let new: Vec<&str> = trl.iter().copied().filter(|key| !self.is_mentioned(key)).collect();
        let given = self.mention(&new);
        if !given.is_empty() {
            let (value, trl) = (self.values(&given), given.join(", "));
            self.report.taken.push(Taken { trl, value, here: None, note: note.into() });
        }
    }

    /// Reports a default that differs, without writing a key.
    pub(super) fn point_out(&mut self, trl: &str, theirs: &str, ours: &str, note: &str) {
        self.report.other_defaults.push(OtherDefault {
            trl: trl.to_owned(),
            default_of_trl: theirs.to_owned(),
            default_here: ours.to_owned(),
            written: None,
            note: note.to_owned(),
        });
    }

    /// Reports the keys that the file sets as keys without a counterpart.
    pub(super) fn without(&mut self, trl: &[&str], changes_training: bool, remedy: &str) {
        let given = self.mention(trl);
        if given.is_empty() {
            return;
        }
        let value = match given.as_slice() {
            [key] => self.given.get(key).map(described).unwrap_or_default(),
            _ => String::new(),
        };
        let remedy = remedy.to_owned();
        self.report.without_counterpart.push(Without {
            trl: given,
            value,
            changes_training,
            remedy,
        });
    }

    /// Reports a key that TRL does not have, even if it has no value.
    pub(super) fn unknown(&mut self, key: &str, remedy: &str) {
        let value = self.given.get(key).map(described).unwrap_or_default();
        let (trl, remedy) = (vec![key.to_owned()], remedy.to_owned());
        let without = Without { trl, value, changes_training: true, remedy };
        self.report.without_counterpart.push(without);
    }

    /// Adds something to do before the first run.
    pub(super) fn remind(&mut self, sentence: impl Into<String>) {
        self.report.to_do.push(sentence.into());
    }

    /// Returns the text of one of our keys, if it is set.
    pub(super) fn text_of(&self, here: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.key == here)?.value.as_str()
    }

    /// Returns whether a TRL key is in the report.
    pub(super) fn is_mentioned(&self, key: &str) -> bool {
        self.mentioned.contains(key)
    }

    /// Marks the keys as reported and returns those that the file sets.
    fn mention(&mut self, trl: &[&str]) -> Vec<String> {
        self.mentioned.extend(trl.iter().map(|key| (*key).to_owned()));
        trl.iter().filter(|key| self.given.has(key)).map(|key| (*key).to_owned()).collect()
    }

    fn values(&self, keys: &[String]) -> String {
        let values = keys.iter().filter_map(|key| self.given.get(key)).map(described);
        values.collect::<Vec<_>>().join(", ")
    }
}

//! Reads completions from Parquet. Equivalent column types written by other programs are accepted.

use super::record::{CompletionRecord, RecordedOutcome};
use super::table::{
    BONUS, IDS, INFO, OUTCOMES, OUTCOMES_BEFORE, PART, PROMPT_IDS, SAMPLED, TOKENS, finish_name,
    required_columns,
};
use crate::RunError;
use grpo_data::{Finish, ParquetFault, ParquetFile};
use parquet::record::Field;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Reads the records of an open file. All of them must belong to `step`.
pub(super) fn records(
    path: &Path,
    file: File,
    step: u64,
) -> Result<Vec<CompletionRecord>, RunError> {
    rows(file, step).map_err(|fault| match fault {
        ParquetFault::Content(reason) => damaged(path, reason),
        ParquetFault::System(source) => RunError::read(path)(source),
    })
}

fn rows(file: File, step: u64) -> Result<Vec<CompletionRecord>, ParquetFault> {
    let rows = ParquetFile::new(file)?;
    let contains = |column: &str| rows.columns().any(|name| name == column);
    let has = |column: &str| contains(column) || (column == OUTCOMES && contains(OUTCOMES_BEFORE));
    if let Some(missing) = required_columns().find(|column| !has(column)) {
        return Err(format!("missing column `{missing}`").into());
    }
    let mut records = Vec::new();
    for (place, row) in rows.enumerate() {
        let row = row?;
        let cells = row.get_column_iter().map(|(name, field)| (name.as_str(), field)).collect();
        let cells = Cells(cells);
        let fault = |fault: String| format!("{fault} in row {}", place + 1);
        let record = cells.record().map_err(fault)?;
        record.check(step).map_err(fault)?;
        records.push(record);
    }
    Ok(records)
}

/// The cells of a row, by column name.
struct Cells<'a>(BTreeMap<&'a str, &'a Field>);

impl Cells<'_> {
    fn record(&self) -> Result<CompletionRecord, String> {
        let finishes = [Finish::EndToken, Finish::Stop, Finish::Length, Finish::Filled];
        let mut parts = BTreeMap::new();
        for name in self.0.keys().filter_map(|name| name.strip_prefix(PART)) {
            let value = self.number(&format!("{PART}{name}"))?;
            parts.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(CompletionRecord {
            step: self.whole("step")?,
            prompt: self.whole("prompt")?,
            prompt_text: self.text("prompt_text")?,
            prompt_ids: match self.0.contains_key(PROMPT_IDS) {
                true => self.list(PROMPT_IDS, "whole numbers", whole)?,
                false => Vec::new(),
            },
            sample: self.whole("sample")?,
            text: self.present("text", self.text("text")?)?,
            reward: self.number("reward")?,
            bonus: self.number(BONUS)?,
            outcome: self.one_of("outcome", &RecordedOutcome::ALL, RecordedOutcome::name)?,
            reason: self.text("reason")?,
            info: self.text(INFO)?,
            parts,
            advantage: self.present("advantage", self.number("advantage")?)?,
            actions: self.whole("actions")?,
            finish: self.one_of("finish", &finishes, finish_name)?,
            policy_version: self.whole("policy_version")?,
            completion_ids: self.list(IDS, "whole numbers", whole)?,
            sampling_logprobs: self.floats(SAMPLED)?,
            tokens: {
                let names = TOKENS.into_iter().chain(self.further_tokens());
                let columns = names.map(|name| Ok((name.to_owned(), self.floats(name)?)));
                columns.collect::<Result<Vec<_>, String>>()?.into_iter().collect()
            },
            outcomes: {
                let is_new = self.0.contains_key(OUTCOMES);
                self.list(if is_new { OUTCOMES } else { OUTCOMES_BEFORE }, "words", text)?
            },
        })
    }

    /// Returns the names of further columns with a number per token.
    fn further_tokens(&self) -> impl Iterator<Item = &str> {
        let is_number = |field: &Field| matches!(field, Field::Float(_) | Field::Double(_));
        let is_further = move |(name, field): (&&str, &&Field)| match field {
            Field::ListInternal(list) => {
                *name != SAMPLED
                    && !TOKENS.contains(name)
                    && !list.elements().is_empty()
                    && list.elements().iter().all(is_number)
            }
            _ => false,
        };
        self.0.iter().filter(move |&(name, field)| is_further((name, field))).map(|(name, _)| *name)
    }

    fn cell(&self, name: &str) -> &Field {
        self.0.get(name).copied().unwrap_or(&Field::Null)
    }

    fn present<T>(&self, name: &str, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("`{name}` is empty"))
    }

    fn whole<T: TryFrom<i64>>(&self, name: &str) -> Result<T, String> {
        whole(self.cell(name))
            .ok_or_else(|| format!("`{name}` is not an integer within the allowed range"))
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        match self.cell(name) {
            Field::Null => Ok(None),
            Field::Double(value) => Ok(Some(*value)),
            Field::Float(value) => Ok(Some(f64::from(*value))),
            _ => Err(format!("`{name}` is not a number")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.cell(name) {
            Field::Null => Ok(None),
            field => text(field).map(Some).ok_or_else(|| format!("`{name}` is not a string")),
        }
    }

    fn one_of<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        name_of: fn(T) -> &'static str,
    ) -> Result<T, String> {
        let text = self.present(name, self.text(name)?)?;
        let found = all.iter().copied().find(|one| name_of(*one) == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|one| name_of(*one)).collect();
            format!("`{name}` is `{text}`; expected one of {}", names.join(", "))
        })
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, String> {
        self.list(name, "numbers", |field| match field {
            Field::Float(value) => Some(*value),
            Field::Double(value) => Some(*value as f32),
            _ => None,
        })
    }

    fn list<T>(
        &self,
        name: &str,
        what: &str,
        of: impl Fn(&Field) -> Option<T>,
    ) -> Result<Vec<T>, String> {
        let values = match self.cell(name) {
            Field::ListInternal(list) => list.elements().iter().map(of).collect(),
            _ => None,
        };
        values.ok_or_else(|| format!("`{name}` is not a list of {what}"))
    }
}

fn whole<T: TryFrom<i64>>(field: &Field) -> Option<T> {
    let value = match field {
        Field::Int(value) => i64::from(*value),
        Field::Long(value) => *value,
        Field::UInt(value) => i64::from(*value),
        _ => return None,
    };
    T::try_from(value).ok()
}

fn text(field: &Field) -> Option<String> {
    match field {
        Field::Str(text) => Some(text.clone()),
        _ => None,
    }
}

impl CompletionRecord {
    /// Checks that the values in the columns are consistent.
    fn check(&self, step: u64) -> Result<(), String> {
        if self.step != step {
            return Err(format!("`step` is {}, which differs from the file name", self.step));
        }
        let is_scored = self.outcome == RecordedOutcome::Scored;
        if self.reward.is_some() != is_scored {
            return Err("`reward` does not match `outcome`".to_owned());
        }
        if self.reason.is_some() != (self.outcome == RecordedOutcome::Failed) {
            return Err("`reason` does not match `outcome`".to_owned());
        }
        let lengths = [(IDS, self.completion_ids.len()), (SAMPLED, self.sampling_logprobs.len())];
        let of_tokens = self.tokens.iter().map(|(name, values)| (name, values.len()));
        let outcomes = (OUTCOMES, self.outcomes.len());
        for (name, length) in lengths.into_iter().chain(of_tokens).chain([outcomes]) {
            if length != self.actions as usize {
                return Err(format!(
                    "`{name}` has {length} entries, but `actions` is {}",
                    self.actions
                ));
            }
        }
        Ok(())
    }
}

/// Creates the error for an invalid completions file.
fn damaged(path: &Path, reason: impl Into<String>) -> RunError {
    RunError::BadCompletions { path: path.to_owned(), reason: reason.into() }
}

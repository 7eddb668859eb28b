//! Parses and validates test cases.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::SelftestError;
use grpo_oracle::Rows;

/// A problem with a case: the key and a message.
pub(super) type Problem = (&'static str, String);

/// Reads all cases in a file. Each case is parsed as `Raw` and then converted by `check`, which
/// also receives the whole file.
pub(super) fn cases<Raw: DeserializeOwned, Case>(
    text: &str,
    file: &str,
    check: impl Fn(Raw, &Value) -> Result<Case, Problem>,
) -> Result<Vec<Case>, SelftestError> {
    let whole: Value =
        serde_json::from_str(text).map_err(|error| SelftestError::json(file, &error))?;
    let found = match whole.get("cases") {
        Some(Value::Array(cases)) if !cases.is_empty() => Ok(cases),
        Some(Value::Array(_)) => Err("an empty list"),
        Some(_) => Err("something else"),
        None => Err("nothing"),
    };
    let found = found.map_err(|found| {
        SelftestError::Golden(format!(
            "`{file}` has {found} under the key `cases`; expected a list of at least one case"
        ))
    })?;
    let one = |(case, value): (usize, &Value)| {
        let wrong = |key: String, problem: String| {
            SelftestError::Golden(format!("`{file}`, case {case}, key `{key}`: {problem}"))
        };
        let raw: Raw = serde_path_to_error::deserialize(value)
            .map_err(|error| named(&error.path().to_string(), error.inner().to_string()))
            .map_err(|(key, problem)| wrong(key, problem))?;
        check(raw, &whole).map_err(|(key, problem)| wrong(key.to_owned(), problem))
    };
    found.iter().enumerate().map(one).collect()
}

/// Returns the key that caused a problem. If a key is missing, its full path is returned.
fn named(path: &str, problem: String) -> (String, String) {
    let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match (path, missing) {
        (".", Some(key)) => (key.to_owned(), "missing".to_owned()),
        (path, Some(key)) => (format!("{path}.{key}"), "missing".to_owned()),
        (path, None) => (path.to_owned(), problem),
    }
}

/// Checks that rows have the shape `[b][t]`.
pub(super) fn check_shape(
    key: &'static str,
    rows: &[Vec<impl Copy>],
    [b, t]: [usize; 2],
) -> Result<(), Problem> {
    if rows.len() != b {
        return Err((key, format!("{} rows, expected {b}", rows.len())));
    }
    match rows.iter().position(|row| row.len() != t) {
        Some(row) => Err((key, format!("row {row} has {} numbers, expected {t}", rows[row].len()))),
        None => Ok(()),
    }
}

/// Checks that a list has `expected` values.
pub(super) fn check_length<T>(
    key: &'static str,
    list: &[T],
    expected: usize,
) -> Result<(), Problem> {
    if list.len() == expected {
        return Ok(());
    }
    Err((key, format!("{} values, expected {expected}", list.len())))
}

/// Converts a mask of 0 and 1 to booleans.
pub(super) fn mask_of(key: &'static str, rows: &Rows) -> Result<Vec<Vec<bool>>, Problem> {
    let truth = |value: &f64| match *value {
        0.0 => Ok(false),
        1.0 => Ok(true),
        other => Err((key, format!("{other} in a mask, expected 0 or 1"))),
    };
    rows.iter().map(|row| row.iter().map(truth).collect()).collect()
}

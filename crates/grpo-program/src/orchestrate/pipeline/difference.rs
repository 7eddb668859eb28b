//! Compares a configuration with the one recorded by a run.

use toml::Value;

/// Describes the first key whose values differ. `recorded` contains all keys, including defaults.
/// Keys that exist in only one of the tables are ignored.
pub(super) fn first_difference(
    now: &toml::Table,
    recorded: &toml::Table,
    path: &str,
) -> Option<String> {
    now.iter().find_map(|(key, value)| {
        let path = format!("{path}{key}");
        let recorded = recorded.get(key)?;
        match (value, recorded) {
            (Value::Table(value), Value::Table(recorded)) => {
                first_difference(value, recorded, &format!("{path}."))
            }
            _ if is_equal(value, recorded) => None,
            _ => Some(format!("{path} is now {value}, but was {recorded}")),
        }
    })
}

/// Compares two values. Numbers are compared numerically because 32-bit floats are written with
/// fewer digits. Tables inside lists may omit defaults.
fn is_equal(now: &Value, recorded: &Value) -> bool {
    use Value::{Array, Float, Integer, Table};
    let number = |value: &Value| match value {
        Integer(value) => Some(*value as f64),
        Float(value) => Some(*value),
        _ => None,
    };
    match (now, recorded) {
        (Array(now), Array(recorded)) => {
            now.len() == recorded.len()
                && now.iter().zip(recorded).all(|(now, recorded)| is_equal(now, recorded))
        }
        (Table(now), Table(recorded)) => first_difference(now, recorded, "").is_none(),
        _ => match (number(now), number(recorded)) {
            (Some(now), Some(recorded)) => (now - recorded).abs() <= 1e-6 * now.abs(),
            _ => now == recorded,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_an_edited_key() {
        let run = "seed = 42\nrun = \"a\"\n[masked_lm]\nsteps = 20\nrate = 0.8\nfloor = 0.05\n[[masking.stages]]\ntype = \"random\"\nmax_ratio = 0.9\nmore = false\n";
        let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        let check = |now: &str, expected: Option<&str>| {
            let found = first_difference(&table(now), &table(run), "");
            assert_eq!(found.as_deref(), expected, "{now}");
        };
        check("seed = 42\n[masked_lm]\nsteps = 20\nrate = 0.80000001", None);
        check("seed = 42.0\n[preset]\nname = 3\n[masked_lm]\nfloor = 0.05", None);
        check("seed = 43", Some("seed is now 43, but was 42"));
        check("run = \"b\"", Some("run is now \"b\", but was \"a\""));
        check(
            "[masked_lm]\nsteps = 20\nfloor = 0.06",
            Some("masked_lm.floor is now 0.06, but was 0.05"),
        );
        check("masking.stages = [{ type = \"random\", max_ratio = 0.9 }]", None);
        for stages in ["[{ type = \"span\" }]", "[{ max_ratio = 0.8 }]", "[]", "[{}, {}]"] {
            let now = table(&format!("masking.stages = {stages}"));
            assert!(first_difference(&now, &table(run), "").is_some(), "{stages}");
        }
    }
}

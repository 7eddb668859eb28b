//! The combinations of values and the seeds of a sweep.

use anyhow::{Context, bail, ensure};
use toml::Table;

/// Maximum number of runs of a sweep.
pub(super) const MAX_RUNS: usize = 1000;
/// Maximum number of seeds that are counted. A larger number was probably meant as a seed.
const MAX_COUNT: u64 = 20;
/// Maximum length of a combination's name in characters.
const MAX_NAME: usize = 100;
/// Seed of the first run if the configuration has none.
const SEED: u64 = 42;

/// A combination of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Variant {
    /// Unique name, which is also that of a folder.
    pub(super) name: String,
    /// `KEY=VALUE` pairs.
    pub(super) set: Vec<String>,
}

/// Parses `--seeds`.
pub(super) fn seeds(text: &str, keys: &Table) -> anyhow::Result<Vec<u64>> {
    let wrong = || {
        format!(
            "--seeds {text}: expected a number of seeds, e.g. 3, or seeds separated by commas, e.g. 42,123,456"
        )
    };
    let is_list = text.contains(',');
    let words = text.strip_suffix(',').unwrap_or(text);
    let numbers: Result<Vec<u64>, _> = words.split(',').map(|word| word.trim().parse()).collect();
    let numbers = numbers.with_context(wrong)?;
    if let ([count], false) = (&numbers[..], is_list) {
        let count = *count;
        ensure!(count > 0, wrong());
        ensure!(
            count <= MAX_COUNT,
            "--seeds {count} would train {count} runs of each combination; write `--seeds {count},` for the seed {count}"
        );
        let first = keys.get("seed").and_then(toml::Value::as_integer);
        let first = first.and_then(|seed| u64::try_from(seed).ok()).unwrap_or(SEED);
        return Ok((0..count).map(|index| first.wrapping_add(index)).collect());
    }
    let is_double = |(index, seed): (usize, &u64)| numbers[..index].contains(seed);
    ensure!(!numbers.iter().enumerate().any(is_double), "--seeds {text} lists a seed twice");
    Ok(numbers)
}

/// Returns all combinations of the values of `--set`, at most `most`.
pub(super) fn variants(set: &[String], most: usize) -> anyhow::Result<Vec<Variant>> {
    let mut variants = vec![Variant::default()];
    let key_of = |text: &String| text.split('=').next().unwrap_or_default().trim().to_owned();
    let last_of = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    for text in set {
        let (key, values) = text.split_once('=').with_context(|| {
            format!("--set {text}: expected KEY=VALUES, e.g. loss.kl_coef=0.01,0.1")
        })?;
        let values = listed(values);
        ensure!(values.iter().all(|value| !value.is_empty()), "--set {text} has an empty value");
        let parsed: Vec<toml::Value> = values.iter().map(|value| value_of(value)).collect();
        let double = (1..values.len()).find(|index| parsed[..*index].contains(&parsed[*index]));
        if let Some(index) = double {
            bail!("--set {text} lists the value {} twice; remove one", values[index]);
        }
        ensure!(
            set.iter().filter(|other| key_of(other) == key.trim()).count() == 1,
            "--set {} is given twice; list all its values in one, separated by commas",
            key.trim()
        );
        ensure!(
            !["run", "seed"].contains(&key.trim()),
            "--set {key}: the sweep sets it itself; use {}",
            if key.trim() == "run" { "-o" } else { "--seeds" }
        );
        ensure!(
            variants.len() * values.len() <= most,
            "the sweep has more than {MAX_RUNS} runs; use fewer values or seeds"
        );
        // The last part of the key names a folder, if no other key ends like it.
        let last = last_of(key.trim());
        let is_same = |other: &&String| last_of(&key_of(other)) == last;
        let name_of_key =
            if set.iter().filter(is_same).count() > 1 { key.trim() } else { last.as_str() };
        let with = |variant: &Variant, quoted: &str| {
            let plain =
                |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
            let value = quoted.trim_matches(['"', '\'']);
            let own: String = format!("{name_of_key}-{value}").chars().map(plain).collect();
            let name = match values.len() {
                1 => variant.name.clone(),
                _ if variant.name.is_empty() => own,
                _ => format!("{}+{own}", variant.name),
            };
            let name: String = name.chars().take(MAX_NAME).collect();
            let name = name.trim_end_matches('.').to_owned();
            let pair = format!("{key}={quoted}");
            Variant { name, set: variant.set.iter().cloned().chain([pair]).collect() }
        };
        variants = variants
            .iter()
            .flat_map(|variant| values.iter().map(|value| with(variant, value)).collect::<Vec<_>>())
            .collect();
    }
    for index in 0..variants.len() {
        if variants[index].name.is_empty() {
            variants[index].name = "baseline".to_owned();
        }
        ensure!(
            variants[..index]
                .iter()
                .all(|other| !other.name.eq_ignore_ascii_case(&variants[index].name)),
            "two combinations are named {}; change a value: names of folders keep only letters, digits, `.`, `_` and `-`",
            variants[index].name
        );
    }
    Ok(variants)
}

/// Returns the value that a run gets: TOML, or otherwise a text.
fn value_of(text: &str) -> toml::Value {
    let parsed = format!("value = {text}").parse::<Table>().ok();
    let value = parsed.and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

/// Splits values at commas outside of brackets and quotes.
fn listed(values: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut depth, mut quote) = (0_i32, None);
    for letter in values.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        all.last_mut().expect("the list is never empty").push(letter);
    }
    all.into_iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(set: &[&str]) -> Vec<String> {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let all = variants(&set, 100).unwrap().into_iter();
        all.map(|of| format!("{}: {}", of.name, of.set.join(" "))).collect()
    }

    #[test]
    fn all_combinations_are_trained() {
        assert_eq!(named(&[]), ["baseline: "]);
        assert_eq!(named(&["a.b=1"]), ["baseline: a.b=1"]);
        assert_eq!(
            named(&["a.b=1,2", "c=x", "d=[1,2],\"e,f\""]),
            [
                "b-1+d-_1_2_: a.b=1 c=x d=[1,2]",
                "b-1+d-e_f: a.b=1 c=x d=\"e,f\"",
                "b-2+d-_1_2_: a.b=2 c=x d=[1,2]",
                "b-2+d-e_f: a.b=2 c=x d=\"e,f\"",
            ]
        );
        let fault = |set: &str| variants(&[set.to_owned()], 3).unwrap_err().to_string();
        assert_eq!(fault("a=1,"), "--set a=1, has an empty value");
        assert_eq!(fault("seed=1,2"), "--set seed: the sweep sets it itself; use --seeds");
        for (set, value) in [("a=0.1,0.1", "0.1"), ("a=1,0.1,0.10", "0.10"), ("a=x,\"x\"", "\"x\"")]
        {
            let expected = format!("--set {set} lists the value {value} twice; remove one");
            assert_eq!(fault(set), expected);
        }
        let twice = ["a=1,2".to_owned(), "a=3".to_owned()];
        assert_eq!(
            variants(&twice, 9).unwrap_err().to_string(),
            "--set a is given twice; list all its values in one, separated by commas"
        );
        assert!(fault("a=x,X").starts_with("two combinations are named a-"));
        assert!(fault("a=1,2,3,4").starts_with("the sweep has more than 1000 runs"));
        assert_eq!(named(&["a.x=1,2", "b.x=3"]), ["a.x-1: a.x=1 b.x=3", "a.x-2: a.x=2 b.x=3"]);
    }

    #[test]
    fn seeds_are_counted_or_listed() {
        let keys: Table = toml::from_str("seed = 7").unwrap();
        assert_eq!(seeds("3", &keys).unwrap(), [7, 8, 9]);
        assert_eq!(seeds("2", &Table::new()).unwrap(), [42, 43]);
        assert_eq!(seeds("42, 5", &keys).unwrap(), [42, 5]);
        assert_eq!(seeds("42,", &keys).unwrap(), [42]);
        for wrong in ["0", "x", "1,1", "", "-1", "42", ","] {
            assert!(seeds(wrong, &keys).is_err(), "{wrong}");
        }
    }
}

//! Whether a stage's run has the reward that the stage's configuration names.

use toml::{Table, Value};

/// Keys that name what an external reward runs, and their defaults.
const KEYS: [(&str, Option<&str>); 5] = [
    ("command", None),
    ("file", None),
    ("function", Some("reward")),
    ("interpreter", Some("python3")),
    ("url", None),
];

/// Returns whether two configurations name the same external rewards, and at least one.
pub(super) fn has_same_reward(now: &Table, recorded: &Table) -> bool {
    let of = |table: &Table| table.get("reward").map_or_else(Vec::new, named);
    let (now, recorded) = (of(now), of(recorded));
    !now.is_empty() && now == recorded
}

/// Returns the values of all keys in a reward and its parts that name what it runs.
fn named(value: &Value) -> Vec<(&'static str, String)> {
    match value {
        Value::Array(items) => items.iter().flat_map(named).collect(),
        Value::Table(table) => {
            let kind = table.get("type").and_then(Value::as_str);
            let is_external =
                kind.is_some_and(|kind| ["command", "http", "python"].contains(&kind));
            let own = KEYS.iter().filter(|_| is_external).filter_map(|(key, default)| {
                let value = table.get(*key)?;
                (value.as_str().is_none() || value.as_str() != *default)
                    .then(|| (*key, value.to_string()))
            });
            // Nested rewards have their own tables; the order of the other keys does not matter.
            let mut nested: Vec<(&String, &Value)> = table.iter().collect();
            nested.sort_by_key(|(key, _)| *key);
            own.chain(nested.into_iter().flat_map(|(_, value)| named(value))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_of_stages_and_of_their_runs() {
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        let own = "[reward]\ntype = 'python'\nfile = 'r.py'\n";
        let resolved = "[reward]\nbatch_size = 64\ninterpreter = 'python3'\nfile = 'r.py'\nfunction = 'reward'\ntype = 'python'\n";
        let part = "[reward]\ntype = 'composite'\nparts = [{name = 'a', reward = {type = 'command', command = ['a', 'b']}}]\n";
        for (now, recorded, expected) in [
            (own, own, true),
            (own, resolved, true),
            (part, part, true),
            (own, "[reward]\ntype = 'python'\nfile = 'other.py'\n", false),
            (own, "[reward]\ntype = 'python'\nfile = 'r.py'\ninterpreter = './evil'\n", false),
            (own, "[reward]\ntype = 'command'\ncommand = ['r.py']\n", false),
            (
                part,
                "[reward]\ntype = 'composite'\nparts = [{reward = {type = 'command', command = ['a']}}]\n",
                false,
            ),
            ("[reward]\ntype = 'molecule'\n", own, false),
            ("", own, false),
            ("", "", false),
        ] {
            assert_eq!(has_same_reward(&table(now), &table(recorded)), expected, "{now}{recorded}");
        }
    }
}

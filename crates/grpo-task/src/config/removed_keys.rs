//! Keys that configurations of earlier versions have.

use anyhow::bail;
use toml::{Table, Value};

use super::Origin;

/// A key that was removed (docs/decisions/0051).
struct RemovedKey {
    key: &'static str,
    /// The only value that runs can still be repeated with. `None` if the key never changed a result.
    value: Option<f64>,
    /// What the program does now.
    now: &'static str,
}

const REMOVED: [RemovedKey; 5] = [
    RemovedKey {
        key: "train.reuse_activations_mb",
        value: None,
        now: "the memory that is left is used",
    },
    RemovedKey {
        key: "sampler_check.tolerance",
        value: Some(1e-3),
        now: "it is 0.001; sampler_check.above = \"correct\" admits larger differences",
    },
    RemovedKey { key: "kl_controller.min", value: Some(1e-5), now: "it is 0.00001" },
    RemovedKey { key: "kl_controller.max", value: Some(10.0), now: "it is 10" },
    RemovedKey {
        key: "replay.warmup_steps",
        value: Some(0.0),
        now: "the first step replays as many as the others",
    },
];

impl RemovedKey {
    /// Returns the table that contains the key, and its name there.
    fn table<'a>(&self, keys: &'a mut Table) -> Option<(&'a mut Table, &'static str)> {
        let (section, name) = self.key.split_once('.')?;
        let table = keys.get_mut(section)?.as_table_mut()?;
        table.contains_key(name).then_some((table, name))
    }

    /// Returns whether a run with this value can be repeated without the key.
    fn is_repeatable(&self, value: &Value) -> bool {
        let number = value.as_float().or(value.as_integer().map(|value| value as f64));
        self.value.is_none_or(|usual| number == Some(usual))
    }
}

/// Drops removed keys that made no difference to what the program does now, from the configuration that a run
/// recorded: it has all keys with their defaults.
pub fn drop_removed(keys: &mut Table) {
    for removed in &REMOVED {
        let Some((table, name)) = removed.table(keys) else { continue };
        if removed.is_repeatable(&table[name]) {
            table.remove(name);
        }
    }
}

/// Refuses keys that were removed, all of them at once.
///
/// # Errors
/// Returns an error that says what to do.
pub fn refuse_removed(keys: &mut Table, origin: &Origin) -> anyhow::Result<()> {
    let found: Vec<&RemovedKey> =
        REMOVED.iter().filter(|removed| removed.table(keys).is_some()).collect();
    let Some(first) = found.first() else { return Ok(()) };
    let named: Vec<String> =
        found.iter().map(|removed| format!("{} ({})", removed.key, removed.now)).collect();
    let what = match found.len() {
        1 => "this key was removed, so delete it",
        _ => "these keys were removed, so delete them",
    };
    bail!("{}{what}: {}", origin.place(first.key), named.join(", "))
}

/// Like [`drop_removed`], for a run that is repeated or resumed.
///
/// # Errors
/// Returns an error if this version cannot repeat the run, because a value differs from what the program
/// does now.
pub(crate) fn drop_removed_of_run(keys: &mut Table, origin: &Origin) -> anyhow::Result<()> {
    drop_removed(keys);
    for removed in &REMOVED {
        if let Some((table, name)) = removed.table(keys) {
            let (key, now) = (removed.key, removed.now);
            bail!(
                "{}this run was made with {key} = {}, but this version has no such key ({now}), so it would compute other steps; continue with the version of `grpo` in run.json, or start a new run",
                origin.place(key),
                table[name]
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Loaded, of_text};

    fn loaded(text: &str) -> Loaded<Table> {
        of_text(Path::new("train.toml"), text.to_owned()).unwrap()
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let Loaded { value: mut keys, origin } = loaded(text);
        let found = refuse_removed(&mut keys, &origin).map_err(|error| error.to_string());
        assert_eq!(found.err().as_deref().unwrap_or("nothing"), expected);
    }

    #[test]
    fn a_file_with_removed_keys_gets_one_sentence() {
        refused("[train]\nsteps = 3\n[kl_controller]\ntarget = 0.1", "nothing");
        refused(
            "[train]\nsteps = 3\nreuse_activations_mb = 512",
            "train.toml:3: this key was removed, so delete it: train.reuse_activations_mb (the memory that is left is used)",
        );
        refused(
            "[kl_controller]\nmax = 1.0\nmin = 0.1",
            "train.toml:3: these keys were removed, so delete them: kl_controller.min (it is 0.00001), kl_controller.max (it is 10)",
        );
    }

    #[test]
    fn recorded_runs_are_read_if_they_can_be_repeated() {
        let recorded = "[train]\nsteps = 3\nreuse_activations_mb = 7\n[sampler_check]\ntolerance = 0.001\nabove = \"stop\"\n[kl_controller]\nmin = 1e-5\nmax = 10";
        let Loaded { value: mut keys, origin } = loaded(recorded);
        drop_removed_of_run(&mut keys, &origin).unwrap();
        let rest = "[train]\nsteps = 3\n[sampler_check]\nabove = \"stop\"\n[kl_controller]";
        assert_eq!(keys, toml::from_str::<Table>(rest).unwrap());
        let Loaded { value: mut keys, origin } = loaded("[sampler_check]\ntolerance = 0.5");
        assert_eq!(
            drop_removed_of_run(&mut keys, &origin).unwrap_err().to_string(),
            "train.toml:2: this run was made with sampler_check.tolerance = 0.5, but this version has no such key (it is 0.001; sampler_check.above = \"correct\" admits larger differences), so it would compute other steps; continue with the version of `grpo` in run.json, or start a new run"
        );
    }
}

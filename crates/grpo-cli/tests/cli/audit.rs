//! `grpo audit`: results for an intact run and for runs with modified files.

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use grpo_run::RunFolder;
use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::texts::objects;
use crate::training_texts;

pub(crate) const LEDGER: &str = "run/ledger.jsonl";
pub(crate) const METRICS: &str = "run/metrics.jsonl";
const EVENTS: &str = "run/events.jsonl";

/// Expected violations in an intact run.
const NOTHING: &[&str] = &[];

/// A run with three steps of two updates each, which recorded everything, and the original contents
/// of files that tests modify.
pub(crate) struct Run {
    pub(crate) place: Place,
    pub(crate) ledger: String,
    pub(crate) metrics: String,
}

impl Run {
    pub(crate) fn new() -> Self {
        let place = Place::for_training();
        let sets = ["eval.samples=0", "train.updates_per_rollout=2", "save.every=1"];
        train(&place, &sets);
        let (ledger, metrics) = (place.read(LEDGER), place.read(METRICS));
        Self { place, ledger, metrics }
    }

    /// Modifies the ledger and checks that the audit reports exactly the expected violations.
    #[track_caller]
    pub(crate) fn plant<S: Debug>(&self, change: impl FnOnce(&mut Vec<Value>), expected: &[S])
    where
        String: PartialEq<S>,
    {
        let mut lines: Vec<Value> = lines(&self.ledger);
        change(&mut lines);
        self.place.write(LEDGER, text(&lines));
        assert_eq!(violations(&self.place), expected);
        self.place.write(LEDGER, &self.ledger);
        self.place.write(METRICS, &self.metrics);
    }

    pub(crate) fn line(&self, step: usize) -> Value {
        lines(&self.ledger).swap_remove(step - 1)
    }
}

fn train(place: &Place, sets: &[&str]) {
    let sets = sets.iter().chain(&["save.keep_last=9"]).flat_map(|set| ["--set", set]);
    place.succeed(&["train", "train.toml"].into_iter().chain(sets).collect::<Vec<&str>>());
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    objects(text).into_iter().map(Value::Object).collect()
}

pub(crate) fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Properties that are checked with recorded hashes. Their violations are tested in `tampering`.
const OF_RECORDS: [&str; 6] =
    ["configuration", "inputs", "chain of records", "metrics", "completion files", "saved folders"];

/// Runs `grpo audit --json`, checks its exit code and returns the other violations.
#[track_caller]
pub(crate) fn violations(place: &Place) -> Vec<String> {
    let ended = place.run(&["audit", "run", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
    let mut found = Vec::new();
    let (mut properties, mut all) = (0, 0);
    for finding in report["findings"].as_array().unwrap() {
        let violations = finding.get("violations").and_then(Value::as_array);
        properties += usize::from(violations.is_some());
        for violation in violations.into_iter().flatten() {
            all += 1;
            let property = finding["property"].as_str().unwrap();
            if OF_RECORDS.contains(&property) {
                continue;
            }
            let what = violation["what"].as_str().unwrap();
            found.push(match violation["step"].as_u64() {
                Some(step) => format!("{property}: step {step}: {what}"),
                None => format!("{property}: {what}"),
            });
        }
    }
    assert_eq!(report["violations"], all);
    match properties {
        0 => assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "")),
        _ => ended.assert_refused(format!(
            "{properties} of the audited properties of `run` {} violated",
            if properties == 1 { "is" } else { "are" }
        )),
    }
    found
}

/// Returns the lines of the audit as printed on a terminal.
fn table(place: &Place) -> Vec<String> {
    let ended = place.run(&["audit", "run"]);
    ended.stdout.lines().map(str::to_owned).collect()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let _absent = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => fs::copy(entry.path(), to.join(entry.file_name())).map(|_| ()).unwrap(),
        }
    }
}

/// Returns the first digits of a hash.
pub(crate) fn short(hash: &Value) -> String {
    format!("{}…", &hash.as_str().unwrap()[..12])
}

/// Finds the completion with this prompt and sample index in a list.
pub(crate) fn at(completions: &mut Value, [prompt, sample]: [u32; 2]) -> &mut Value {
    let list = completions["completions"].as_array_mut().unwrap();
    list.iter_mut().find(|entry| entry[0] == prompt && entry[1] == sample).unwrap()
}

pub(crate) fn remove(completions: &mut Value, [prompt, sample]: [u32; 2]) {
    let list = completions["completions"].as_array_mut().unwrap();
    list.retain(|entry| !(entry[0] == prompt && entry[1] == sample));
}

/// Returns the rollout and all updates of a step.
pub(crate) fn lists(line: &mut Value) -> impl Iterator<Item = &mut Value> {
    let line = line.as_object_mut().unwrap();
    let mut parts = Vec::new();
    for (name, value) in line {
        match name.as_str() {
            "rollout" => parts.push(value),
            "updates" => parts.extend(value.as_array_mut().unwrap()),
            _ => {}
        }
    }
    parts.into_iter()
}

#[test]
fn a_run_proves_itself() {
    let run = Run::new();
    let proven = [
        "steps                 proven        3 steps in ledger.jsonl and metrics.jsonl",
        "version match         proven        3 rollouts, 24 completions",
        "immediate update      proven        3 rollouts, 6 updates, 6 of which changed the weights",
        "whole groups          proven        6 groups of 4",
        "own completions       proven        6 updates, 48 uses",
        "no reuse              proven        24 completions, each in at most 2 updates",
        "reference             proven        unchanged in 3 steps",
        "recorded completions  proven        24 completions of 3 steps",
        "checkpoints           proven        3 checkpoints",
        "final model           proven        the weights after step 3",
        "configuration         proven        config.toml and run.json",
        "inputs                proven        4 files",
        "chain of records      proven        9 lines",
        "metrics               proven        3 lines, without times and memory",
        "completion files      proven        3 files",
        "saved folders         proven        4 folders",
    ];
    assert_eq!(table(&run.place), proven);
    let before = run.place.files();
    run.plant(|_| (), NOTHING);
    assert_eq!(run.place.files(), before);
    // Weight hashes differ between steps. The initial policy is the reference.
    let mut hashes: Vec<Value> = Vec::new();
    for step in 1..=3 {
        let line = run.line(step);
        assert_eq!(line["reference"], run.line(1)["rollout"]["weights"]);
        hashes.extend((0..2).map(|update| line["updates"][update]["weights"].clone()));
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 6);

    // Only the first of many violations is shown in the table.
    let mut ledger = lines(&run.ledger);
    at(&mut ledger[1]["rollout"], [0, 1])[2] = json!(1);
    ledger[2]["updates"][1]["completions"] = json!([]);
    run.place.write(LEDGER, text(&ledger));
    let table = table(&run.place);
    assert_eq!(
        table[1],
        "version match         VIOLATED      step 2: prompt 0, sample 1 was sampled by policy version 1, but the step's policy has version 2"
    );
    let own = table.iter().position(|line| line.starts_with("own completions")).unwrap();
    let [blank, first, last] = ["", "own completions", "and 7 more; --json shows all"];
    assert_eq!(
        table[own..own + 4],
        [
            format!(
                "{first:<22}VIOLATED      step 2: update 1 used prompt 0, sample 1 with values that differ from the sampled ones"
            ),
            format!(
                "{blank:<36}step 2: update 2 used prompt 0, sample 1 with values that differ from the sampled ones"
            ),
            format!("{blank:<36}step 3: update 2 did not use prompt 0, sample 0"),
            format!("{blank:<36}{last}"),
        ]
    );
}

#[test]
fn other_contents_than_those_of_the_ledger_are_found() {
    let run = Run::new();
    // Token ids or log-probabilities differ from the recorded ones.
    run.plant(
        |lines| lists(&mut lines[0]).for_each(|list| at(list, [0, 2])[3] = json!("0123456789abcdef")),
        &[
            "recorded completions: step 1: prompt 0, sample 2 is recorded with different ids, log-probabilities or policy version than it was sampled with",
        ],
    );
    // A folder was replaced by a different intact one.
    let (checkpoint, model) =
        (run.place.path("run/checkpoints/step-2"), run.place.path("run/model"));
    let after = |step: usize| short(&run.line(step)["updates"][1]["weights"]);
    let kept = run.place.path("kept");
    copy(&checkpoint, &kept);
    copy(&model, &checkpoint);
    run.plant(
        |_| (),
        &[format!(
            "checkpoints: step 2: the checkpoint has weights {}, but the updates produced {}",
            after(3),
            after(2)
        )],
    );
    copy(&kept, &checkpoint);
    let last = run.place.path("run/checkpoints/step-3");
    copy(&kept, &model);
    run.plant(
        |_| (),
        &["final model: it has the weights after step 2; expected those after the last step, 3"],
    );
    copy(crate::support::small_model(), &model);
    let begin = short(&run.line(1)["rollout"]["weights"]);
    run.plant(
        |_| (),
        &[format!(
            "final model: it has weights {begin}, but the updates of step 3 produced {}",
            after(3)
        )],
    );
    copy(&last, &model);
    run.plant(|_| (), NOTHING);
    // A single bit of a weight was flipped.
    let weights = checkpoint.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let found = violations(&run.place);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with(
            "checkpoints: step 2: `run/checkpoints/step-2/model.safetensors` is damaged: its SHA-256 is "
        ),
        "{found:?}"
    );
    fs::remove_file(checkpoint.join("manifest.json")).unwrap();
    assert_eq!(
        violations(&run.place),
        [
            "checkpoints: step 2: `run/checkpoints/step-2` has no `manifest.json`, so it is not a complete checkpoint; use another one"
        ]
    );
}

#[test]
fn completions_that_were_taken_out_are_found() {
    let run = Run::new();
    let folder = RunFolder::open(&run.place.path("run")).unwrap();
    let mut records = folder.completions_of(3).unwrap();
    records.pop();
    folder.write_completions(3, &records, &["valid", "qed", "sa"]).unwrap();
    let row = "recorded completions: step 3: prompt 1, sample 3 is not recorded, although other completions of the step are";
    assert_eq!(violations(&run.place), [row]);
    // The same after a kill.
    fs::remove_dir_all(run.place.path("run/model")).unwrap();
    assert_eq!(violations(&run.place), [row]);
    for step in [3, 1] {
        fs::remove_file(folder.completions_path(step)).unwrap();
    }
    let file = |step: u32| {
        format!(
            "recorded completions: step {step}: its completions are missing, although save.completions_every = 1 requires them"
        )
    };
    assert_eq!(violations(&run.place), [file(1), file(3)]);
}

#[test]
fn reports_a_killed_run() {
    let run = Run::new();
    // Killed after writing the ledger, while writing the metrics.
    fs::remove_dir_all(run.place.path("run/model")).unwrap();
    let (kept, _) = run.metrics.trim_end().rsplit_once('\n').unwrap();
    run.place.write(METRICS, format!("{kept}\n{{\"step\":3,"));
    // If the run claims to be finished, the line must have been removed.
    assert_eq!(
        violations(&run.place),
        ["steps: ledger.jsonl ends with step 3, but metrics.jsonl with step 2"]
    );
    let events = run.place.read(EVENTS);
    let (kept, finished) = events.trim_end().rsplit_once('\n').unwrap();
    assert!(finished.contains("\"finished\""), "{finished}");
    run.place.write(EVENTS, format!("{kept}\n"));
    let said = table(&run.place);
    assert_eq!(
        said[0],
        "steps                 proven        3 steps in ledger.jsonl and metrics.jsonl; the run ended while writing step 3"
    );
    assert_eq!(
        said[9],
        "final model           not recorded  no final model: the run has not finished or was killed"
    );
    assert_eq!(violations(&run.place), NOTHING);
    // Killed while writing the ledger.
    fs::remove_dir_all(run.place.path("run/checkpoints/step-3")).unwrap();
    let steps: Vec<&str> = run.ledger.lines().collect();
    run.place.write(LEDGER, format!("{}\n{}\n{}", steps[0], steps[1], &steps[2][..99]));
    let said = violations(&run.place);
    assert_eq!(
        said,
        [
            "recorded completions: step 3: its completions were recorded, but the step is missing from the ledger"
        ]
    );
    // Nothing was recorded, as configured.
    let config = run.place.read("run/config.toml");
    assert!(config.contains("completions_every = 1\n"), "{config}");
    run.place.write(
        "run/config.toml",
        config.replace("completions_every = 1\n", "completions_every = 0\n"),
    );
    fs::remove_dir_all(run.place.path("run/completions")).unwrap();
    fs::remove_dir_all(run.place.path("run/checkpoints")).unwrap();
    fs::create_dir(run.place.path("run/completions")).unwrap();
    fs::create_dir(run.place.path("run/checkpoints")).unwrap();
    assert_eq!(
        table(&run.place)[7..9],
        [
            "recorded completions  not recorded  the run recorded none",
            "checkpoints           not recorded  the run kept none",
        ]
    );
}

#[test]
fn a_damaged_ledger_is_refused() {
    let run = Run::new();
    let audit = ["audit", "run"];
    run.place.write(LEDGER, "{\"step\":1}\n");
    let ended = run.place.run(&audit);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = "VIOLATED      line 1 of `run/ledger.jsonl` is damaged: missing key `rollout` at column 10; remove the line, or restore the file from a copy";
    assert!(ended.stdout.contains(said), "{}", ended.stdout);
    run.place.refuse(
        &["audit", "nowhere"],
        str!["`nowhere` is not a run folder (no `run.json`); check the path"],
    );
}

#[test]
fn a_pretraining_is_refused() {
    let place = Place::for_pretraining();
    place.succeed(&["pretrain", "pretrain.toml", "--run", "run", "--set", "pretrain.epochs=1"]);
    let other = "`run` is a run of `grpo pretrain`; expected a run of `grpo train`";
    place.refuse(&["audit", "run"], other);
    place.refuse(&["explain", "run", "--step", "1"], other);
}

#[test]
fn an_adapter_and_the_model_under_it() {
    let place = training_texts::place("llama");
    for precision in ["f32", "q8"] {
        let base = format!("base_precision={precision}");
        let sets = ["eval.samples=0", "save.every=2", "reference.from=base", &base];
        train(&place, &sets);
        assert_eq!(violations(&place), NOTHING);
        let said = table(&place);
        assert_eq!(
            said[7..11],
            [
                "base                  proven        3 steps, and the current model",
                "recorded completions  proven        24 completions of 3 steps",
                "checkpoints           proven        2 checkpoints",
                "final model           proven        the weights after step 3",
            ]
        );
        let line = lines(&place.read(LEDGER)).swap_remove(2);
        assert_eq!(line["reference"], line["base"]);
        assert_ne!(line["rollout"]["weights"], line["base"]);
        fs::rename(place.path("run"), place.path(precision)).unwrap();
    }
    let bases = ["f32", "q8"].map(|run| {
        lines(&place.read(&format!("{run}/ledger.jsonl"))).swap_remove(0)["base"].clone()
    });
    assert_ne!(bases[0], bases[1], "the hash is of what the model was held as");

    fs::rename(place.path("f32"), place.path("run")).unwrap();
    fs::rename(place.path("m"), place.path("elsewhere")).unwrap();
    let here =
        "not recorded  model m does not exist; change to the folder from which the run was started";
    let said = table(&place);
    for (place, property) in [(7, "base"), (9, "checkpoints"), (10, "final model")] {
        assert_eq!(said[place], format!("{property:<22}{here}"));
    }
    // A different model of the same shape without a manifest.
    copy(&place.path("elsewhere"), &place.path("m"));
    fs::remove_file(place.path("m/manifest.json")).unwrap();
    assert_eq!(violations(&place), NOTHING);
    let path = place.path("m/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = violations(&place);
    assert_eq!(found.len(), 1);
    let was = format!(" now, but was {}", short(&bases[0]));
    assert!(found[0].starts_with("base: the model is ") && found[0].ends_with(&was), "{found:?}");
}

#[test]
fn rounded_weights_sample_with_the_hash_of_what_they_were_rounded_from() {
    let place = Place::for_training();
    let correction = "loss.mismatch={level=\"token\",mode=\"truncate\",max=2.0}";
    train(&place, &["eval.samples=0", "sampling.weights=bf16", correction]);
    assert_eq!(violations(&place), NOTHING);
}

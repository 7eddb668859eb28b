//! Tests the claims in `docs/trust.md`. Each kind of change to the files of a run is detected by
//! `grpo audit` and mentioned by `grpo report` and `--resume`. Each change is made in a copy of the
//! run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::audit::copy;
use crate::endings::rolling_back;
use crate::support::Place;
use crate::tampering_kinds::{
    adapter, completions, configuration, edit_json, edit_lines, events, folders, inputs, ledger,
    metrics, roll_back,
};
use crate::training_texts;

/// A change to the files of a run.
pub(crate) struct Tampering {
    /// Kind of change, as listed in docs/trust.md.
    kind: &'static str,
    /// At least one of these properties must be violated.
    properties: &'static [&'static str],
    change: Box<dyn Fn(&Path) + Send + Sync>,
}

/// All changes for one run.
#[derive(Default)]
pub(crate) struct Table(Vec<Tampering>);

impl Table {
    pub(crate) fn add(
        &mut self,
        kind: &'static str,
        properties: &'static [&'static str],
        change: impl Fn(&Path) + Send + Sync + 'static,
    ) {
        self.0.push(Tampering { kind, properties, change: Box::new(change) });
    }
}

/// Audits the copy and returns the names of violated properties, or `None` if the audit failed.
fn found(place: &Place, run: &str) -> (Option<i32>, Option<Vec<String>>, String) {
    let ended = place.run(&["audit", run, "--json"]);
    let words = format!("{}{}", ended.stdout, ended.stderr);
    let report: Option<Value> = serde_json::from_str(&ended.stdout).ok();
    let violated = report.map(|report| {
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["verdict"] == "violated")
            .map(|finding| finding["property"].as_str().unwrap().to_owned())
            .collect()
    });
    (ended.code, violated, words)
}

/// Checks that a change is reported by the audit and other commands. Returns an error message if
/// not.
fn check(place: &Place, run: &str, tampering: &Tampering, others: bool) -> Option<String> {
    (tampering.change)(&place.path(run));
    let (code, violated, words) = found(place, run);
    let names = |violated: &Vec<String>| {
        violated.iter().any(|property| tampering.properties.contains(&property.as_str()))
    };
    if code != Some(1) || !violated.as_ref().is_none_or(names) {
        return Some(format!("{}: audit: {code:?} {violated:?} {words}", tampering.kind));
    }
    if others {
        let report = place.run(&["report", run]);
        let says = ["failed      Audit: ", "failed      Inputs: ", "warning     Inputs: "];
        if report.code == Some(0) && !says.iter().any(|said| report.stdout.contains(said)) {
            return Some(format!("{}: report: {}", tampering.kind, report.stdout));
        }
        let resumed = place.run(&["train", "--plain", "--resume", run]);
        if resumed.code == Some(0) && !resumed.stdout.contains("audit        ") {
            return Some(format!("{}: --resume: {}", tampering.kind, resumed.stdout));
        }
    }
    None
}

/// Applies each change to a copy of `run` in parallel and counts the kinds.
fn check_all(
    place: &Place,
    table: Table,
    kinds: &mut BTreeMap<&'static str, usize>,
) -> Vec<String> {
    let first =
        |tampering: &Tampering, kinds: &BTreeMap<&str, usize>| !kinds.contains_key(tampering.kind);
    let mut tasks = Vec::new();
    for tampering in &table.0 {
        tasks.push((tampering, first(tampering, kinds)));
        *kinds.entry(tampering.kind).or_default() += 1;
    }
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((tampering, others)) =
                    tasks.get(next.fetch_add(1, Ordering::Relaxed)).copied()
                {
                    let folder = format!("copy-{:p}", tampering);
                    copy(&place.path("run"), &place.path(&folder));
                    let fault = check(place, &folder, tampering, others);
                    faults.lock().unwrap().extend(fault);
                    fs::remove_dir_all(place.path(&folder)).unwrap();
                }
            });
        }
    });
    faults.into_inner().unwrap()
}

#[test]
fn every_change_that_the_threat_model_names_is_found() {
    let every_step = ["--set", "save.every=1", "--set", "save.keep_last=9"];
    let place = Place::for_training();
    place.succeed(&[&["train", "train.toml", "--set", "eval.samples=0"], &every_step[..]].concat());
    let (code, _, words) = found(&place, "run");
    assert_eq!(code, Some(0), "{words}");

    let mut table = Table::default();
    configuration(&mut table, &place.read("run/config.toml"));
    ledger(&mut table);
    events(&mut table, place.read("run/events.jsonl").lines().count());
    metrics(&mut table);
    completions(&mut table);
    folders(&mut table);
    let mut kinds = BTreeMap::new();
    let mut faults = check_all(&place, table, &mut kinds);

    let back = Place::new();
    back.write("train.toml", rolling_back(8));
    back.succeed(&["train", "train.toml"]);
    let (code, _, words) = found(&back, "run");
    assert_eq!(code, Some(0), "{words}");
    let mut table = Table::default();
    roll_back(&mut table);
    faults.extend(check_all(&back, table, &mut kinds));

    let texts = training_texts::place("llama");
    texts.succeed(&[&["train", "train.toml", "--set", "eval.samples=0"], &every_step[..]].concat());
    let (code, _, words) = found(&texts, "run");
    assert_eq!(code, Some(0), "{words}");
    let mut table = Table::default();
    adapter(&mut table);
    faults.extend(check_all(&texts, table, &mut kinds));
    // Sequential, because all copies share the same input files.
    let mut table = Table::default();
    inputs(&mut table);
    for tampering in &table.0 {
        let kept: Vec<(PathBuf, Vec<u8>)> = (texts.files().into_iter())
            .filter(|(path, _)| path.is_file() && !path.starts_with(texts.path("run")))
            .map(|(path, _)| (path.clone(), fs::read(path).unwrap()))
            .collect();
        *kinds.entry(tampering.kind).or_default() += 1;
        faults.extend(check(&texts, "run", tampering, true));
        kept.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        for name in ["chat_template.jinja", "generation_config.json"] {
            let added = texts.path("m").join(name);
            if added.exists() && kept.iter().all(|(path, _)| *path != added) {
                fs::remove_file(added).unwrap();
            }
        }
    }
    assert!(faults.is_empty(), "{} not found:\n{}", faults.len(), faults.join("\n"));

    let all: usize = kinds.values().sum();
    assert!(all >= 150 && kinds.len() >= 15, "{all} changes of {} kinds", kinds.len());
    let threats = include_str!("../../../../docs/trust.md");
    for kind in kinds.keys() {
        assert!(threats.contains(&format!("| {kind} |")), "docs/trust.md does not name `{kind}`");
    }
}

/// Runs of older versions have no hash chains and are audited as far as possible.
#[test]
fn reports_what_an_older_run_cannot_prove() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml", "--set", "eval.samples=0"]);
    edit_lines(&place.path("run/ledger.jsonl"), |lines| {
        for line in lines {
            line.as_object_mut().unwrap().retain(|key, _| key != "previous" && key != "recorded");
        }
    });
    edit_lines(&place.path("run/events.jsonl"), |lines| {
        lines.retain(|line| line["event"] != "started" && line["event"] != "saved");
        for line in lines {
            let old = ["step", "at", "event", "best"];
            line.as_object_mut().unwrap().retain(|key, _| old.contains(&key.as_str()));
        }
    });
    edit_json(&place.path("run/run.json"), |info| {
        info.as_object_mut().unwrap().retain(|key, _| key != "chained");
    });
    let ended = place.succeed(&["audit", "run"]);
    let expected = [
        "configuration         proven        config.toml; created by an older version: changes to run.json cannot be detected",
        "chain of records      not recorded  created by an older version: changes to lines of events.jsonl, and consistent changes to lines of ledger.jsonl, cannot be detected",
        "metrics               not recorded  created by an older version: changes to numbers, text, prompts and rewards cannot be detected",
        "completion files      not recorded  created by an older version: changes to numbers, text, prompts and rewards cannot be detected",
        "saved folders         not recorded  created by an older version: changes to the configuration or tokenizer next to the weights cannot be detected if the manifest was rewritten",
    ];
    for line in expected {
        assert!(ended.stdout.lines().any(|said| said == line), "{}", ended.stdout);
    }
    // After resuming, new lines form a chain.
    place.succeed(&["train", "--resume", "run"]);
    place.succeed(&["audit", "run"]);
    // Files mentioned by events are still required.
    fs::remove_dir_all(place.path("run/model")).unwrap();
    let (code, violated, words) = found(&place, "run");
    assert_eq!((code, violated), (Some(1), Some(vec!["saved folders".to_owned()])), "{words}");
}

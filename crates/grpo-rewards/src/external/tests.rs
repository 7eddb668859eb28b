//! Tests for external rewards and their error messages. They require `python3` in PATH.

mod hostile;
mod identities;
mod results;
mod trl;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{Outcome, Reward, RewardInput, parsed};

/// Creates a reward from its settings.
fn build(settings: Value) -> Arc<dyn Reward> {
    parsed(settings).unwrap().build(&Device::flex()).unwrap_or_else(|fault| {
        panic!("{fault} (these tests need python3 in PATH)");
    })
}

/// Returns the error message for invalid settings.
fn refusal(settings: Value) -> String {
    let built = parsed(settings).and_then(|config| {
        config.spec().check()?;
        config.spec().files()?;
        config.build(&Device::flex()).map(drop)
    });
    built.unwrap_err().to_string()
}

fn file(folder: &TempDir, name: &str, content: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// Creates a reward of type `python` with a single file.
fn python(content: &str, more: Value) -> (TempDir, Arc<dyn Reward>) {
    let folder = tempfile::tempdir().unwrap();
    let reward = build(python_settings(&folder, content, more));
    (folder, reward)
}

fn python_settings(folder: &TempDir, content: &str, more: Value) -> Value {
    let mut settings = json!({"type": "python", "file": file(folder, "my_reward.py", content)});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn sample(completion: &str, row: &Value) -> RewardInput {
    let fields = row.as_object().cloned().unwrap_or_default();
    RewardInput { fields, prompt: "2 + 2 =".to_owned(), ..completion.into() }
}

fn totals(outcomes: &[Outcome]) -> Vec<Option<f64>> {
    outcomes.iter().map(Outcome::total).collect()
}

fn score(reward: &dyn Reward, completions: &[&str]) -> Vec<Outcome> {
    let samples: Vec<RewardInput> = completions.iter().map(|text| (*text).into()).collect();
    reward.score(&samples)
}

#[test]
fn the_short_signature_gets_a_completion() {
    let (_folder, reward) = python(
        "print('not a reply')\ndef reward(completion):\n    print('nor this')\n    return len(completion) if completion else None\n",
        json!({}),
    );
    assert_eq!(totals(&score(&*reward, &["ab", "", "abc"])), [Some(2.0), None, Some(3.0)]);
    assert_eq!(score(&*reward, &[""]), [Outcome::abstained()]);
    assert!(reward.is_deterministic());
}

#[test]
fn an_exception_fails_the_completion_that_raised_it() {
    let code = "def reward(completions, **kwargs):\n    return [1 / len(c) for c in completions]\n";
    let (_folder, reward) = python(code, json!({}));
    let outcomes = score(&*reward, &["a", "", "ab"]);
    assert_eq!(totals(&outcomes), [Some(1.0), None, Some(0.5)]);
    let reason = outcomes[1].failure().unwrap();
    for expected in [
        "completion \"\" (item 2 of 3): reward raised an exception:",
        "my_reward.py\", line 2",
        "ZeroDivisionError",
    ] {
        assert!(reason.contains(expected), "{reason}");
    }
    assert!(!reason.contains("<string>"), "{reason}");
}

#[test]
fn what_python_files_get_wrong() {
    let folder = tempfile::tempdir().unwrap();
    for (code, more, expected) in [
        ("def score(x): return 1", json!({}), "has no function 'reward'; its functions: score"),
        ("import nothing_like_it", json!({}), "ModuleNotFoundError: No module named"),
        ("import nothing_like_it", json!({}), "or set reward.interpreter to a Python that has it"),
        ("def reward(:", json!({}), "SyntaxError"),
        ("raise SystemExit(3)", json!({}), "SystemExit: 3"),
        ("def reward(a, b): return 1", json!({}), "reward(a, b) has an unknown signature"),
        ("import os\nos._exit(7)", json!({}), "exited (exit status: 7) without a reply"),
        ("", json!({"interpreter": "pythonx"}), "cannot find program `pythonx` in PATH"),
        ("", json!({"function": []}), "reward.function is empty"),
        ("", json!({"weights": [1.0]}), "reward.weights has no effect with a single function"),
        ("", json!({"function": ["a", "b"], "weights": [1.0]}), "one weight per function"),
        ("", json!({"function": ["a", "a"]}), "two components named 'a'"),
        ("", json!({"function": ["a"], "weights": [0.0]}), "at least one must be nonzero"),
        ("", json!({"cache": true, "deterministic": false}), "requires a deterministic reward"),
        ("", json!({"batch_size": 0}), "reward.batch_size = 0 is out of range"),
        ("", json!({"time_limit": 0.0}), "reward.time_limit = 0 is out of range"),
        ("", json!({"workers": 257}), "reward.workers = 257 is out of range"),
        ("", json!({"unknown": 1}), "unknown key `unknown`"),
    ] {
        let reason = refusal(python_settings(&folder, code, more));
        assert!(reason.contains(expected), "{code}: {reason}");
    }
    let nowhere = refusal(json!({"type": "python", "file": "nowhere.py"}));
    assert!(nowhere.contains("file nowhere.py does not exist"), "{nowhere}");
}

#[test]
fn batches_and_workers_keep_the_order() {
    let code = "import time\ndef reward(completions, **kwargs):\n    time.sleep(0.01 * (int(completions[0]) % 3))\n    return [int(c) for c in completions]\n";
    let (_folder, reward) = python(code, json!({"batch_size": 3, "workers": 4}));
    let texts: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected: Vec<Option<f64>> = (0..50).map(|number| Some(f64::from(number))).collect();
    for _ in 0..3 {
        assert_eq!(totals(&score(&*reward, &texts)), expected);
    }
}

#[test]
fn prints_and_failures_are_kept_in_the_run_folder() {
    let code = "print('imported')\ndef reward(completion):\n    print('scored', completion)\n    return float('nan')\n";
    let (_folder, reward) = python(code, json!({}));
    let run = tempfile::tempdir().unwrap();
    reward.keep_output_in(run.path());
    let outcome = score(&*reward, &["abc"]).remove(0);
    let expected =
        "completion \"abc\" (item 1 of 1): the reward is NaN; expected a finite number or null";
    assert_eq!(outcome.failure(), Some(expected));
    drop(reward);
    let log = fs::read_to_string(run.path().join("reward.log")).unwrap();
    for line in ["imported", "scored abc", &format!("grpo: {expected}")] {
        assert!(log.lines().any(|found| found == line), "{line}: {log}");
    }
}

/// Neither the target of a link nor a named pipe is written to.
#[test]
fn the_log_is_a_regular_file_of_the_run_folder() {
    let code = "def reward(completion):\n    print('scored')\n    return 1\n";
    let place = tempfile::tempdir().unwrap();
    for kind in ["link", "pipe", "dangling"] {
        let run = place.path().join(kind);
        fs::create_dir(&run).unwrap();
        let (log, target) = (run.join("reward.log"), place.path().join(format!("{kind}.target")));
        match kind {
            "pipe" => nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            _ => std::os::unix::fs::symlink(&target, &log).unwrap(),
        }
        if kind == "link" {
            fs::write(&target, "mine").unwrap();
        }
        let (_folder, reward) = python(code, json!({}));
        reward.keep_output_in(&run);
        assert_eq!(totals(&score(&*reward, &["a"])), [Some(1.0)]);
        drop(reward);
        let expected = (kind == "link").then_some("mine".to_owned());
        assert_eq!(fs::read_to_string(&target).ok(), expected, "{kind}");
    }
}

/// A script for REINVENT 4. It reads all SMILES strings before it writes its output.
const REINVENT: &str = r#"#!/usr/bin/env python3
import sys
import json

smilies = [smiles.strip() for smiles in sys.stdin]
scores = [float(len(smiles)) for smiles in smilies]
data = {"version": 1, "payload": {"predictions": scores, "carbons": [s.count("C") for s in smilies], "note": ["x"] * len(scores)}}

print(json.dumps(data))
"#;

#[test]
fn a_script_of_reinvent_runs_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(&folder, "score.py", REINVENT);
    let command = json!(["python3", script]);
    let reward = build(
        json!({"type": "command", "command": command, "format": "reinvent", "components": ["carbons"]}),
    );
    let outcomes = score(&*reward, &["CCO", "c1ccccc1", ""]);
    assert_eq!(totals(&outcomes), [Some(3.0), Some(8.0), None]);
    assert_eq!(outcomes[0].part("carbons"), Some(2.0));
    let reason = outcomes[2].failure().unwrap();
    assert!(reason.contains("which format = \"reinvent\" does not support"), "{reason}");
    let other = build(
        json!({"type": "command", "command": command, "format": "reinvent", "property": "dG"}),
    );
    let reason = score(&*other, &["CCO"])[0].failure().unwrap().to_owned();
    assert!(reason.contains("the payload has no 'dG', only [\"predictions\""), "{reason}");
}

#[test]
fn the_message_has_all_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let script = format!(
        "import json, sys\nfor line in sys.stdin:\n    open({seen:?}, 'w').write(line)\n    r = json.loads(line)\n    print(json.dumps({{'id': r['id'], 'rewards': [0.5], 'components': {{'dock': [-7]}}, 'info': ['x']}}), flush=True)\n"
    );
    let script = file(&folder, "score.py", &script);
    let reward =
        build(json!({"type": "command", "command": ["python3", script], "components": ["dock"]}));
    let sample = RewardInput {
        completion_ids: vec![4, 5],
        group: 2,
        sample: 3,
        step: Some(9),
        ..sample("4", &json!({"answer": "4"}))
    };
    let outcome = reward.score(&[sample]).remove(0);
    assert_eq!((outcome.total(), outcome.part("dock")), (Some(0.5), Some(-7.0)));
    let request: Value = serde_json::from_str(&fs::read_to_string(seen).unwrap()).unwrap();
    let item = json!({"prompt": "2 + 2 =", "completion": "4", "completion_ids": [4, 5], "group": 2, "sample": 3, "row": {"answer": "4"}});
    assert_eq!(request, json!({"id": 1, "step": 9, "items": [item]}));
}

#[test]
fn programs_that_are_not_there_are_refused() {
    for (settings, expected) in [
        (
            json!({"type": "command", "command": ["no-such-program"]}),
            "cannot find program `no-such-program` in PATH",
        ),
        (json!({"type": "command", "command": ["./none"]}), "cannot find program `./none` here"),
        (
            json!({"type": "command", "command": ["/etc/passwd"]}),
            "/etc/passwd is not executable; run `chmod +x /etc/passwd`, or name its interpreter",
        ),
        (json!({"type": "command", "command": ["."]}), "`.` is a folder; expected a program"),
        (json!({"type": "command", "command": ["/etc"]}), "`/etc` is a folder"),
        (json!({"type": "command", "command": []}), "reward.command is empty"),
        (
            json!({"type": "command", "command": ["sh"], "property": "x"}),
            "without format = \"reinvent\"",
        ),
        (
            json!({"type": "command", "command": ["sh"], "components": ["a b"]}),
            "invalid reward component name 'a b'",
        ),
    ] {
        let reason = refusal(settings);
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn scripts_are_inputs_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(&folder, "score.py", "");
    let files = |settings| parsed(settings).unwrap().spec().files().unwrap();
    let of_command = files(json!({"type": "command", "command": ["python3", script]}));
    assert_eq!(of_command, [("command", Path::new(&script).to_owned())]);
    let of_python = files(json!({"type": "python", "file": script}));
    assert_eq!(of_python, [("reward", Path::new(&script).to_owned())]);
    let written = parsed(json!({"type": "python", "file": script})).unwrap();
    let table: Map<String, Value> =
        serde_json::from_value(serde_json::to_value(written.table()).unwrap()).unwrap();
    assert_eq!(table["batch_size"], 64);
    assert_eq!(table["on_failure"], "fail");
    assert_eq!(table["interpreter"], "python3");
}

/// `float("0.5")` would accept it.
#[test]
fn a_reward_that_is_text_is_refused() {
    let code = "def reward(completion):\n    return '0.5' if completion == 'b' else 1\n";
    let (_folder, reward) = python(code, json!({}));
    let outcomes = score(&*reward, &["a", "b"]);
    assert_eq!(outcomes[0].total(), Some(1.0));
    let fault = outcomes[1].failure().unwrap();
    let expected = "completion \"b\" (item 2 of 2): reward returned '0.5', which is text; return a number or None";
    assert_eq!(fault, expected);
}

//! Training runs with custom reward functions. Requires `python3` in `PATH`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use grpo_run::CompletionRecord;

use crate::resume::{kill_and_resume, result};
use crate::support::{Place, train_toml};
use crate::training_texts;

/// A reward function that records its process id.
const REWARD: &str = "
import os
open(os.path.join(os.path.dirname(__file__), 'pids'), 'a').write(f'{os.getpid()}\\n')

def reward(completion):
    print('scoring', completion)
    return completion.count('C') - 0.1 * len(completion)
";

const PYTHON: &str = "type = \"python\"\nfile = \"my_reward.py\"\n";

/// The function gets all completions as they were sampled, even invalid molecules.
const AS_SAMPLED: &str =
    "type = \"python\"\nfile = \"my_reward.py\"\ncache = false\ninvalid = \"send\"\n";

/// Creates a place for training on molecules with the given `[reward]` section.
pub(crate) fn place(reward: &str) -> Place {
    let place = Place::new();
    let molecule = "type = \"molecule\"\nqed = 0.7\nsa = 0.3\n";
    let configuration = train_toml().replace(molecule, reward);
    assert!(configuration.contains(reward));
    place.write("train.toml", configuration);
    place.write("my_reward.py", REWARD);
    place
}

/// Checks that all reward processes have exited.
#[track_caller]
pub(crate) fn assert_no_process(place: &Place) {
    let end = Instant::now() + Duration::from_secs(20);
    let is_alive = |pid: &str| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(' ') && !rest.starts_with(" Z"))
    };
    while place.read("pids").lines().any(is_alive) {
        assert!(Instant::now() < end, "a process lives still: {}", place.read("pids"));
        thread::sleep(Duration::from_millis(20));
    }
}

fn total(record: &CompletionRecord) -> f64 {
    record.text.matches('C').count() as f64 - 0.1 * record.text.len() as f64
}

#[test]
fn a_python_reward_gives_the_same_run_twice_also_after_kills() {
    let place = place(AS_SAMPLED);
    let begun = Instant::now();
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let whole = begun.elapsed();
    let records = place.completions("whole");
    assert_eq!(records.len(), 24);
    for record in &records {
        assert!((record.reward.unwrap() - total(record)).abs() < 1e-12, "{record:?}");
    }
    assert!(place.read("whole/reward.log").contains("scoring "), "what it prints is kept");
    place.succeed(&["train", "train.toml", "--run", "again"]);
    let expected = result(&place.path("whole"));
    assert!(result(&place.path("again")) == expected, "the same seed gives the same run");
    kill_and_resume(&place, "train", 3, 11, whole, &expected);
    assert_no_process(&place);
    let replay =
        ["replay", "whole", "--step", "2", "--prompt", "0", "--sample", "1", "--run-reward"];
    let replayed = place.succeed(&replay).stdout;
    assert!(replayed.contains("recomputed: equal"), "{replayed}");
    place.write("my_reward.py", REWARD.replace("0.1", "0.2"));
    let changed = place.run(&replay);
    assert!(
        changed.stderr.contains("is not the file that the run was started with"),
        "{}",
        changed.stderr
    );
}

#[test]
fn a_reward_that_is_not_deterministic_is_not_checked() {
    let place = place(&format!("{PYTHON}deterministic = false\n"));
    place.write("my_reward.py", "import random\ndef reward(completion): return random.random()");
    place.succeed(&["train", "train.toml", "--set", "eval.samples=0"]);
    place.succeed(&["audit", "run"]);
    let replay = ["replay", "run", "--step", "1", "--prompt", "0", "--sample", "1", "--run-reward"];
    let replayed = place.succeed(&replay).stdout;
    let expected = "not checked: the reward is not deterministic (reward.deterministic = false)";
    assert!(replayed.contains(expected), "{replayed}");
}

#[test]
fn they_are_parts_of_other_rewards_and_of_texts() {
    let composite = "type = \"composite\"\nparts = [\n    { name = \"chemistry\", weight = 0.5, reward = { type = \"molecule\", qed = 1.0 } },\n    { name = \"mine\", weight = 0.5, reward = { type = \"python\", file = \"my_reward.py\", cache = false, invalid = \"send\" } },\n]\n";
    let molecules = place(composite);
    molecules.succeed(&["train", "train.toml", "--set", "eval.samples=0"]);
    for record in molecules.completions("run") {
        assert!((record.parts["mine"] - total(&record)).abs() < 1e-12, "{record:?}");
        assert!(record.parts.contains_key("valid"));
    }
    let texts = training_texts::place("llama");
    let code = "import json, sys\nfor line in sys.stdin:\n    r = json.loads(line)\n    assert all(i['row']['answer'] in (4, '7') for i in r['items'])\n    print(json.dumps({'id': r['id'], 'rewards': [len(i['completion_ids']) - i['sample'] for i in r['items']], 'components': {'group': [i['group'] for i in r['items']]}}), flush=True)\n";
    texts.write("score.py", code);
    let reward =
        "reward={type=\"command\",command=[\"python3\",\"score.py\"],components=[\"group\"]}";
    texts.succeed(&["train", "train.toml", "--set", reward]);
    let records = texts.completions("run");
    assert!(records.iter().all(|record| record.parts["group"] == f64::from(record.prompt)));
    assert!(records.iter().all(|record| {
        record.reward == Some(f64::from(record.actions) - f64::from(record.sample))
    }));
}

#[test]
fn mistakes_are_found_before_the_run_begins() {
    let place = place(PYTHON);
    for (set, expected) in [
        ("reward.function=score", "my_reward.py has no function 'score'; its functions: reward"),
        ("reward.interpreter=python9", "cannot find program `python9` in PATH"),
        ("reward.file=other.py", "file other.py does not exist"),
        (
            "reward={type=\"http\",url=\"http://127.0.0.1:99999/score\"}",
            "reward.url = \"http://127.0.0.1:99999/score\" is not a supported URL: the port `99999` is not a number from 1 to 65535; expected",
        ),
        ("reward.on_failure=ignore", "expected one of `fail`, `abstain`, `stop`"),
    ] {
        let ended = place.run(&["train", "train.toml", "--set", set]);
        assert_eq!(ended.code, Some(1), "{set}");
        assert!(ended.stderr.contains(expected), "{set}: {}", ended.stderr);
        assert!(!place.path("run").exists());
    }
}

/// The reason of each score says what, where, and how to fix it.
#[test]
fn reasons_of_scores_are_in_plain_words() {
    let place = place(PYTHON);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.write("broken.sh", "not a program");
    let broken = place.path("broken.sh");
    let executable = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&broken, executable).unwrap();
    place.write("a.smi", "CCO\n");
    for (reward, expected) in [
        (
            format!("type=\"http\",url=\"http://{free}/score\""),
            format!(
                "the reward server http://{free}/score: the connection was refused; start the server, or correct reward.url"
            ),
        ),
        (
            format!("type=\"command\",command=[\"{}\"]", broken.display()),
            "broken.sh`: Exec format error".to_owned(),
        ),
    ] {
        let set = format!("reward={{{reward},time_limit=1.0,invalid=\"send\"}}");
        let score = ["score", "train.toml", "a.smi", "--set", &set, "-o", "s.csv", "--force"];
        let ended = place.run(&score);
        let written = fs::read_to_string(place.path("s.csv")).unwrap_or_default();
        let said = format!("{written}{}{}", ended.stdout, ended.stderr);
        assert!(said.contains(&expected), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
}

#[test]
fn what_a_failure_does_in_a_run() {
    let code = "def reward(completion): raise ValueError('no score')";
    for on_failure in ["fail", "abstain", "stop"] {
        let place = place(&format!("{AS_SAMPLED}on_failure = \"{on_failure}\"\n"));
        place.write("my_reward.py", code);
        let ended = place.run(&["train", "train.toml", "--set", "eval.samples=0"]);
        assert_eq!(ended.code, Some(1), "{on_failure}: {}", ended.stderr);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("ValueError: no score"), "{on_failure}: {said}");
        // A reward that fails for the whole trial is refused before the run begins.
        assert!(!place.path("run").exists());
        let late = ["--set", "preflight.samples=0", "--run", "late", "--set", "eval.samples=0"];
        let ended = place.run(&[&["train", "train.toml"][..], &late].concat());
        assert_eq!(ended.code, Some(1), "{on_failure}: {}", ended.stderr);
        // Steps without rewards are allowed, but not a run without any.
        assert!(place.path("late/model").exists(), "{on_failure}");
        assert!(place.read("late/reward.log").contains("ValueError: no score"), "{on_failure}");
    }
}

/// The likeliest mistake of all: one value for the whole batch.
#[test]
fn a_result_of_the_wrong_length_is_refused_before_the_run_begins() {
    let place = place(AS_SAMPLED);
    for (result, expected) in [
        ("[sum(len(c) for c in completions)]", "reward returned 1 rewards for 8 completions"),
        ("[1.0] * (len(completions) + 1)", "reward returned 9 rewards for 8 completions"),
        ("itertools.repeat(0.5)", "reward returned more than 8 rewards for 8 completions"),
    ] {
        let code = format!(
            "import itertools\ndef reward(prompts, completions, **kwargs):\n    return {result}\n"
        );
        place.write("my_reward.py", code);
        let ended = place.run(&["train", "train.toml"]);
        assert_eq!(ended.code, Some(1), "{result}");
        let error = format!(
            "error: the reward failed for all 8 trial completions, so the policy cannot learn; correct the reward, or skip the trial with preflight.samples = 0 if later steps can have scores; first reason: {expected}\n"
        );
        assert!(ended.stderr.ends_with(&error), "{}", ended.stderr);
        assert!(!ended.stdout.contains("NaN"), "{}", ended.stdout);
        assert!(!place.path("run").exists());
    }
}

/// The name of a renamed file no longer ends in `.py`.
#[test]
fn a_run_resumes_with_a_renamed_reward_file() {
    let place = place(PYTHON);
    place.succeed(&["train", "train.toml"]);
    fs::rename(place.path("my_reward.py"), place.path("my_reward.py.old-1")).unwrap();
    place.write("my_reward.py", "def reward(completion):\n    return 0.0\n");
    let verified = place.succeed(&["train", "--resume", "run", "--run-reward", "--verify"]).stdout;
    let note = "note         my_reward.py was replaced after the run started from it; the run uses the earlier one, which is now my_reward.py.old-1\n";
    assert!(verified.contains(note), "{verified}");
}

//! Runs that are rolled back by guards or end early.

use std::fs;
#[cfg(target_os = "linux")]
use std::io::{ErrorKind, Write};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::audit::copy;
use crate::resume::{configuration, kill_and_resume, kills, result, wait_for};
use crate::support::Place;

/// A high learning rate that destroys the policy, and a guard that rolls back to a much lower one.
pub(crate) fn rolling_back(steps: u32) -> String {
    configuration(steps).replace("learning_rate = 1e-2", "learning_rate = 0.3")
        + r#"
[[guards]]
watch = "kl"
above = 0.5
action = "roll_back"
learning_rate_factor = 0.0001
kl_coef_factor = 2.0
"#
}

fn events(place: &Place, run: &str) -> Vec<Value> {
    let text = place.read(&format!("{run}/events.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A rolled-back run keeps the undone steps and finishes. Killing it at any point does not change
/// the result.
#[test]
fn a_run_that_went_back_recovers() {
    let place = Place::new();
    place.write("train.toml", rolling_back(8));
    let begun = Instant::now();
    let ended = place.succeed(&["train", "train.toml", "--run", "whole"]);
    let whole = begun.elapsed();
    assert!(ended.stdout.contains("rolled back  to step "), "{}", ended.stdout);
    let expected = result(&place.path("whole"));
    let steps: Vec<u64> =
        expected.metrics.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=8).collect::<Vec<_>>());
    for line in &expected.metrics {
        assert!(line["kl"].as_f64().unwrap() <= 0.5, "{line:?}");
    }
    let last = expected.metrics.last().unwrap();
    assert!(last["learning_rate"].as_f64().unwrap() < 0.0004, "{last:?}");
    assert!((last["kl_coef"].as_f64().unwrap() - 0.1).abs() < 1e-12, "{last:?}");

    let events = events(&place, "whole");
    let guard = events.iter().position(|event| event["event"] == "guard").unwrap();
    let back = events.iter().position(|event| event["event"] == "rolled_back").unwrap();
    assert_eq!(
        (&events[guard]["watch"], &events[guard]["action"]),
        (&"kl".into(), &"roll_back".into())
    );
    assert!(guard < back && events[guard]["value"].as_f64().unwrap() > 0.5);
    // The metrics of a step describe the policy of the previous step, so the run goes back one step
    // further.
    let [tripped, to] = [guard, back].map(|event| events[event]["step"].as_u64().unwrap());
    assert!(to == 0 || to + 2 <= tripped, "step {tripped} tripped, and the run went back to {to}");
    let undone = place.read("whole/rolled-back/1/metrics.jsonl");
    let undone: Value = serde_json::from_str(undone.lines().next().unwrap()).unwrap();
    assert_eq!(undone["step"].as_u64().unwrap(), events[back]["step"].as_u64().unwrap() + 1);
    assert!(place.path("whole/rolled-back/1/completions").exists());
    place.succeed(&["audit", "whole"]);
    audit_in_the_middle(&place, to);

    // Without checkpoints, the following steps cannot be repeated, because their settings were
    // different.
    fs::rename(place.path("whole/checkpoints"), place.path("checkpoints")).unwrap();
    fs::create_dir(place.path("whole/checkpoints")).unwrap();
    let replay = ["replay", "whole", "--step", "8", "--prompt", "0", "--sample", "0"];
    let ended = place.run(&replay);
    let expected_words = format!(
        "the policy of step 8 was not saved, and steps 1 to 7 cannot be trained again because the run rolled back to step {to} and changed its settings; steps that can be replayed: "
    );
    assert!(ended.stderr.contains(&expected_words), "{}", ended.stderr);
    fs::remove_dir(place.path("whole/checkpoints")).unwrap();
    fs::rename(place.path("checkpoints"), place.path("whole/checkpoints")).unwrap();

    kill_and_resume(&place, "train", kills().div_ceil(2), 6, whole, &expected);
}

/// Audits a copy of the run `whole` as if it had been killed right after the event of its only
/// roll-back, to step `to`. The records have not been truncated yet.
fn audit_in_the_middle(place: &Place, to: u64) {
    let [whole, killed] = ["whole", "killed"].map(|run| place.path(run));
    fs::create_dir_all(killed.join("checkpoints")).unwrap();
    fs::create_dir_all(killed.join("completions")).unwrap();
    for name in ["config.toml", "run.json"] {
        fs::copy(whole.join(name), killed.join(name)).unwrap();
    }
    for name in ["metrics.jsonl", "ledger.jsonl"] {
        let text = place.read(&format!("whole/{name}"));
        let kept: String = text.split_inclusive('\n').take(to as usize).collect();
        let undone = place.read(&format!("whole/rolled-back/1/{name}"));
        fs::write(killed.join(name), kept + &undone).unwrap();
    }
    fs::create_dir(killed.join("rolled-back")).unwrap();
    copy(&whole.join("rolled-back/1"), &killed.join("rolled-back/1"));
    let text = place.read("whole/events.jsonl");
    let (before, _) = text.split_once("\"event\":\"rolled_back\"").unwrap();
    let lines = before.lines().count();
    let events: String = text.split_inclusive('\n').take(lines).collect();
    fs::write(killed.join("events.jsonl"), events).unwrap();
    place.succeed(&["audit", "killed"]);
    fs::remove_dir_all(killed).unwrap();
}

/// Compares the actions of a guard for a run that collapses without one.
#[test]
fn each_guard_action_has_its_effect() {
    let place = Place::new();
    place.write("train.toml", rolling_back(8));
    let end = |run: &str, guard: &str| {
        let guards = format!("guards=[{guard}]");
        let ended = place.run(&["train", "train.toml", "--set", &guards, "--run", run]);
        (ended, result(&place.path(run)).metrics)
    };
    let largest_kl = |metrics: &[Map<String, Value>]| {
        metrics.iter().map(|line| line["kl"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    // A collapsed policy repeats a single completion, even if it is a good one.
    let entropy = |metrics: &[Map<String, Value>]| metrics[7]["entropy"].as_f64().unwrap();

    let (ended, lost) = end("lost", "");
    assert_eq!((ended.code, lost.len()), (Some(0), 8), "{}", ended.stderr);
    assert!(largest_kl(&lost) > 2.5, "five times the limit below: {}", largest_kl(&lost));

    let watch = "watch=\"kl\", above=0.5";
    let (ended, warned) = end("warned", &format!("{{{watch}, action=\"warn\"}}"));
    assert_eq!((ended.code, &warned), (Some(0), &lost), "{}", ended.stderr);
    assert!(ended.stdout.contains("kl was "), "{}", ended.stdout);

    let (ended, stopped) = end("stopped", &format!("{{{watch}, action=\"stop\"}}"));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(stopped.len() < 8, "no more steps than needed: {}", stopped.len());

    let careful = "learning_rate_factor=0.0001, kl_coef_factor=2";
    let (ended, back) = end("back", &format!("{{{watch}, action=\"roll_back\", {careful}}}"));
    assert_eq!((ended.code, back.len()), (Some(0), 8), "{}", ended.stderr);
    assert!(largest_kl(&back) <= 0.5, "{}", largest_kl(&back));
    assert!(entropy(&back) > 3.0 * entropy(&lost), "{} and {}", entropy(&back), entropy(&lost));
}

/// A guard that triggers repeatedly rolls back further each time, until the learning rate is low
/// enough.
#[test]
fn a_guard_that_triggers_again_rolls_back_further() {
    let place = Place::new();
    let careful = rolling_back(8).replace("factor = 0.0001", "factor = 0.2");
    place.write("train.toml", careful.replace("steps = 8", "steps = 8\nmax_roll_backs = 20"));
    let all = ["train", "train.toml", "--set", "save.every=1", "--set", "save.keep_last=100"];
    let ended = place.succeed(&all);
    let events = events(&place, "run");
    let rolled_back = events.iter().filter(|event| event["event"] == "rolled_back");
    let targets: Vec<u64> = rolled_back.map(|event| event["step"].as_u64().unwrap()).collect();
    assert!(targets.len() >= 2, "{}", ended.stdout);
    for pair in targets.windows(2) {
        assert!(pair[0] != pair[1] || pair[1] == 0, "went back to {targets:?}");
    }
    let metrics = result(&place.path("run")).metrics;
    assert_eq!(metrics.len(), 8);
    for line in &metrics {
        assert!(line["kl"].as_f64().unwrap() <= 0.5, "{line:?}");
    }
    place.succeed(&["audit", "run"]);
}

/// A guard that stops the run or exceeds the maximum number of roll-backs: the model is saved, and
/// the exit code is not 0.
#[test]
fn a_guard_ends_a_run() {
    let place = Place::new();
    place
        .write("train.toml", rolling_back(8).replace("steps = 8", "steps = 8\nmax_roll_backs = 0"));
    let ended = place.run(&["train", "train.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("error: a guard stopped training run run after step ")
            && ended
                .stderr
                .ends_with("; the run has already rolled back 0 times (train.max_roll_backs)\n"),
        "{}",
        ended.stderr
    );
    assert!(place.path("run/model/model.safetensors").exists());
    let last = events(&place, "run").pop().unwrap();
    assert_eq!(last["event"], "stopped");
}

/// A run stopped by a guard or by early stopping is finished, even if it was killed before its last
/// event.
#[test]
fn a_finished_run_does_not_continue() {
    let stops = "\n[[guards]]\nwatch = \"reward\"\nabove = -1.0\nsteps = 3\naction = \"stop\"\n";
    let patience = "every = 1\npatience = 2\nmin_gain = 5.0";
    for (configuration, code, step) in
        [(configuration(8) + stops, 1, 3), (configuration(8).replace("every = 4", patience), 0, 3)]
    {
        let place = Place::new();
        place.write("train.toml", configuration);
        assert_eq!(place.run(&["train", "train.toml"]).code, Some(code));
        let expected = result(&place.path("run"));
        assert_eq!(expected.metrics.len(), step);
        fs::remove_dir_all(place.path("run/model")).unwrap();
        assert_eq!(place.run(&["train", "--resume", "run"]).code, Some(code));
        assert!(result(&place.path("run")) == expected);
    }
}

/// Early stopping is a normal end, unlike a guard that stops a run.
#[test]
fn a_run_that_no_longer_improves_is_finished() {
    let place = Place::new();
    let patience = "every = 1\npatience = 2\nmin_gain = 5.0";
    place.write("train.toml", configuration(8).replace("every = 4", patience));
    place.succeed(&["train", "train.toml"]);
    let ends = events(&place, "run");
    let ends: Vec<&serde_json::Value> =
        ends[ends.len() - 2..].iter().map(|event| &event["event"]).collect();
    assert_eq!(ends, ["stopped", "finished"]);
    let sample = ["sample", "--model", "run/model", "-n", "3"];
    let sampled = place.succeed(&sample).stderr;
    assert!(!sampled.contains("belongs to"), "{sampled}");
    let audited = place.succeed(&["audit", "run"]).stdout;
    assert!(!audited.contains("VIOLATED"), "{audited}");
    let report = place.succeed(&["report", "run"]).stdout;
    assert!(
        report.contains("; stopped early after step 3: no evaluation up to step 3 improved"),
        "{report}"
    );
    let expected = result(&place.path("run"));
    let resumed = place.succeed(&["train", "--resume", "run"]).stdout;
    let said = "finished     run: it ended after step 3 of 8, because the evaluations no longer improved (eval.patience); ";
    assert!(resumed.starts_with(said), "{resumed}");
    assert!(result(&place.path("run")) == expected);

    let stops = "\n[[guards]]\nwatch = \"reward\"\nabove = -1.0\nsteps = 3\naction = \"stop\"\n";
    place.write("train.toml", configuration(8) + stops);
    assert_eq!(place.run(&["train", "train.toml", "--run", "stopped"]).code, Some(1));
    let sampled = place.succeed(&["sample", "--model", "stopped/model", "-n", "3"]).stderr;
    let said = "warning: stopped/model belongs to a run that did not reach its end: a guard stopped the run; `grpo report stopped` shows why\n";
    assert!(sampled.contains(said), "{sampled}");
}

/// Resuming a finished run changes nothing and suggests a longer run.
#[test]
fn a_finished_run_is_finished() {
    let place = Place::new();
    place.write("train.toml", configuration(2));
    place.succeed(&["train", "train.toml"]);
    let expected = result(&place.path("run"));
    let again = place.succeed(&["train", "--resume", "run"]);
    assert_eq!(
        again.stdout,
        "finished     run: all 2 steps are done; `grpo report run` shows the run\ntrain longer grpo train run/config.toml --set model=run/model --run run-longer\n"
    );
    assert_eq!(result(&place.path("run")), expected);
    // The suggested command works.
    let longer = again.stdout.rsplit_once("train longer grpo ").unwrap().1;
    place.succeed(&longer.split_whitespace().collect::<Vec<_>>());
    assert!(place.path("run-longer/model/model.safetensors").is_file());
}

/// Starts a training run on a terminal, which `script` opens. The run's process id is in the file
/// `pid`. Returns `None` if `script` is not installed.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "says why a test is skipped")]
fn train_on_a_terminal(place: &Place) -> Option<Child> {
    let program = env!("CARGO_BIN_EXE_grpo");
    let line = format!("stty rows 24 cols 80; echo $$ > pid; exec '{program}' train train.toml");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").current_dir(place.path("."));
    script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    match script.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!(
                "skipped, because the program `script` (bsdutils or util-linux) is not installed"
            );
            None
        }
        started => Some(started.unwrap()),
    }
}

/// A run with a live screen is interrupted if its terminal closes, and does not wait for it.
#[test]
#[cfg(target_os = "linux")]
fn a_closed_terminal_interrupts_a_run() {
    let place = Place::new();
    place.write("train.toml", configuration(400));
    let Some(mut terminal) = train_on_a_terminal(&place) else { return };
    wait_for(&place.path("run/checkpoints/step-2"));
    // The terminal closes when its program ends.
    terminal.kill().unwrap();
    terminal.wait().unwrap();

    let process = format!("/proc/{}/stat", place.read("pid").trim());
    let begun = Instant::now();
    // Its new parent may leave it as a zombie.
    while fs::read_to_string(Path::new(&process)).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run waits for its terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
    let steps = place.read("run/metrics.jsonl").lines().count();
    assert!(steps < 400 && place.path(&format!("run/checkpoints/step-{steps}")).exists());
    place.succeed(&["audit", "run"]);
}

/// The key `q` stops a run within moments, even after many other keys.
#[test]
#[cfg(target_os = "linux")]
fn keys_are_read_without_delay() {
    let place = Place::new();
    place.write("train.toml", configuration(100_000));
    let Some(mut terminal) = train_on_a_terminal(&place) else { return };
    wait_for(&place.path("run/checkpoints/step-2"));
    let mut keys = terminal.stdin.take().unwrap();
    let begun = Instant::now();
    keys.write_all(format!("{:x>1000}", "q").as_bytes()).unwrap();
    let ended = loop {
        if let Some(ended) = terminal.try_wait().unwrap() {
            break ended;
        }
        // If each key waited for the next frame, it would take 50 seconds.
        if begun.elapsed() > Duration::from_secs(25) {
            terminal.kill().unwrap();
            panic!("the run does not stop");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(ended.code(), Some(130));
    place.succeed(&["audit", "run"]);
}

//! Runs that fail before their first step is recorded.

use std::process::Command;

use crate::own_rewards::place;
use crate::resume::wait_for;
use crate::support::{Ended, Place};

/// Fails as long as there is a file `broken`.
const REWARD: &str = "import os
def reward(completion):
    if os.path.exists('broken'): raise ValueError('boom')
    return completion.count('C')
";

const PYTHON: &str = "type = \"python\"\nfile = \"my_reward.py\"\n";

/// Trains with a reward that raises an exception.
fn failed(set: &[&str]) -> (Place, Ended) {
    let place = place(PYTHON);
    place.write("my_reward.py", REWARD);
    place.write("broken", "");
    // The trial would be refused before there is a run.
    let set = ["preflight.samples=0"].iter().chain(set).flat_map(|pair| ["--set", *pair]);
    let ended = place.run(&["train", "train.toml"].into_iter().chain(set).collect::<Vec<_>>());
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("error: training run run ended early: "), "{}", ended.stderr);
    assert!(
        ended.stdout.contains(
            "resume       grpo train --resume run --run-reward   # with the same reward files\n"
        ),
        "{}",
        ended.stdout
    );
    (place, ended)
}

/// Checks that audit and report say why there is nothing to show. Returns the command that resumes the run,
/// which both of them name.
#[track_caller]
fn check_reason(place: &Place, reason: &str) -> Vec<String> {
    let mut resume = Vec::new();
    for (command, start) in
        [("audit", "error: nothing to audit: `run`"), ("report", "error: `run`")]
    {
        let ended = place.run(&[command, "run"]);
        assert_eq!(ended.code, Some(1));
        let start = format!("{start} stopped before its first step: {reason}");
        assert!(ended.stderr.starts_with(&start), "{}", ended.stderr);
        let (_, named) = ended.stderr.split_once("; resume it with `grpo ").unwrap();
        resume.push(named.strip_suffix("`\n").unwrap().to_owned());
    }
    assert_eq!(resume[0], resume[1]);
    resume[0].split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_run_that_fails_in_its_first_evaluation_says_how_to_go_on() {
    let (place, ended) = failed(&[]);
    let again = "             after changing a reward file: grpo train run/config.toml --force\n";
    assert!(ended.stdout.ends_with(again), "{}", ended.stdout);
    check_reason(&place, "the reward failed for");
    // It fails again for the same reason.
    let resume = ["train", "--resume", "run", "--run-reward"];
    assert_eq!(place.run(&resume).code, Some(1));
    assert_eq!(check_reason(&place, "the reward failed for"), resume);
    let sampled = place.run(&["sample", "--model", "run/model"]);
    let (_, named) = sampled.stderr.split_once("; `grpo ").unwrap();
    let (named, _) = named.split_once("` finishes the run and writes it").unwrap();
    std::fs::remove_file(place.path("broken")).unwrap();
    place.succeed(&named.split_whitespace().collect::<Vec<_>>());
    let audited = place.succeed(&["audit", "run"]).stdout;
    assert!(!audited.contains("VIOLATED"), "{audited}");
    place.succeed(&["report", "run"]);

    let (place, _) = failed(&[]);
    place.write("my_reward.py", REWARD.replace("raise ValueError('boom')", "pass"));
    let refused = place.run(&resume);
    assert!(refused.stderr.contains("start again in a new run"), "{}", refused.stderr);
    place.succeed(&["train", "run/config.toml", "--force"]);
    place.succeed(&["audit", "run"]);
}

#[test]
fn a_run_that_fails_in_its_first_rollout_says_how_to_go_on() {
    let (place, _) = failed(&["eval.samples=0"]);
    let resume = check_reason(&place, "the reward failed for");
    std::fs::remove_file(place.path("broken")).unwrap();
    place.succeed(&resume.iter().map(String::as_str).collect::<Vec<_>>());
    let audited = place.succeed(&["audit", "run"]).stdout;
    assert!(!audited.contains("VIOLATED"), "{audited}");
}

/// Trains until the first checkpoint. A file size limit simulates a disk that becomes full while it is
/// written.
#[cfg(target_os = "linux")]
fn failed_in_its_first_checkpoint(place: &Place) -> Ended {
    let back = "guards=[{watch=\"kl\", above=9, action=\"roll_back\"}]";
    let script = "trap '' XFSZ; ulimit -f 24; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_grpo"), "train", "train.toml"]);
    shell.args(["--set", back]).current_dir(place.path("."));
    let ended = Ended::of_command(&mut shell);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("error: training run run ended early: "), "{}", ended.stderr);
    ended
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_fails_in_its_first_checkpoint_says_how_to_go_on() {
    let place = Place::for_training();
    let ended = failed_in_its_first_checkpoint(&place);
    assert!(ended.stdout.ends_with("resume       grpo train --resume run\n"), "{}", ended.stdout);
    assert_eq!(check_reason(&place, "cannot write"), ["train", "--resume", "run"]);
    place.succeed(&["train", "--resume", "run"]);
    let audited = place.succeed(&["audit", "run"]).stdout;
    assert!(!audited.contains("VIOLATED"), "{audited}");
}

/// A model that could not be saved is not a start for another run.
#[test]
#[cfg(target_os = "linux")]
fn a_run_that_cannot_save_its_model_does_not_advise_to_start_from_it() {
    let place = place(PYTHON);
    place.write("my_reward.py", REWARD);
    let ended = failed_in_its_first_checkpoint(&place);
    assert!(!ended.stdout.contains("start a new run from"), "{}", ended.stdout);
    let again = "             after changing a reward file: grpo train run/config.toml --force\n";
    assert!(ended.stdout.ends_with(again), "{}", ended.stdout);
}

/// Nobody said yet why the run has no steps.
#[test]
#[cfg(unix)]
fn a_run_without_steps_is_not_one_of_an_older_version() {
    let place = Place::for_training();
    let mut child = place.spawn(&["train", "train.toml", "--set", "eval.samples=4000"]);
    wait_for(&place.path("run/run.json"));
    child.kill().unwrap();
    child.wait().unwrap();
    place.refuse(
        &["audit", "run"],
        "nothing to audit: `run` has no completed step yet; wait for the first one, or resume it with `grpo train --resume run` if it has ended",
    );
}

/// The report of a finished run whose reward was corrected afterwards.
#[test]
fn a_changed_reward_file_is_not_a_contradiction_in_the_run() {
    let place = place(PYTHON);
    place.write("my_reward.py", REWARD);
    place.succeed(&["train", "train.toml"]);
    let before = place.succeed(&["report", "run"]).stdout;
    place.write("my_reward.py", format!("{REWARD}# corrected\n"));
    let report = place.succeed(&["report", "run"]).stdout;
    let (verdict, _) = before.split_once('\n').unwrap();
    assert!(report.starts_with(&format!("{verdict}\n")), "{before}{report}");
    assert!(
        report.contains("\n  warning     Inputs: `my_reward.py` (reward) changed after the run"),
        "{report}"
    );
    let page = place.read("run/report.html");
    assert!(page.contains("<em>(warning)</em>"), "{page}");
    // A run that has not finished cannot be resumed with another file.
    let events = place.read("run/events.jsonl");
    let unfinished = events.trim_end().rfind('\n').map_or("", |end| &events[..=end]);
    place.write("run/events.jsonl", unfinished);
    let report = place.succeed(&["report", "run"]).stdout;
    assert!(report.contains("\n  failed      Inputs: `my_reward.py` (reward) changed"), "{report}");
    place.write("run/events.jsonl", events);
    // Nothing but its records contradicts them.
    let ledger = place.read("run/ledger.jsonl");
    place.write("run/ledger.jsonl", ledger.replace("\"step\":2", "\"step\":7"));
    let report = place.succeed(&["report", "run"]).stdout;
    assert!(report.starts_with("run: The files of the run contradict each other\n"), "{report}");
}

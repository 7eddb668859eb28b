//! `grpo report`.

use snapbox::str;

use crate::support::{Place, small_model};
use std::fs;

/// Creates a place with the run `run` of three steps.
fn trained() -> Place {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    place
}

#[test]
fn a_run_is_shown_in_its_folder_and_says_its_verdict() {
    let place = trained();
    let ended = place.succeed(&["report", "run"]);
    let mut lines = ended.stdout.lines();
    let headline = lines.next().unwrap().strip_prefix("run: ").unwrap().to_owned();
    // Three steps are too few to judge whether the reward increased, but the evaluations are not.
    let reward = lines.next().unwrap();
    assert!(reward.contains("  Reward rises: from "), "{reward}");
    assert!(reward.contains(" after training (evaluations of 20 molecules), "), "{reward}");
    let page = place.read("run/report.html");
    // The terminal and the page use the same words.
    assert!(page.contains(&format!("<p class=\"word\">{headline}</p>")), "{headline}");
    let criteria: Vec<&str> = lines.clone().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(criteria.len(), 5, "{criteria:?}");
    for line in [&[reward][..], &criteria[..]].concat() {
        let (name, sentence) = line[14..].split_once(": ").unwrap();
        for words in [name, sentence] {
            let escaped = words.replace('/', "&#x2f;").replace('`', "&#x60;").replace('<', "&lt;");
            let is_there = page.contains(words) || page.contains(&escaped);
            assert!(is_there, "{words:?} is not in the report");
        }
    }
    assert_eq!(lines.last(), Some("report       run/report.html"));
    for words in [
        "<h1>run</h1>",
        "<b>steps</b> 3 of 3",
        "<h3>Reward</h3>",
        "<h3>Reward component: qed</h3>",
        "<h3>Rewards of individual completions</h3>",
        "<h3>Step time</h3>",
        "<h2>Before and after</h2>",
        "<h2>Best molecules after step 3</h2>",
        "All recorded completions of steps 1 and 3.",
    ] {
        assert!(page.contains(words), "{words:?} is not in the report");
    }
    // The same files give the same page.
    place.succeed(&["report", "run", "-o", "again.html"]);
    place.refuse(
        &["report", "run", "-o", "again.html"],
        str!["again.html already exists; choose another file, or replace it with --force"],
    );
    for more in [&["-o", "again.html", "--force"][..], &["--force"]] {
        place.succeed(&[&["report", "run"], more].concat());
    }
    assert_eq!(place.read("again.html"), page);
    assert_eq!(place.read("run/report.html"), page);
}

#[test]
fn runs_are_compared() {
    let place = trained();
    let other = ["train", "train.toml", "--run", "deep/run", "--set", "seed=2"];
    place.succeed(&other);
    place.refuse(
        &["report", "run", "deep/run"],
        str!["a report on several runs requires an output file; set it with -o"],
    );
    place.succeed(&["report", "run", "deep/run", "-o", "both.html"]);
    let page = place.read("both.html");
    // Folders with the same name are listed with their paths.
    assert!(page.contains("<h1>run · deep&#x2f;run</h1>"));
    assert!(page.contains("<tr><td><code>seed</code></td><td>1</td><td>2</td></tr>"));
}

#[test]
fn a_supervised_run_is_shown() {
    let place = Place::new();
    let prior = small_model().parent().unwrap().to_str().unwrap();
    let ended = place.succeed(&["report", prior, "-o", "x.html"]);
    assert!(ended.stdout.starts_with("prior: Success\n  passed      Validation loss falls: from "));
    let page = place.read("x.html");
    for words in [
        "<h2>Validations</h2>",
        "<h3>Supervised loss</h3>",
        "<h3>Learning rate</h3>",
        "<h3>Gradient norm</h3>",
    ] {
        assert!(page.contains(words), "{words:?} is not in the report");
    }
}

#[test]
fn refuses_folders_that_are_not_runs() {
    let place = trained();
    place.refuse(
        &["report", "nowhere"],
        str!["`nowhere` is not a run folder (no `run.json`); check the path"],
    );
    place.refuse(
        &["report", "run", "./run", "-o", "x.html"],
        str!["`./run` was specified more than once; specify each run once"],
    );
    place.refuse(
        &["report", "run", "-o", "run/metrics.jsonl"],
        str!["-o run/metrics.jsonl: the output is a page; use a name that ends in .html"],
    );
}

#[test]
fn a_run_is_shown_as_far_as_it_got() {
    let place = trained();
    let metrics = place.read("run/metrics.jsonl");
    // Killed while writing the second line.
    let end = metrics.find('\n').unwrap();
    place.write("run/metrics.jsonl", &metrics[..end + 40]);
    place.succeed(&["report", "run"]);
    assert!(place.read("run/report.html").contains("<b>steps</b> 1 of 3"));

    fs::remove_file(place.path("run/report.html")).unwrap();
    place.write("run/metrics.jsonl", &metrics[..end]);
    place.refuse(
        &["report", "run"],
        "`run/metrics.jsonl` is damaged: it has no steps, but events.jsonl records that the run finished after step 3; restore it from a copy, or start a new run (the trained weights are not affected)",
    );
    // Of a run that did not finish, there is nothing to show yet.
    let events = place.read("run/events.jsonl");
    let finished = events.trim_end().rfind('\n').unwrap();
    place.write("run/events.jsonl", &events[..=finished]);
    let nothing = "`run` has no finished steps yet; wait for the first line of its metrics.jsonl, or resume it with `grpo train --resume run` if it has ended";
    place.refuse(&["report", "run"], nothing);
    fs::remove_file(place.path("run/metrics.jsonl")).unwrap();
    place.refuse(&["report", "run"], nothing);
}

#[test]
fn reports_damage() {
    let place = trained();
    let config = place.read("run/config.toml");
    place.write("run/config.toml", "run = [");
    let ended = place.run(&["report", "run"]);
    assert!(
        ended.stderr.starts_with("error: `run/config.toml` is damaged: ")
            && ended.stderr.ends_with("; restore it from a copy\n"),
        "{}",
        ended.stderr
    );
    place.write("run/config.toml", config.replace("max_kl", "most_kl"));
    place.refuse(
        &["report", "run"],
        str!["`run/config.toml` has an invalid section [success]: unknown key `most_kl`, expected one of `reward_rise`, `max_kl`, `max_kl_sequence`, `min_validity`, `max_validity_drop`, `max_zero_std`, `max_diversity_drop`, `components`"],
    );
    place.write("run/config.toml", config);
    let metrics = place.read("run/metrics.jsonl");
    place.write("run/metrics.jsonl", metrics.replacen("{\"step\":2", "\"step\":2", 1));
    let ended = place.run(&["report", "run"]);
    assert!(
        ended.stderr.starts_with("error: line 2 of `run/metrics.jsonl` is damaged: "),
        "{}",
        ended.stderr
    );
    assert!(!place.path("run/report.html").exists());
}

#[test]
fn criteria_out_of_range_are_refused_before_the_run() {
    let place = Place::for_training();
    place.refuse(
        &["train", "train.toml", "--set", "success.min_validity=80"],
        str!["--set success.min_validity=80: success.min_validity = 80 is out of range; expected 0 to 1"],
    );
}

/// What a reward component must do is a criterion, and it must exist.
#[test]
fn components_have_criteria() {
    let place = Place::for_training();
    place.refuse(
        &["train", "train.toml", "--set", "success.components.logp=rises"],
        str!["success.components.logp: the reward of this run has no such component; expected one of valid, qed, sa"],
    );
    let sets = ["--set", "success.components={sa=\"rises\",qed=\"does_not_fall\"}"];
    place.succeed(&[&["train", "train.toml"], &sets[..]].concat());
    let lines = place.succeed(&["report", "run"]).stdout;
    for name in ["Component qed does not fall: from ", "Component sa rises: from "] {
        let line = lines.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {lines}"));
        assert!(line.contains(" after training (evaluations of 20 molecules), "), "{line}");
    }
    place.refuse(
        &["train", "train.toml", "--run", "other", "--set", "success.components.sa=up"],
        str!["--set success.components.sa=up: [..]"],
    );
}

/// A reward that abstains from everything teaches nothing, and the report says so.
#[test]
#[cfg(unix)]
fn a_reward_that_always_abstains_is_no_signal() {
    let place = Place::for_training();
    place.write("none.py", "def reward(completions, **_):\n    return [None] * len(completions)\n");
    let text = place.read("train.toml");
    let (before, after) = text.split_once("[reward]").unwrap();
    let (_, after) = after.split_once("[loss]").unwrap();
    let reward = "[reward]\ntype = \"python\"\nfile = \"none.py\"\ninvalid = \"send\"\n\n[loss]";
    place.write("train.toml", format!("{before}{reward}{after}"));
    // The trial would refuse this reward.
    let settings = ["--set", "eval.samples=0", "--set", "preflight.samples=0"];
    let ended = place.run(&[&["train", "train.toml"], &settings[..]].concat());
    if ended.code != Some(0) {
        // The run may be stopped because it cannot learn.
        assert!(!ended.stderr.is_empty());
    }
    let lines = place.succeed(&["report", "run"]).stdout;
    let signal = lines.lines().find(|line| line.contains(" Signal is consistent: ")).unwrap();
    assert!(signal.starts_with("  failed      Signal is consistent: no completion had a reward "));
}

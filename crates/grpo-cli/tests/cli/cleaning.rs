//! `grpo clean-data`: which pairs of tweets and replies are kept, and why others are dropped.

use std::collections::BTreeSet;

use grpo_replies::read_pairs;
use serde_json::{Value, json};
use snapbox::str;

use crate::pairs::lines;
use crate::support::Place;
use crate::texts::objects;

/// A pair that passes all rules.
fn good(tweet: u64, reply: &str, likes: u64) -> Value {
    json!({
        "tweet_id": tweet, "tweet": "What is the best thing that you have grown in your garden?",
        "reply": reply, "reply_likes": likes, "reply_author": "ann", "lang": "en",
    })
}

#[test]
fn reports_why_each_line_was_dropped() {
    let place = Place::new();
    let (tomatoes, coffee) = (
        "The tomatoes on my balcony survived three storms and one curious neighbour cat",
        "Quiet mornings with strong coffee while watching small birds steal every single cherry",
    );
    let records = [
        good(1, tomatoes, 5),
        good(1, &format!("{tomatoes}!!!"), 9),
        good(2, coffee, 4),
        good(2, "nice", 1),
    ];
    place.write("pairs.jsonl", lines(&records) + "broken\n");
    let arguments = [
        "clean-data",
        "--input",
        "pairs.jsonl",
        "-o",
        "clean.jsonl",
        "--rejected",
        "gone.jsonl",
        "--skip",
        "filter",
    ];
    let ended = place.succeed(&arguments);
    for words in [
        "pairs.jsonl: 4 pairs, 1 invalid line\n",
        "  left out: pairs.jsonl:5: the line is not a JSON object: ",
        "kept         2 of 4 (50.0 %)\n",
        "semantic_duplicate   1 pair removed\n",
        "toxicity             4 pairs not checked",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let clean = objects(&place.read("clean.jsonl"));
    let replies: Vec<&Value> = clean.iter().map(|pair| &pair["reply"]).collect();
    assert_eq!(replies, [&json!(format!("{tomatoes}!!")), &json!(coffee)]);
    assert_eq!(clean[0]["validation"], json!({"valid": true, "reasons": []}));
    let gone = objects(&place.read("gone.jsonl"));
    let told: Vec<_> = gone.iter().map(|line| (line["line"].as_u64(), &line["step"])).collect();
    let steps = ["cleaning", "validation", "reading"].map(Value::from);
    assert_eq!(told, [(Some(1), &steps[0]), (Some(4), &steps[1]), (Some(5), &steps[2])]);
    let reasons = gone[1]["validation"]["reasons"].as_array().unwrap();
    let rules: Vec<&Value> = reasons.iter().map(|reason| &reason["rule"]).collect();
    assert_eq!(rules, ["length", "content_words", "likes"]);
    assert_eq!(gone[1]["record"]["reply"], "nice");
    // The output is a valid file of pairs.
    assert_eq!(read_pairs(&place.path("clean.jsonl")).unwrap().pairs.len(), 2);

    place.refuse(
        &arguments,
        str!["clean.jsonl already exists; choose another file, or replace it with --force"],
    );
    place.write("rules.toml", "[validation]\nmin_likes = 100\n");
    let mut with_rules = vec!["--config", "rules.toml", "--force"];
    with_rules.splice(0..0, arguments);
    // An empty output file would make the next command fail. The existing file is kept.
    let ended = place.run(&with_rules);
    let nothing = "error: all 4 pairs in pairs.jsonl were removed (likes (4), content_words (1), length (1)); change these rules with --config, or skip steps with --skip\n";
    assert!(ended.stderr.ends_with(nothing), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1));
    // The same rule without a configuration file.
    let mut with_set = vec!["--set", "validation.min_likes=100", "--force"];
    with_set.splice(0..0, arguments);
    assert!(place.run(&with_set).stderr.ends_with(nothing));
    assert_eq!(objects(&place.read("clean.jsonl")).len(), 2);
    // The reasons for dropping all pairs are still written.
    let gone = objects(&place.read("gone.jsonl"));
    assert_eq!(gone.iter().filter(|line| line["step"] == "validation").count(), 4);
    place.write("rules.toml", "[validation]\nmin_like = 1\n");
    let ended = place.run(&with_rules);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("min_like"), "{}", ended.stderr);
}

/// Regression test: both output files used the same temporary name.
#[test]
fn writes_both_files_or_none() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&[good(1, "yes", 5)]));
    std::fs::create_dir(place.path("a")).unwrap();
    std::os::unix::fs::symlink("a", place.path("b")).unwrap();
    for (output, rejected) in [("same", "./same"), ("a/same", "b/same"), ("a/../same", "same")] {
        let words = format!("--output and --rejected are both {output}; use different files");
        place.refuse(
            &["clean-data", "--input", "pairs.jsonl", "-o", output, "--rejected", rejected],
            &words,
        );
    }
    place.refuse(
        &[
            "clean-data",
            "--input",
            "pairs.jsonl",
            "-o",
            "out",
            "--rejected",
            "b/../pairs.jsonl",
            "--force",
            "--skip",
            "filter",
            "--skip",
            "validation",
        ],
        str!["b/../pairs.jsonl is the input; use another file for --rejected"],
    );
    assert_eq!(std::fs::read_dir(place.path("a")).unwrap().count(), 0);
    let names = std::fs::read_dir(place.path(".")).unwrap();
    let names: BTreeSet<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a", "b", "pairs.jsonl"].map(Into::into).into());
}

#[test]
fn pairs_on_standard_output_are_not_mixed_with_words() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&[good(1, "yes", 5)]));
    let arguments = ["--input", "pairs.jsonl", "--skip", "filter", "--skip", "validation"];
    let ended = place.succeed(&[&["clean-data", "-o", "/dev/stdout"], &arguments[..]].concat());
    assert_eq!(objects(&ended.stdout).len(), 1);
    assert!(ended.stderr.contains("kept         1 of 1"), "{}", ended.stderr);
    // If the shell redirects the output to a file, the name in /dev refers to it, but must not be
    // replaced.
    let to_file = std::fs::File::create(place.path("out.jsonl")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_grpo"));
    command.args(["clean-data", "-o", "/dev/stdout"]).args(arguments);
    let ended = command.current_dir(place.path(".")).stdout(to_file).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(objects(&place.read("out.jsonl")).len(), 1);
    assert!(std::fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
}

#[test]
fn reports_only_the_steps_that_ran() {
    let place = Place::new();
    let mut own = good(1, "A reply that nobody looked at, as it stands here.", 5);
    own["validation"] = json!("mine");
    let mut bare = good(2, "Another reply that nobody looked at, and of nobody.", 5);
    for key in ["reply_likes", "reply_author"] {
        bare.as_object_mut().unwrap().remove(key);
    }
    place.write("pairs.jsonl", lines(&[own.clone(), bare.clone()]));
    let arguments = ["clean-data", "--input", "pairs.jsonl", "--skip", "cleaning"];
    let to = |name: &'static str, more: &[&'static str]| {
        place.succeed(&[&arguments[..], &["-o", name], more].concat());
        objects(&place.read(name))
    };
    // Neither file contains the likes of the tweet.
    let kept = to("kept.jsonl", &["--skip", "validation"]);
    for (kept, mut given) in kept.iter().zip([own, bare]) {
        let id = given["tweet_id"].to_string();
        given["tweet_id"] = json!(id);
        assert_eq!(json!(kept), given);
    }
    assert_eq!(kept.len(), 2);
}

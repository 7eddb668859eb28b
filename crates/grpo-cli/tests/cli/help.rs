//! The help texts.

use std::path::Path;

use crate::support::Place;

#[test]
fn the_list_of_commands_and_the_help_of_each_begin_with_the_same_sentence() {
    let place = Place::new();
    let help = |arguments: &[&str]| {
        let output = place.command(arguments).env("COLUMNS", "1000").output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let program = help(&["-h"]);
    assert!(program.contains("\nFirst steps:\n  grpo init-project demo"), "{program}");
    let commands = program.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let commands: Vec<(&str, &str)> = commands
        .filter(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
        })
        .collect();
    assert!(commands.len() > 20, "{program}");
    for (name, sentence) in commands {
        let (own, sentence) = (help(&[name, "--help"]), sentence.trim());
        assert!(own.starts_with(sentence), "{name}: {own}");
        // Each text has a one-line summary, headings for options, and examples.
        assert!(sentence.len() < 70 && !sentence.ends_with('.'), "{name}: {sentence}");
        assert!(own.contains("\nExamples:\n  grpo "), "{name}: {own}");
        // `grpo init-project` writes the pages that it names.
        for page in own.split("docs/").skip(1).filter_map(|rest| rest.split_once(".md")) {
            let page = format!("docs/{}.md", page.0);
            let is_there =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&page).is_file();
            assert!(is_there && page != "docs/LOG.md", "{name}: {page}");
        }
        assert!(!own.contains("\nOptions:\n"), "{name}: {own}");
        assert!(own.contains("\nGlobal options:\n"), "{name}: {own}");
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.succeed(&["completions", shell]).stdout;
        for word in ["init-project", "train-judge", "no-resume-check", "score-column"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let unknown = place.run(&["completions", "tcsh"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);

    let written = place.succeed(&["man", "pages"]);
    let pages = std::fs::read_dir(place.path("pages")).unwrap().count();
    assert_eq!(written.stdout, format!("written      pages ({pages} pages)\n"));
    assert!(pages > 20);
    assert!(place.read("pages/grpo.1").contains("grpo\\-train(1)"));
    let train = place.read("pages/grpo-train.1");
    for text in [".TH grpo-train 1", "\\-\\-resume", "grpo train \\-\\-resume runs/short"] {
        assert!(train.contains(text), "{text}: {train}");
    }
    // Existing pages are overwritten.
    place.succeed(&["man", "pages"]);
}

#[test]
fn quiet_commands_print_nothing_but_errors_and_data() {
    let place = Place::for_training();
    let ended = place.succeed(&["train", "train.toml", "--quiet"]);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
    assert!(place.path("run/model/model.safetensors").is_file());
    place.refuse(
        &["-q", "train", "train.toml"],
        "run folder `run` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one",
    );
    let sampled = place.succeed(&["sample", "--model", "run/model", "-n", "5", "-q"]);
    assert_eq!((sampled.stdout.lines().count(), sampled.stderr.as_str()), (5, ""));
}

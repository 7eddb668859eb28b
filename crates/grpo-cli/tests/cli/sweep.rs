//! `grpo sweep`.

use grpo_run::CompletionRecord;
use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::training_texts;

const SWEEP: [&str; 9] = [
    "sweep",
    "train.toml",
    "--seeds=2",
    "--set=loss.kl_coef=0.05,0.1",
    "--set=train.steps=2",
    "-o",
    "sweep",
    "--",
    "-n20",
];

#[test]
fn values_and_seeds_are_trained_and_compared() {
    let place = Place::for_training();
    let before = place.files();
    let checked = place.succeed(&[&SWEEP[..7], &["--check"], &SWEEP[7..]].concat());
    assert_eq!(place.files(), before);
    let lines = checked.stdout.lines();
    let (after, stages): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| line.starts_with("summary ") || line.starts_with("grpo sweep: "));
    assert_eq!(stages.len(), 8, "{}", checked.stdout);
    assert!(after[0].ends_with(" --output=sweep/comparison.json"), "{after:?}");
    let valid = "grpo sweep: pipeline of 8 stages is valid (models and data were not read)";
    assert_eq!(after.last(), Some(&valid));
    assert_eq!(
        stages[1].split_whitespace().collect::<Vec<_>>().join(" "),
        "kl_coef-0.05/seed-2 grpo train train.toml --set=loss.kl_coef=0.05 --set=train.steps=2 --set=seed=2 '--set=run=\"sweep/kl_coef-0.05/seed-2\"'"
    );
    let ended = place.succeed(&SWEEP);
    assert!(ended.stdout.contains("kl_coef-0.05"), "{}", ended.stdout);
    let compared = place.read("sweep/comparison.md");
    assert!(compared.starts_with("| metric | kl_coef-0.05 | kl_coef-0.1 |\n"), "{compared}");
    assert_eq!(place.read("sweep/samples/kl_coef-0.1-seed-2.smi").lines().count(), 20);
    let config = place.read("sweep/kl_coef-0.1/seed-2/config.toml");
    assert!(config.contains("kl_coef = 0.1") && config.contains("seed = 2"), "{config}");

    // A deleted result is computed again, and the others are kept.
    std::fs::remove_file(place.path("sweep/samples/kl_coef-0.1-seed-2.smi")).unwrap();
    let again = place.succeed(&SWEEP);
    assert_eq!(again.stdout.matches(" reused ").count(), 7, "{}", again.stdout);
    assert_eq!(place.read("sweep/comparison.md"), compared);

    // A seed can be added; with --quiet, the comparison is written, too.
    let added = [&["sweep", "train.toml", "--seeds=3", "--quiet"], &SWEEP[3..]].concat();
    let ended = place.succeed(&added);
    assert_eq!(ended.stdout, "");
    assert_ne!(place.read("sweep/comparison.md"), compared);
    // Other samples of the same models.
    let more = [&["sweep", "train.toml", "--seeds=3"], &SWEEP[3..8], &["-n30"]].concat();
    place.succeed(&more);
    assert_eq!(place.read("sweep/samples/kl_coef-0.1-seed-2.smi").lines().count(), 30);
    place.refuse(
        &["sweep", "train.toml", "-o", "sweep"],
        str!["sweep/sweep.toml is of runs with other options; choose another folder with -o, or delete this one"],
    );
    // A wrong key is found before the first run, and leaves nothing that has to be deleted.
    for key in ["loss.beta", "loss.gamma"] {
        let set = format!("--set={key}=1");
        let ended = place.run(&["sweep", "train.toml", &set, "-o", "other"]);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("unknown key '{key}'")), "{}", ended.stderr);
    }
    place.refuse(
        &["sweep", "train.toml", "--seeds", "0", "-o", "other"],
        str!["--seeds 0: expected a number of seeds, e.g. 3, or seeds separated by commas, e.g. 42,123,456"],
    );
}

/// Old and new runs would have learned from different data.
#[test]
fn a_sweep_is_not_continued_with_other_data() {
    let place = Place::for_pretraining();
    let sweep = ["sweep", "pretrain.toml", "--seeds=1", "-o", "s", "--train-only"];
    place.succeed(&sweep);
    place.write("molecules.smi", place.read("molecules.smi") + "CCCCO\n");
    place.refuse(
        &sweep,
        str!["molecules.smi has changed since `baseline/seed-1` was trained; its results would not be comparable with those of new runs: undo the change, or choose another folder with -o"],
    );
}

#[test]
fn a_failing_combination_does_not_stop_the_others() {
    let place = Place::for_training();
    let rewards =
        "--set=reward={type='command',command=['false']},{type='molecule',qed=0.7,sa=0.3}";
    let ended = place.run(&["sweep", "train.toml", rewards, "-o", "s", "--", "-n5"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let message = "2 of 4 stages failed or lack their inputs: ";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    let samples = std::fs::read_dir(place.path("s/samples")).unwrap().map(Result::unwrap);
    // Hidden files record the commands of stages.
    let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
    assert_eq!(samples.filter(|file| !is_hidden(&file.file_name())).count(), 1);
}

#[test]
fn diversity_is_followed_over_steps_and_phases() {
    let place = Place::for_training();
    let run = |name: &str, seed: &str| {
        let (run, seed) = (format!("--set=run={name}"), format!("--set=seed={seed}"));
        place.succeed(&["train", "train.toml", &run, &seed, "--set=save.completions_every=1"]);
    };
    run("one", "1");
    run("two", "2");
    let outputs = ["-o", "dynamics.json", "-o", "dynamics.html"];
    let ended = place.succeed(&[&["dynamics", "one", "two"], &outputs[..]].concat());
    assert!(ended.stdout.contains("internal_diversity"), "{}", ended.stdout);
    let found: Value = serde_json::from_str(&place.read("dynamics.json")).unwrap();
    let steps: Vec<[u64; 2]> = found["snapshots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| [of["phase"].as_u64().unwrap(), of["step"].as_u64().unwrap()])
        .collect();
    // The steps of the second run follow the three of the first one.
    assert_eq!(steps, [[0, 1], [0, 2], [0, 3], [1, 4], [1, 5], [1, 6]]);
    assert_eq!(found["config"]["suite"], "molecules");
    assert!(found["snapshots"][0]["validity"].is_number(), "{found}");
    assert!(place.read("dynamics.html").contains("<svg"));
    place.succeed(&["dynamics", "one", "--every", "3", "-o", "some.json"]);
    let found: Value = serde_json::from_str(&place.read("some.json")).unwrap();
    assert_eq!(found["snapshots"].as_array().map(Vec::len), Some(1));

    // Run folders are methods of a comparison, and have curves.
    let outputs = ["-o", "c.html", "-o", "c.tex", "--svg", "charts"];
    let ended = place.succeed(&[&["compare", "first=one", "second=two"], &outputs[..]].concat());
    assert!(ended.stdout.contains("qed/mean"), "{}", ended.stdout);
    assert!(place.read("c.html").contains("grpo compare first=one second=two"));
    assert!(place.read("charts/distribution_qed.svg").starts_with("<svg"));
    place.refuse(
        &["dynamics", "model"],
        str!["`model` is not a run folder (no `run.json`); check the path"],
    );
}

/// Each snapshot has the metrics that `grpo eval` computes for the completions of its step.
#[test]
fn diversity_of_texts_is_that_of_each_step() {
    let place = training_texts::place("llama");
    let sets = ["--set", "train.steps=2", "--set", "sampling.max_new_tokens=16"];
    place.succeed(&[&["train", "train.toml"], &sets[..]].concat());
    place.succeed(&["dynamics", "run", "-o", "dynamics.json"]);
    let found: Value = serde_json::from_str(&place.read("dynamics.json")).unwrap();
    assert_eq!(found["config"]["suite"], "text");
    let names = ["self_bleu", "distinct_3", "semantic_diversity", "output_entropy"];
    let values = |metrics: &Value| names.map(|name| metrics[name].as_f64().unwrap());
    let expected = [1, 2].map(|step| {
        let records = place.completions("run").into_iter().filter(|record| record.step == step);
        let line = |record: CompletionRecord| {
            let prompt = record.prompt_text.unwrap();
            let (completion, ids) = (record.text, record.completion_ids);
            let line = json!({"prompt": prompt, "completion": completion, "completion_ids": ids});
            line.to_string() + "\n"
        };
        place.write("step.jsonl", records.map(line).collect::<String>());
        let measured = place.succeed(&["eval", "step.jsonl", "--json"]).stdout;
        values(&serde_json::from_str::<Value>(&measured).unwrap()["metrics"])
    });
    assert_eq!([0, 1].map(|index| values(&found["snapshots"][index])), expected);
    assert_ne!(expected[0], expected[1]);
}

/// Training takes hours, so that what would be refused afterwards is refused first.
#[test]
fn bad_options_of_the_samples_are_refused_before_the_first_run() {
    let place = Place::for_training();
    for (options, expected) in [
        (&["-n", "0"][..], "-n 0 is out of range; expected 1 or more"),
        (
            &["--top-k=0"],
            "top_k = 0 is out of range; expected 1 or more (remove it to keep all tokens)",
        ),
        (
            &["--top-p", "2"],
            "top_p = 2 is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)",
        ),
        (&["--max-new-tokens", "0"], "max_new_tokens = 0 is out of range; expected 1 or more"),
        (&["--batch-size", "0"], "batch_size = 0 is out of range; expected 1 or more"),
        (&["--prompts", "nowhere.jsonl"], "--prompts nowhere.jsonl does not exist; check the path"),
        (&["--tweets", "nowhere.jsonl"], "--tweets nowhere.jsonl does not exist; check the path"),
        (&["--nope"], "unexpected argument '--nope' found; see `grpo sample --help`"),
    ] {
        let sweep = [&["sweep", "train.toml", "-o", "out", "--"], options].concat();
        place.refuse_after(
            "the options after `--`, which are those of `grpo sample`: ",
            &sweep,
            expected,
        );
    }
}

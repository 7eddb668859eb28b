//! `grpo run`: files that are not replaced, and mistakes with seeds.

use std::fs;

use snapbox::str;

use crate::support::{Place, train_toml};

/// A pipeline of one stage that writes `mine.csv`.
pub(crate) const MAKE: &str = r#"[[stages]]
name = "make"
command = "make-molecules"
arguments = ["-n", "3", "-o", "mine.csv"]
outputs = ["mine.csv"]
"#;

/// Only what the pipeline wrote itself is replaced.
#[test]
fn a_file_of_the_user_is_not_replaced() {
    let place = Place::new();
    place.write("mine.csv", "a file of the user\n");
    let refused = "mine.csv exists, but this pipeline did not write it; rename it (--force does so), or let stage `make` write another file";
    for (what, stage) in [
        ("an output", MAKE.to_owned()),
        (
            "an output that is not listed",
            MAKE.replace("outputs = [\"mine.csv\"]", "outputs = [\"other.csv\"]"),
        ),
        (
            "another spelling",
            MAKE.replace("outputs = [\"mine.csv\"]", "outputs = [\"./mine.csv\"]")
                .replace("\"-o\", \"mine.csv\"", "\"--output=mine.csv\""),
        ),
    ] {
        place.write("p.toml", &stage);
        for options in [&["run", "p.toml"][..], &["run", "p.toml", "--check"]] {
            let before = place.files();
            let ended = place.run(options);
            let said = ended.stderr.replace("./mine.csv", "mine.csv");
            assert_eq!(said, format!("error: {refused}\n"), "{what}");
            assert_eq!((ended.code, place.files()), (Some(1), before), "{what}");
        }
    }

    fs::remove_file(place.path("mine.csv")).unwrap();
    place.write("p.toml", MAKE);
    place.succeed(&["run", "p.toml"]);
    let first = place.read("mine.csv");
    place.write("p.toml", MAKE.replace("\"3\"", "\"4\""));
    place.succeed(&["run", "p.toml"]);
    assert_ne!(place.read("mine.csv"), first, "its own results are replaced");
    // The user's changes are not.
    place.write("mine.csv", "edited\n");
    place.write("p.toml", MAKE);
    place.refuse(
        &["run", "p.toml"],
        str!["mine.csv has changed since this pipeline wrote it, and stage `make` would replace it; rename it (--force does so), or let stage `make` write another file"],
    );
}

/// `--force` never fails because of files in its way, and deletes none that the pipeline did not
/// write.
#[test]
fn force_renames_what_the_pipeline_did_not_write() {
    let place = Place::new();
    place.write("mine.csv", "a file of the user\n");
    place.write("p.toml", MAKE.replace("outputs = [\"mine.csv\"]", "outputs = [\"./mine.csv\"]"));
    let checked = place.succeed(&["run", "p.toml", "--force", "--check"]);
    assert!(checked.stdout.contains("; renames ./mine.csv\n"), "{}", checked.stdout);
    let ended = place.succeed(&["run", "p.toml", "--force"]);
    let renamed = "make         renamed ./mine.csv to ./mine.csv.old-1\n";
    assert!(ended.stderr.contains(renamed), "{}", ended.stderr);
    assert_eq!(place.read("mine.csv.old-1"), "a file of the user\n");
    assert_ne!(place.read("mine.csv"), "a file of the user\n");
    place.write("mine.csv", "edited\n");
    place.succeed(&["run", "p.toml", "--force"]);
    assert_eq!(place.read("mine.csv.old-2"), "edited\n");
    // Its own files are replaced.
    place.succeed(&["run", "p.toml", "--force"]);
    assert!(!place.path("mine.csv.old-3").exists());

    // A later stage that reads the file does not make it an input of the user.
    let reads = "[[stages]]\nname = \"describe\"\ncommand = \"describe\"\narguments = [\"mine.csv\", \"-o=d.csv\"]\noutputs = [\"d.csv\"]\n";
    place.write("p.toml", format!("{MAKE}{reads}"));
    place.write("mine.csv", "edited again\n");
    place.succeed(&["run", "p.toml", "--force"]);
    assert_eq!(place.read("mine.csv.old-3"), "edited again\n");
}

/// A file that the command would not write stays where it is.
#[test]
fn force_does_not_rename_what_no_argument_names() {
    let place = Place::new();
    fs::create_dir(place.path("elsewhere")).unwrap();
    place.write("elsewhere/notes.txt", "a file of the user\n");
    place.write("mine.csv", "another one\n");
    let outputs = "outputs = [\"mine.csv\", \"elsewhere/notes.txt\"]";
    let stage = MAKE.replace("outputs = [\"mine.csv\"]", outputs);
    for pipeline in [
        stage.clone(),
        stage.replace("\"mine.csv\", \"elsewhere", "\"elsewhere"),
        stage.replace("elsewhere/notes.txt", "./elsewhere/../elsewhere/notes.txt"),
        stage.replace("elsewhere/notes.txt", "elsewhere"),
    ] {
        place.write("p.toml", &pipeline);
        for options in [&["run", "p.toml", "--force"][..], &["run", "p.toml"]] {
            let before = place.files();
            let ended = place.run(options);
            let expected = "exists, but this pipeline did not write it, and the arguments of stage `make` do not name it; correct its outputs in the pipeline file, or move the file\n";
            assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
            assert_eq!((ended.code, place.files()), (Some(1), before), "{pipeline}");
        }
    }
}

/// A folder with an input stays, whether or not the stage lists the input.
#[test]
fn force_does_not_rename_inputs() {
    let place = Place::new();
    let statistics = "d/phase_split_statistics.json";
    fs::create_dir(place.path("d")).unwrap();
    place.write("d/pairs.jsonl", "{}\n");
    for arguments in [
        "[\"--input\", \"d/pairs.jsonl\", \"--output-dir\", \"d\"]\ninputs = [\"d/pairs.jsonl\"]",
        "[\"--input\", \"d/pairs.jsonl\", \"--output-dir\", \"d\"]",
        "[\"--input=./d/pairs.jsonl\", \"--output-dir=d\"]",
        "[\"--input=d/../d/pairs.jsonl\", \"--output-dir=d/\"]",
    ] {
        let split = format!(
            "[[stages]]\nname = \"split\"\ncommand = \"split-data\"\narguments = {arguments}\noutputs = [\"{statistics}\"]\n"
        );
        place.write("p.toml", split);
        place.write(statistics, "{}\n");
        for options in [&["run", "p.toml"][..], &["run", "p.toml", "--force"]] {
            let before = place.files();
            place.refuse(
                options,
                str!["d/phase_split_statistics.json exists, but this pipeline did not write it; let stage `split` write to another folder"],
            );
            assert_eq!(place.files(), before, "{arguments}");
        }
    }
    // Without results in its way, the command runs and says what is wrong with the pairs.
    fs::remove_file(place.path(statistics)).unwrap();
    let ended = place.run(&["run", "p.toml", "--force"]);
    assert!(ended.stderr.contains("has no valid pairs"), "{}", ended.stderr);
    assert_eq!(place.read("d/pairs.jsonl"), "{}\n");
}

/// An interrupted command leaves files that are its own.
#[test]
fn files_of_a_failed_stage_are_its_own() {
    let place = Place::new();
    let line =
        |score: f64| format!("{{\"prompt\": \"a\", \"completion\": \"b\", \"reward\": {score}}}\n");
    place.write("g.jsonl", line(0.5));
    let gate = "[[stages]]\nname = \"gate\"\ncommand = \"eval\"\narguments = [\"g.jsonl\", \"--gate=score/mean > 2\", \"-o=gate.json\"]\noutputs = [\"gate.json\"]\n";
    place.write("p.toml", gate);
    for _ in 0..2 {
        let ended = place.run(&["run", "p.toml"]);
        assert_eq!(ended.code, Some(1));
        assert!(!ended.stderr.contains("did not write it"), "{}", ended.stderr);
        assert!(place.path("gate.json").is_file());
    }
}

/// A summary runs each time, and replaces what it wrote before.
#[test]
fn a_summary_replaces_only_its_own_files() {
    let place = Place::new();
    let line = "{\"prompt\": \"a\", \"completion\": \"b\", \"reward\": 1}\n";
    place.write("g.jsonl", line);
    let summary =
        "[[summary]]\ncommand = \"eval\"\narguments = [\"g.jsonl\", \"--output=keep.json\"]\n";
    place.write("p.toml", format!("{MAKE}{summary}"));
    place.write("keep.json", "a file of the user\n");
    let refused = str![
        "keep.json exists, but this pipeline did not write it; rename it, or let the summary `grpo eval` write another file"
    ];
    place.refuse(&["run", "p.toml"], refused.clone());
    place.refuse(&["run", "p.toml", "--check"], refused);
    fs::remove_file(place.path("keep.json")).unwrap();
    for _ in 0..2 {
        place.succeed(&["run", "p.toml"]);
        assert!(place.path("keep.json").is_file() && place.path(".keep.json.stage.json").is_file());
    }
    place.write("keep.json", "edited\n");
    assert_eq!(place.run(&["run", "p.toml"]).code, Some(1));
    assert_eq!(place.read("keep.json"), "edited\n");
}

/// Three training runs with different seeds.
fn seeded() -> (Place, String) {
    let place = Place::new();
    place.write("train.toml", train_toml());
    let stage = "[[stages]]\nname = \"t-{seed}\"\ncommand = \"train\"\nconfig = \"train.toml\"\narguments = [\"--set=seed={seed}\", \"--set=run='r-{seed}'\"]\n";
    (place, format!("seeds = [1, 2, 3]\n{stage}"))
}

#[test]
fn set_changes_all_repetitions_of_the_last_stage() {
    let (place, pipeline) = seeded();
    let two = pipeline.replace("t-{seed}", "s-{seed}").replace("r-{seed}", "q-{seed}");
    let (_, second) = two.split_once('\n').unwrap();
    place.write("p.toml", format!("{pipeline}{second}"));
    let listed = place.succeed(&["run", "p.toml", "--check", "--set", "train.steps=2"]).stdout;
    let mut with_set: Vec<bool> =
        listed.lines().map(|line| line.ends_with("--set=train.steps=2")).collect();
    // The last line says that the pipeline is valid.
    with_set.pop();
    assert_eq!(with_set, [false, false, false, true, true, true], "{listed}");
    for pair in ["seed=7", "seed = 7"] {
        let refused = format!(
            "--set {pair} would give all repetitions of the last stage, `s-{{seed}}`, the same seed; change `seeds` in the pipeline file instead"
        );
        place.refuse(&["run", "p.toml", "--check", "--set", pair], refused);
    }
}

#[test]
fn mistakes_with_seeds_are_found_by_check() {
    let place = Place::new();
    place.write("train.toml", train_toml());
    let name = |key: &str| {
        format!(
            "p.toml:3: stage `make` has {{seed}} in its {key} but not in its name; add it to the name, so that the stage is repeated for each of the seeds"
        )
    };
    let outputs = "outputs = [\"mine.csv\"]";
    let two = |a: &str, b: &str| {
        let with = |listed: &str| MAKE.replace(outputs, &format!("outputs = [{listed}]"));
        let other = with(b).replace("\"make\"", "\"b\"").replace("\"mine.csv\"", "\"b.csv\"");
        format!("{}{other}", with(a))
    };
    for (pipeline, expected) in [
        (format!("seeds = [1]\n{}", MAKE.replace(outputs, "outputs = [\"x-{seed}.csv\"]")), name("outputs")),
        (format!("seeds = [1]\n{MAKE}inputs = [\"x-{{seed}}\"]"), name("inputs")),
        (format!("seeds = [1]\n{MAKE}gate = \"x-{{seed}}\""), name("gate")),
        (format!("seeds = [1]\n{MAKE}config = \"x-{{seed}}.toml\""), name("config")),
        (
            format!("{MAKE}[[summary]]\ncommand = \"report\"\narguments = [\"r-{{seed}}\"]\n"),
            "p.toml:8: the summary has {seed} in its arguments, but there are no seeds; add a list `seeds` at the top of the file".to_owned(),
        ),
        (
            format!("seeds = [1, 2]\n{MAKE}"),
            "p.toml:1: no stage uses seeds; add {seed} to the name of a stage, so that it is repeated for each of them, or remove seeds".to_owned(),
        ),
        (
            format!("seeds = [1, 2, 1]\n{}", MAKE.replace("make\"", "make-{seed}\"").replace("mine", "{seed}")),
            "p.toml:1: seeds lists 1 twice; remove one of them".to_owned(),
        ),
        (
            format!("seeds = {:?}\n{MAKE}", (0..1001).collect::<Vec<_>>()),
            "p.toml:1: seeds lists 1001 seeds; expected at most 1000".to_owned(),
        ),
        (
            two("\"./1.csv\"", "\"1.csv\""),
            "p.toml:10: stages `make` and `b` both write 1.csv; use a different file for each".to_owned(),
        ),
        (
            two("\"0.csv\", \"1.csv\"", "\"2.csv\", \"x/../1.csv\""),
            "p.toml:10: stages `make` and `b` both write x/../1.csv; use a different file for each".to_owned(),
        ),
    ] {
        place.write("p.toml", &pipeline);
        place.refuse(&["run", "p.toml", "--check"], expected);
    }
}

/// Training takes hours, so that what would be refused afterwards is refused first.
#[test]
fn values_that_a_later_command_would_refuse_are_found_first() {
    let place = Place::for_training();
    let train = "[[stages]]\nname = \"t\"\ncommand = \"train\"\nconfig = \"train.toml\"\n";
    for (command, arguments, expected) in [
        ("sample", &["--model=run/model", "-n0"][..], "-n 0 is out of range; expected 1 or more"),
        ("sample", &["--model=run/model", "--top-k=0"], "top_k = 0 is out of range; "),
        ("sample", &["--model=nowhere"], "--model nowhere does not exist, and no earlier stage "),
        ("eval", &["run/x.smi", "--gate=a >= b"], "--gate 'a >= b' is not a bound; "),
        ("eval", &["run/x.smi", "--suite=molecule"], "--suite molecule: unknown suite; "),
        ("eval", &["run/x.smi", "-o=x.html"], "-o x.html: "),
        ("eval", &["nowhere.smi"], "nowhere.smi does not exist, and no earlier stage writes it; "),
        ("eval", &["run/x.smi", "--reward=nowhere.toml"], "--reward nowhere.toml does not exist, "),
        ("compare", &["a=run/x.smi,nowhere.smi", "run/y.smi"], "nowhere.smi does not exist, and "),
        ("compare", &["run/x.smi", "nowhere.smi"], "nowhere.smi does not exist, and no earlier "),
        (
            "describe",
            &["nowhere.csv"],
            "nowhere.csv does not exist, and no earlier stage writes it",
        ),
        (
            "logprob",
            &["--model=run/model", "--input=nowhere.jsonl", "-o=x.jsonl"],
            "--input nowhere.jsonl does not exist, ",
        ),
        (
            "merge",
            &["--model=run/model", "--adapter=nowhere", "-o=m"],
            "--adapter nowhere does not exist, ",
        ),
        ("report", &["nowhere"], "nowhere does not exist, and no earlier stage writes it; "),
        ("score", &["nowhere.toml", "run/x.smi"], "nowhere.toml does not exist, and no earlier "),
        ("score", &["train.toml", "nowhere.smi"], "nowhere.smi does not exist, and no earlier "),
        ("compare", &["a=run/x.smi", "a=run/y.smi"], "two methods are named a; "),
        ("compare", &["a=run/x.smi", "run/y.smi", "--objectives=qed"], "--objectives lists 1 "),
        (
            "compare",
            &["a=run/x.smi", "run/y.smi", "--objectives=qed,qed"],
            "--objectives lists `qed` twice",
        ),
    ] {
        let stage = "[[stages]]\nname = \"s\"\noutputs = [\"out\"]\n";
        for (section, line) in [("[[summary]]\n", 7), (stage, 9)] {
            let command_line = format!("command = \"{command}\"\narguments = {arguments:?}\n");
            place.write("p.toml", format!("{train}{section}{command_line}"));
            let ended = place.run(&["run", "p.toml"]);
            assert_eq!(ended.code, Some(1), "{}", ended.stdout);
            let start = format!("error: p.toml:{line}: `grpo {command}`: {expected}");
            assert!(ended.stderr.starts_with(&start), "{}", ended.stderr);
            assert!(!place.path("run").exists());
        }
    }
}

/// The stage is finished, so that its configuration would not be read again.
#[test]
fn a_mistyped_key_of_a_finished_pipeline_is_named() {
    let place = Place::for_training();
    let train = "[[stages]]\nname = \"t\"\ncommand = \"train\"\nconfig = \"train.toml\"\n";
    place.write("p.toml", train);
    place.succeed(&["run", "p.toml"]);
    let ended = place.run(&["run", "p.toml", "--set", "train.stepz=2"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("unknown key 'train.stepz'; did you mean 'steps'?"),
        "{}",
        ended.stderr
    );
    let ended = place.run(&["run", "p.toml", "--set", "train.steps=2"]);
    assert!(ended.stderr.contains("which is finished (run)"), "{}", ended.stderr);
}

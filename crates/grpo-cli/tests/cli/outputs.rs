//! Outputs that cannot be written or would overwrite their input.

use std::fs::{self, File, OpenOptions};

use snapbox::str;

use crate::scoring::REWARD;
use crate::support::{Ended, Place, small_model};

/// Opens a device that is always full. Only available on Linux.
fn full() -> Option<File> {
    OpenOptions::new().write(true).open("/dev/full").ok()
}

#[test]
fn results_that_cannot_be_written_are_a_fault() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    for arguments in [
        &["audit", "run"][..],
        &["audit", "run", "--json"],
        &["explain", "run", "--step", "1", "--json"],
        &["replay", "run", "--step", "1", "--prompt", "0", "--sample", "0"],
        &["selftest"],
        &["--help"],
        &["train", "--help"],
        &["--version"],
        &["train", "train.toml", "--check"],
    ] {
        let Some(full) = full() else { return };
        let ended = Ended::of(place.command(arguments).stdout(full).output().unwrap());
        assert_eq!(ended.code, Some(1), "grpo {arguments:?}");
        let expected = "error: cannot write to standard output (no space left on the disk), so the output is incomplete; ";
        assert!(ended.stderr.starts_with(expected), "grpo {arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "grpo {arguments:?}: {}", ended.stderr);
    }
}

/// If standard error cannot be written, the results and exit codes are unchanged.
#[test]
fn a_standard_error_that_cannot_be_written_costs_no_result() {
    let place = Place::new();
    let model = small_model().to_str().unwrap();
    let sample = ["sample", "--model", model, "-n", "5", "-o"];
    place.succeed(&[&sample[..], &["expected.smi"]].concat());
    let Some(error) = full() else { return };
    let mut command = place.command(&[&sample[..], &["got.smi"]].concat());
    assert_eq!(command.stderr(error).output().unwrap().status.code(), Some(0));
    assert_eq!(place.read("got.smi"), place.read("expected.smi"));
    let mut refused = place.command(&["describe", "missing.smi"]);
    assert_eq!(refused.stderr(full().unwrap()).output().unwrap().status.code(), Some(1));
}

#[test]
fn another_link_to_the_input_is_the_input() {
    let place = Place::new();
    place.write("in.smi", "CCO\n");
    fs::hard_link(place.path("in.smi"), place.path("out.csv")).unwrap();
    place.refuse(
        &["describe", "in.smi", "-o", "out.csv"],
        str!["out.csv is the input; use another file for -o"],
    );
}

/// No command replaces a file that it reads, even with `--force`: bases of configurations, references,
/// and files that only a configuration names.
#[test]
fn no_input_is_replaced() {
    let place = Place::new();
    place.write("train.toml", REWARD);
    place.write("ext.toml", "extends = \"train.toml\"\n");
    for name in ["m.smi", "n.smi", "r.smi"] {
        place.write(name, "CCO\nCCN\nCCCC\nCCCO\n");
    }
    for name in ["a.jsonl", "b.jsonl", "r.json"] {
        place.write(name, "{\"prompt\": \"p\", \"completion\": \"red\", \"reference\": \"red\"}\n");
    }
    let rules = "# no rules\n";
    place.write("rules.toml", rules);
    place.write("more.toml", "extends = \"rules.toml\"\n");
    place.write(
        "pairs.jsonl",
        "{\"tweet_id\": 1, \"tweet\": \"a\", \"reply_id\": 2, \"reply\": \"b\"}\n",
    );
    place.copy_model();
    let commands = [
        "score ext.toml --completion CCO --plot ext.toml",
        "score ext.toml --completion CCO --plot train.toml",
        "score ext.toml m.smi -o train.toml",
        "score ext.toml m.smi -o scores.csv --plot train.toml",
        "eval m.smi --reward ext.toml -o ext.toml",
        "eval m.smi --reward ext.toml -o train.toml",
        "eval m.smi --references r.smi -o r.smi",
        "eval m.smi --training r.smi -o r.smi",
        "eval m.smi -o m.smi",
        "compare a.jsonl b.jsonl --references r.json -o r.json",
        "compare a.jsonl b.jsonl --references r.json -o new.md -o r.json",
        "compare m.smi n.smi --svg . -o m.smi",
        "clean-data --input pairs.jsonl --skip filter --skip validation --config more.toml -o more.toml",
        "clean-data --input pairs.jsonl --skip filter --skip validation --config more.toml -o rules.toml",
        "clean-data --input pairs.jsonl --skip filter --skip validation --config more.toml -o c.jsonl --rejected rules.toml",
        "sample --model model -n 2 --not-in r.smi -o r.smi",
        "sample --model model -n 2 -o model/m.smi",
        "attention CCO --model model -o model/m.json",
        "logprob --model model --input a.jsonl -o a.jsonl",
        "bench-pmo --score m.smi -o m.smi",
        "describe m.smi -o m.smi",
    ];
    let before = place.files();
    for command in commands {
        let words: Vec<&str> = command.split(' ').chain(["--force"]).collect();
        let ended = place.run(&words);
        let said = [
            "is an input of this command",
            "is the input",
            "is one of the files recorded in",
            "; use a name that ends in ",
        ];
        let is_refused = said.iter().any(|said| ended.stderr.contains(said));
        assert!(
            ended.code == Some(1) && is_refused,
            "{command}: {:?} {}",
            ended.code,
            ended.stderr
        );
        assert_eq!(place.files(), before, "{command} left something behind");
    }
}

/// Neither the inputs nor the model of these commands can be read, so the output is checked before them,
/// however the path of an input is spelled.
#[test]
fn outputs_are_checked_before_anything_is_computed() {
    let place = Place::new();
    place.write("train.toml", REWARD);
    place.write("bad.json", "neither JSON nor a molecule\n");
    fs::create_dir(place.path("sub")).unwrap();
    std::os::unix::fs::symlink("bad.json", place.path("soft.json")).unwrap();
    std::os::unix::fs::symlink("..", place.path("sub/up")).unwrap();
    fs::hard_link(place.path("bad.json"), place.path("hard.json")).unwrap();
    let commands = [
        "eval bad.json -o",
        "eval none.json --references bad.json -o",
        "eval none.json --training bad.json -o",
        "compare bad.json none.json -o",
        "compare none.json a=none.json,bad.json -o new.md -o",
        "score train.toml bad.json -o",
        "score train.toml bad.json -o new.csv --plot",
        "logprob --model none --input bad.json -o",
        "sample --model none --prompts bad.json -o",
        "judge bad.json --endpoint http://127.0.0.1:1 --model none -o",
        "import-trl bad.json -o",
        "describe bad.json -o",
        "bench-pmo --score bad.json -o",
        "clean-data --input bad.json -o",
        "clean-data --input bad.json -o new.jsonl --rejected",
    ];
    let before = place.files();
    for command in commands {
        let spellings = [
            "bad.json",
            "./bad.json",
            "sub/../bad.json",
            "sub/up/bad.json",
            "soft.json",
            "hard.json",
        ];
        let said = "is the input; use another file for -";
        let is_input = spellings.map(|spelling| (spelling, said));
        let missing = ("nowhere/new.json", "the folder nowhere does not exist; create it first");
        for (output, said) in is_input.into_iter().chain([missing]) {
            let words: Vec<&str> = command.split(' ').chain([output, "--force"]).collect();
            let ended = place.run(&words);
            let is_refused = ended.code == Some(1) && ended.stderr.contains(said);
            assert!(is_refused, "{command} {output}: {:?} {}", ended.code, ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{command} {output}: {}", ended.stderr);
            assert_eq!(place.files(), before, "{command} {output} left something behind");
        }
    }
    for (command, said) in [
        ("compare a.json b.json -o c.md -o ./c.md", "-o names c.md twice; use different files"),
        ("train-tokenizer --input none --vocabulary 300 -o bad.json", "is a file, not a folder"),
        ("init none/config.json -o sub", "`sub` already exists; use another path"),
        ("split-data --input none --output-dir bad.json", "is a file, not a folder"),
        ("compare none.json a=none.json --svg bad.json --force", "is a file, not a folder"),
    ] {
        let ended = place.run(&command.split(' ').collect::<Vec<_>>());
        assert!(ended.stderr.contains(said), "{command}: {}", ended.stderr);
    }
}

/// A table that cannot be read leaves no picture behind.
#[test]
fn files_of_one_command_are_written_all_or_none() {
    let place = Place::new();
    place.write("train.toml", REWARD);
    place.write("broken.smi", "C".repeat(1 << 21));
    let late = format!("{}{}", "CCO\n".repeat(3000), "C".repeat(1 << 21));
    place.write("late.smi", late);
    for file in ["broken.smi", "late.smi"] {
        let before = place.files();
        for output in [&["-o", "q.csv"][..], &[]] {
            let command = [&["score", "train.toml", file, "--plot", "p.svg"][..], output].concat();
            assert_eq!(place.run(&command).code, Some(1), "{command:?}");
            assert_eq!(place.files(), before, "{command:?} left something behind");
        }
    }
    place.write("good.smi", "CCO\n");
    place.succeed(&["score", "train.toml", "good.smi", "--plot", "p.svg", "-o", "q.csv"]);
    assert!(place.read("p.svg").contains("<svg") && place.read("q.csv").contains("CCO"));
}

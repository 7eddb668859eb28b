//! Regression tests for invalid inputs that used to be accepted.

use std::fs;

use snapbox::str;

use crate::support::{Place, small_model};

#[test]
fn csv_that_is_ambiguous_is_refused() {
    let place = Place::new();
    place.write("twice.csv", "smiles,Smiles\nC,N\n");
    place.refuse(
        &["describe", "twice.csv"],
        str!["`twice.csv` has 2 columns with the same name (`smiles`, `Smiles`); rename or remove all but one, or set --column to one of them, in this spelling"],
    );
    let chosen = place.succeed(&["describe", "twice.csv", "--column", "Smiles"]).stdout;
    assert!(chosen.contains("\nN,1,N,"), "{chosen}");
    place.write("open.csv", "smiles,name\nC,methane\nN,\"ammonia\nO,water\n");
    let ended = place.run(&["describe", "open.csv", "-o", "out.csv"]);
    let expected = "line 3 of `open.csv` has an unterminated quoted field; close it, and escape quotes inside it by doubling them";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert!(!place.path("out.csv").exists());
    // Quotes that are closed, doubled, or in the middle of a cell.
    place.write("fine.csv", "smiles,name\nC,\"a \"\"b\"\"\"\n\"N\",5\" pipe\nO,\"two\nlines\"\n");
    assert_eq!(place.succeed(&["describe", "fine.csv"]).stdout.lines().count(), 5);
}

#[test]
fn cells_are_no_formulas() {
    let place = Place::new();
    place.write("in.smi", "=HYPERLINK(1)\n+1\n@x\n-C\nCCO\n");
    let described = place.succeed(&["describe", "in.smi"]).stdout;
    for row in described.lines().skip(1) {
        assert!(row.starts_with(['\'', 'C']), "{row}");
    }
    assert!(described.contains("\n'=HYPERLINK(1),0,"), "{described}");
}

#[test]
fn options_without_effect_are_refused() {
    let place = Place::new();
    let model = small_model().to_str().unwrap();
    let sample = ["sample", "--model", model, "-n", "3"];
    place.write("empty.smi", "");
    place.refuse(
        &[&sample[..], &["--not-in", "empty.smi"]].concat(),
        str!["--not-in empty.smi contains no valid molecules; use a file with molecules, or remove --not-in"],
    );
    place.refuse(
        &[&sample[..], &["--thinking", "true"]].concat(),
        str!["--thinking requires --chat with --prompt; add --chat or remove --thinking"],
    );
}

/// Replaces all numbers in a safetensors file.
pub(crate) fn with_numbers(place: &Place, number: f32) {
    let path = place.path("model/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for value in bytes[start..].chunks_exact_mut(4) {
        value.copy_from_slice(&number.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
}

#[test]
fn warns_of_untrained_weights() {
    let place = Place::new();
    place.copy_model();
    let sample = ["sample", "--model", "model", "-n", "3"];
    assert!(!place.succeed(&sample).stderr.contains("warning"));
    with_numbers(&place, 0.0);
    let ended = place.succeed(&sample);
    assert!(
        ended.stderr.starts_with("warning: the weights of model are all 0, so every next token is equally likely; is the file damaged?\n"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("NaN"), "{}", ended.stderr);
    with_numbers(&place, 1e20);
    let ended = place.run(&sample);
    assert!(
        ended.stderr.starts_with("warning: the weights of model reach 1e20, "),
        "{}",
        ended.stderr
    );
    place.write("a.jsonl", "{\"prompt_ids\": [0], \"completion_ids\": [1]}\n");
    for command in
        ["attention CCO --model model -o a.json", "logprob --model model --input a.jsonl"]
    {
        for (number, words) in [(0.0, "are all 0"), (1e20, "reach 1e20")] {
            with_numbers(&place, number);
            let ended = place.run(&command.split(' ').chain(["--force"]).collect::<Vec<_>>());
            let expected = format!("warning: the weights of model {words}");
            assert!(ended.stderr.contains(&expected), "{command}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_tensor_that_is_there_twice_is_refused() {
    let place = Place::new();
    place.copy_model();
    let path = place.path("model/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let size = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + size]).unwrap();
    // Repeats the first tensor under the same name.
    let header = header.trim_end();
    let entry = header
        .split_once("\"__metadata__\"")
        .map_or(header, |(_, rest)| rest.split_once("},").unwrap().1);
    let entry = entry.trim_start_matches('{');
    let (first, _) = entry.split_once('}').unwrap();
    let doubled = format!("{},{first}}}}}", header.strip_suffix('}').unwrap());
    let mut damaged = (doubled.len() as u64).to_le_bytes().to_vec();
    damaged.extend(doubled.as_bytes());
    damaged.extend(&bytes[8 + size..]);
    fs::write(&path, damaged).unwrap();
    let ended = place.run(&["sample", "--model", "model", "-n", "3"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("' twice\n"), "{}", ended.stderr);
}

/// A killed `grpo pretrain` leaves its best model so far.
#[test]
fn warns_of_a_model_of_an_unfinished_run() {
    let place = Place::for_pretraining();
    place.succeed(&["pretrain", "pretrain.toml", "--set", "pretrain.epochs=2"]);
    let sample = ["sample", "--model", "prior/model", "-n", "3"];
    assert!(!place.succeed(&sample).stderr.contains("warning"));
    let events = place.read("prior/events.jsonl");
    let last = events.trim_end().rfind('\n').map_or("", |end| &events[..=end]);
    place.write("prior/events.jsonl", last);
    let ended = place.succeed(&sample);
    assert!(
        ended.stderr.contains("prior/model belongs to an unfinished run and is not its final result; resume the run to finish it\n"),
        "{}",
        ended.stderr
    );
}

/// The run would add files to a folder with a manifest.
#[test]
fn a_run_inside_a_model_or_a_run_is_refused() {
    let place = Place::for_training();
    place.copy_model();
    let begin = ["train", "train.toml", "--set", "train.steps=1", "--set", "eval.samples=0"];
    let refused = |run: &str, what: &str| {
        let before = place.files();
        let ended = place.run(&[&begin[..], &["--run", run]].concat());
        let start = format!("error: {run} is inside the {what} folder ");
        assert!(ended.code == Some(1) && ended.stderr.starts_with(&start), "{}", ended.stderr);
        assert!(ended.stderr.ends_with("; use another folder for --run\n"), "{}", ended.stderr);
        assert_eq!(place.files(), before);
    };
    refused("model/run", "model");
    refused("model/new/run", "model");
    place.succeed(&begin);
    refused("run/two", "run");
    refused("run/checkpoints/two", "run");
    for output in ["model/d.csv", "run/model/d.csv", "run/ledger.jsonl", "run/completions/d.csv"] {
        let before = place.files();
        place.write("few.smi", "C\n");
        let ended = place.run(&["describe", "few.smi", "-o", output, "--force"]);
        assert!(ended.stderr.ends_with("; choose a different output file\n"), "{}", ended.stderr);
        fs::remove_file(place.path("few.smi")).unwrap();
        assert_eq!(place.files(), before);
    }
    place.write("few.smi", "C\n");
    place.succeed(&["describe", "few.smi", "-o", "run/few.csv"]);
    place.write("pairs.jsonl", "{\"tweet\": \"a\", \"reply\": \"b\"}\n");
    let ended = place.run(&["split-data", "--input", "pairs.jsonl", "--output-dir", "model/data"]);
    assert!(ended.stderr.ends_with("; use another folder for --output-dir\n"), "{}", ended.stderr);
    let ended = place.run(&[&begin[..], &["--run", "train.toml/run"]].concat());
    assert!(ended.stderr.contains("part of the path is not a folder"), "{}", ended.stderr);
    let ended = place.run(&["man", "train.toml"]);
    assert!(
        ended.stderr.ends_with("train.toml is a file; choose another folder\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_run_folder_is_not_taken_for_its_model() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml", "--set", "train.steps=1", "--set", "eval.samples=0"]);
    place.refuse(
        &["sample", "--model", "run", "-n", "1"],
        str!["run is a run folder; its model is in run/model"],
    );
    place.refuse(
        &["sample", "--model", "run/model", "--adapter", "run/model", "-n", "1"],
        str!["run/model is a model folder, not an adapter folder; an adapter folder contains adapter_config.json and adapter_model.safetensors"],
    );
    std::fs::create_dir(place.path("adapter")).unwrap();
    place.write("adapter/adapter_config.json", "{}");
    place.refuse(
        &["sample", "--model", "adapter", "-n", "1"],
        str!["adapter is an adapter folder, not a model folder; pass the base model as the model and this folder as the adapter"],
    );
    place.write("run/run.json", "");
    for command in [&["report", "run"][..], &["train", "--resume", "run"]] {
        let ended = place.run(command);
        let expected = "error: `run/run.json` is damaged: it is empty; restore it from a copy, or start the run again\n";
        assert_eq!(ended.stderr, expected);
    }
}

#[test]
fn a_trial_is_not_resumed_from_another_run() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    place.refuse(
        &["trial", "--resume", "run"],
        str!["`run` is a run of `grpo train`; resume it with `grpo train --resume run`"],
    );
}

#[test]
fn faults_of_files_have_no_words_of_the_library() {
    let place = Place::new();
    place.copy_model();
    place.write("model/config.json", "");
    let ended = place.run(&["sample", "--model", "model", "-n", "3"]);
    assert!(
        ended.stderr.contains("it is empty") && !ended.stderr.contains("EOF"),
        "{}",
        ended.stderr
    );
    let place = Place::for_training();
    for (set, expected) in [
        ("train.steps=-3", "found -3; expected a whole number that is not negative"),
        ("train=3", "train: found 3; expected a table"),
        ("optimizer.learning_rate=1e300", "optimizer.learning_rate = 1e300 is out of range"),
    ] {
        let ended = place.run(&["train", "train.toml", "--check", "--set", set]);
        assert_eq!(ended.code, Some(1), "{set}");
        assert!(ended.stderr.contains(expected), "{set}: {}", ended.stderr);
    }
    // A panic of the Parquet reader is reported as a one-line error.
    let place = Place::new();
    place.write("p.parquet", b"PAR1\x15\x00\x00\x00\xff\xff\xff\x7fPAR1");
    let model = small_model().to_str().unwrap();
    let ended = place.run(&["logprob", "--model", model, "--input", "p.parquet"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
}

//! `data.file` with several files, weights, patterns and names of the hub.

use serde_json::Value;

use crate::fake_hub::{COMMIT, Repo, Server};
use crate::resume;
use crate::support::{Ended, Place};
use crate::training_texts::{self, TRAIN};

/// Prompts with numbers.
fn rows(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|n| format!("{{\"prompt\": \"two and {n} are\"}}\n")).collect()
}

/// Returns a place with the model `m` and the files `a.jsonl` (8 prompts) and `b.jsonl` (4 prompts).
fn place() -> Place {
    let place = training_texts::place("llama");
    place.write("a.jsonl", rows(0..8));
    place.write("b.jsonl", rows(8..12));
    place
}

/// Writes a configuration with these data files.
fn configure(place: &Place, files: &str) {
    let file = format!("file = {files}");
    place.write("train.toml", TRAIN.replace("file = \"prompts.jsonl\"", &file));
}

/// Returns how often each prompt was used in a run, by its number.
fn uses(place: &Place, run: &str) -> Vec<usize> {
    let mut uses = vec![0; 12];
    for record in place.completions(run) {
        if record.sample == 0 {
            let text = record.prompt_text.unwrap();
            let number = text.split(' ').find_map(|word| word.parse::<usize>().ok());
            uses[number.unwrap()] += 1;
        }
    }
    uses
}

#[test]
fn files_without_weights_are_one_file() {
    let place = place();
    place.write("both.jsonl", rows(0..12));
    let run = |files: &str, run: &str| {
        configure(&place, files);
        place.succeed(&["train", "train.toml", "--set", "train.epochs=1", "--run", run]).stdout
    };
    let sets = ["\"both.jsonl\"", "[\"a.jsonl\", \"b.jsonl\"]", "\"[ab].jsonl\""];
    let said: Vec<String> =
        sets.iter().enumerate().map(|(i, files)| run(files, &format!("run{i}"))).collect();
    assert!(said[0].contains("both.jsonl: 12 records\n"), "{}", said[0]);
    for said in &said[1..] {
        let report =
            "12 prompts per epoch from 2 files\n  a.jsonl: 8 records\n  b.jsonl: 4 records\n";
        assert!(said.contains(report), "{said}");
    }
    let metrics = |run: &str| resume::metrics(&place.path(run));
    assert_eq!(metrics("run0").len(), metrics("run1").len());
    for run in ["run1", "run2"] {
        assert_eq!(metrics("run0"), metrics(run));
        assert_eq!(uses(&place, run), [1; 12]);
        place.succeed(&["audit", run]);
        let config: toml::Table = place.read(&format!("{run}/config.toml")).parse().unwrap();
        assert_eq!(config["data"]["file"].as_array().unwrap().len(), 2, "{config}");
    }
    let info: Value = serde_json::from_str(&place.read("run1/run.json")).unwrap();
    let paths = info["data"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap());
    let paths: Vec<&str> = paths.filter(|path| path.ends_with(".jsonl")).collect();
    assert_eq!(paths, ["a.jsonl", "b.jsonl"]);
    // Each file is an input of the run.
    place.write("b.jsonl", rows(9..12));
    let audited = place.run(&["audit", "run1"]);
    assert!(audited.code == Some(1) && audited.stdout.contains("b.jsonl"), "{}", audited.stdout);
}

#[test]
fn weights_say_how_often_records_are_used() {
    let place = place();
    configure(&place, "[{ file = \"a.jsonl\", weight = 0.5 }, { file = \"b.jsonl\", weight = 2 }]");
    // An epoch has 4 prompts of the first file, and each of the second file twice: 12 in 6 steps.
    let sets = ["--set", "train.epochs=2", "--set", "save.every=3"];
    let ended = place.succeed(&[&["train", "train.toml"][..], &sets[..]].concat());
    let report = "12 prompts per epoch from 2 files\n  a.jsonl (weight 0.5): 8 records\n  b.jsonl (weight 2): 4 records\n";
    assert!(ended.stdout.contains(report), "{}", ended.stdout);
    assert_eq!(uses(&place, "run"), [1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4]);
    assert_eq!(resume::metrics(&place.path("run")).len(), 12);
    place.succeed(&["train", "--resume", "run", "--verify"]);
    place.succeed(&["audit", "run"]);
    place.succeed(&["replay", "run", "--step", "5", "--prompt", "1", "--sample", "0"]);
    // The configuration of a run is one for another run.
    place.succeed(&["train", "run/config.toml", "--run", "again"]);
    assert_eq!(resume::metrics(&place.path("again")), resume::metrics(&place.path("run")));
}

#[test]
fn examples_of_several_files() {
    let place = place();
    let sft = |files: &str| {
        format!(
            "run = \"sft\"\nseed = 1\nstart = \"m\"\n[lora]\nrank = 2\nalpha = 4\n[data]\nfile = {files}\nvalidation_fraction = 0.25\n[pretrain]\nepochs = 1\nbatch_size = 4\n[pretrain.optimizer]\nlearning_rate = 3e-2\n"
        )
    };
    let row = |n: u32| format!("{{\"prompt\": \"two and {n}\", \"completion\": \" are {n}\"}}\n");
    place.write("x.jsonl", (0..8).map(row).collect::<String>());
    place.write("y.jsonl", (4..12).map(row).collect::<String>());
    let both = (0..8).chain(4..12).map(row).collect::<String>();
    place.write("both.jsonl", both);
    let train = |files: &str, run: &str| {
        place.write("sft.toml", sft(files));
        place.succeed(&["pretrain", "sft.toml", "--run", run]).stdout
    };
    train("\"both.jsonl\"", "one");
    let said = train("[\"x.jsonl\", \"y.jsonl\"]", "list");
    let start = "x.jsonl and 1 other file: ";
    assert!(
        said.starts_with(start) && said.contains("\n  x.jsonl: 8 records\n  y.jsonl: 8 records\n"),
        "{said}"
    );
    // Equal records of both files are on one side, as in one file.
    assert_eq!(resume::metrics(&place.path("one")), resume::metrics(&place.path("list")));
    train("[\"x.jsonl\", { file = \"y.jsonl\", weight = 3 }]", "weighted");
    let tokens = |run: &str| {
        let lines = resume::metrics(&place.path(run));
        lines.iter().filter_map(|line| line.get("num_tokens")?.as_u64()).max().unwrap()
    };
    assert!(tokens("weighted") > tokens("list"));
}

#[test]
fn lists_that_cannot_be_used() {
    let place = place();
    let check = |files: &str, expect: &str| {
        configure(&place, files);
        let ended = place.run(&["train", "train.toml"]);
        assert_eq!(ended.code, Some(1), "{files}");
        assert!(ended.stderr.contains(expect), "{files}: {}", ended.stderr);
        assert!(!place.path("run").exists());
    };
    check("[]", "data.file is an empty list; name at least one file");
    check("3", "found 3; expected a path or a list of paths");
    check(
        "[{ file = \"a.jsonl\", weight = 0 }]",
        "data.file[0].weight = 0 is out of range; expected 0.001 to 1000",
    );
    check("[\"a.jsonl\", \"no.jsonl\"]", "no.jsonl");
    check("\"z*.jsonl\"", "data.file = \"z*.jsonl\": no file matches the pattern; check the path");
    check(
        "[\"a.jsonl\", \"m.smi\"]",
        "data.file mixes files of records and of molecules (.smi, .csv); name files of one kind",
    );
    check("[\"l.smi\", \"m.smi\"]", "data.file is a list, but ");
    configure(&place, "\"a.jsonl\"");
    let weights = "eval.file=[{file=\"b.jsonl\",weight=2}]";
    let ended = place.run(&["train", "train.toml", "--set", weights]);
    assert!(ended.stderr.contains("eval.file has weights"), "{}", ended.stderr);
    let files = "eval.file=[\"b.jsonl\",\"a.jsonl\"]";
    let ended = place.succeed(&["train", "train.toml", "--set", files]);
    assert!(ended.stdout.contains("12 prompts per epoch from 2 files"), "{}", ended.stdout);
}

#[test]
fn the_parquet_copy_of_a_data_set_is_named_with_its_revision() {
    let place = place();
    let server = Server::start(|_, request| {
        let (a, b) = (rows(0..8), rows(8..12));
        let files = [
            ("default/train/0000.jsonl", a.as_bytes(), false),
            ("default/train/0001.jsonl", b.as_bytes(), true),
            ("default/test/0000.jsonl", a.as_bytes(), false),
        ];
        Repo::new("datasets/org/rows", &files).reply(request)
    });
    let name = "hf://datasets/org/rows@refs/convert/parquet/default/train/*.jsonl";
    configure(&place, &format!("[{{ file = \"{name}\", weight = 0.5 }}]"));
    let mut command = place.command(&["train", "train.toml", "--set", "train.epochs=2"]);
    command.env("HF_ENDPOINT", &server.url).env("HF_HOME", place.path("hf"));
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"] {
        command.env_remove(variable);
    }
    let ended = Ended::of_command(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(uses(&place, "run"), [1; 12]);
    let config: toml::Table = place.read("run/config.toml").parse().unwrap();
    let files = config["data"]["file"].as_array().unwrap();
    let path = |number: u32| {
        let folder = format!("hf/hub/datasets--org--rows/snapshots/{COMMIT}/default/train");
        place.path(&format!("{folder}/000{number}.jsonl")).display().to_string()
    };
    for (number, file) in files.iter().enumerate() {
        assert_eq!(file["file"].as_str(), Some(&*path(number as u32)));
        assert_eq!(file["weight"].as_float(), Some(0.5));
    }
    assert_eq!(files.len(), 2);
    let other = std::path::PathBuf::from(path(0).replace("default/train", "default/test"));
    assert!(!other.exists());
    place.succeed(&["audit", "run"]);
}

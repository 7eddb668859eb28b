//! Fuzz tests for readers of untrusted files. Readers must return for any input. A panic fails the
//! test, and an abort leaves its input file in `target/tmp/fuzz`.
//!
//! Each reader is tested with a few hundred files. `FUZZ_SECONDS=3600 cargo xtask test --test fuzz`
//! tests each reader for an hour.
#![expect(clippy::print_stdout, reason = "says how many files it tried")]
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod mutate;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use grpo_data::{ChatOptions, ChatTemplate, Message, ObjectReader, PromptReader, TextTokenizer};
use grpo_model::{Families, ModelFolder};
use grpo_molecules::{MoleculeReader, ReadOptions};
use grpo_run::RunFolder;

#[global_allocator]
static ALLOCATOR: grpo_runtime::Allocator = grpo_runtime::Allocator;

/// Tests `read` on mutated copies of the files in `corpus`. They are stored under `name` in a
/// separate folder.
fn fuzz(reader: &str, name: &str, corpus: &[PathBuf], cases: u64, read: impl Fn(&Path)) {
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|path| fs::read(path).unwrap()).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join(reader);
    fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
    let path = folder.join(name);
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let (begin, longest) = (Instant::now(), seconds.map(Duration::from_secs));
    let mut slowest = (Duration::ZERO, 0);
    for case in 0.. {
        if longest.map_or(case == cases, |longest| begin.elapsed() > longest) {
            println!(
                "{reader}: {case} files; the slowest, case {}, took {:?}",
                slowest.1, slowest.0
            );
            break;
        }
        let [file, other] = [case, case / 7].map(|i| &corpus[i as usize % corpus.len()]);
        fs::write(&path, mutate::changed(file, other, case)).unwrap();
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| read(&path)));
        slowest = slowest.max((started.elapsed(), case));
        assert!(result.is_ok(), "{reader}, case {case}: a panic; the file is {}", path.display());
    }
    fs::remove_dir_all(folder).unwrap();
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name)
}

fn read_molecules(path: &Path) {
    let Ok(reader) = MoleculeReader::open(path, &ReadOptions::default()) else { return };
    for record in reader.take(100).map_while(Result::ok) {
        let _described = grpo_chem::describe(&record.smiles);
    }
}

fn read_objects(path: &Path) {
    if let Ok(reader) = PromptReader::open(path) {
        reader.take(1000).for_each(drop);
    }
    if let Ok(mut reader) = ObjectReader::open(path, "a key") {
        for _ in 0..1000 {
            if !matches!(reader.next_row(), Ok(Some(_))) {
                break;
            }
        }
    }
}

#[test]
fn molecules() {
    fuzz("molecules", "x.smi", &[own("molecules.smi")], 200, read_molecules);
    fuzz("molecules-csv", "x.csv", &[own("molecules.csv")], 200, read_molecules);
}

#[test]
fn json_lines() {
    fuzz("json-lines", "x.jsonl", &[own("prompts.jsonl")], 500, read_objects);
}

#[test]
fn parquet() {
    let file =
        |codec: &str| crates().join(format!("grpo-data/tests/fixtures/prompts-{codec}.parquet"));
    let files = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"].map(file);
    fuzz("parquet", "x.parquet", &files, 300, read_objects);
}

#[test]
fn safetensors() {
    let model = crates().join("grpo-selftest/fixtures/models/gpt2-inner");
    let load = |path: &Path| {
        let folder = path.parent().unwrap();
        let _loaded = ModelFolder::load_model(folder, &Families::default(), &Device::flex());
    };
    for file in ["model.safetensors", "config.json"] {
        let load = |path: &Path| {
            for other in ["model.safetensors", "config.json"].iter().filter(|name| **name != file) {
                fs::copy(model.join(other), path.with_file_name(other)).unwrap();
            }
            load(path);
        };
        fuzz(&format!("model-{file}"), file, &[model.join(file)], 100, load);
    }
}

#[test]
fn templates() {
    let messages = ["system", "user", "assistant"]
        .map(|role| Message { role: role.to_owned(), content: "é <b> {{ x }}".to_owned() });
    let render = |path: &Path| {
        if let Ok(Some(template)) = ChatTemplate::from_folder(path.parent().unwrap()) {
            let _text = template.render(&messages, &ChatOptions::for_answer(Some(true)));
        }
    };
    fuzz("templates", "chat_template.jinja", &[own("chat_template.jinja")], 300, render);
}

#[test]
fn tokenizers() {
    let encode = |path: &Path| {
        if let Ok(tokenizer) = TextTokenizer::from_file(path) {
            let ids = tokenizer.encode("Hello é 🦀 12\n").unwrap_or_default();
            let _text = tokenizer.decode_all(&ids);
        }
    };
    let sentence = crates().join("grpo-selftest/fixtures/models/sentence-new/tokenizer.json");
    let text = crates().join("grpo-data/tests/fixtures/tokenizer.json");
    fuzz("tokenizers", "tokenizer.json", &[sentence, text], 300, encode);
}

#[test]
fn run_folders() {
    let files = ["run.json", "config.toml", "metrics.jsonl", "ledger.jsonl", "events.jsonl"];
    for name in files.into_iter().chain(["completions/step-2.parquet"]) {
        let read = |path: &Path| {
            let folder = if name.contains('/') { path.parent().unwrap() } else { path };
            let folder = folder.parent().unwrap();
            for other in files.iter().filter(|other| **other != name) {
                fs::copy(own("run").join(other), folder.join(other)).unwrap();
            }
            let Ok(run) = RunFolder::open(folder) else { return };
            let _config = run.read_config();
            let _info = run.read_info();
            let _metrics = run.read_metrics();
            let _ledger = run.read_ledger();
            let _events = run.read_events();
            let _completions = run.completions_of(2);
        };
        let reader = format!("run-{}", name.replace('/', "-"));
        fuzz(&reader, name, &[own("run").join(name)], 100, read);
    }
}

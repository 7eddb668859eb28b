//! `grpo export`, and GGUF files as models.

use std::fs;

use grpo_gguf::{Gguf, GgufWriter, MetadataValue, TensorPlan, TensorType};
use snapbox::str;

use crate::support::Place;
use crate::texts::{distance, entries, logprobs};
use crate::training_texts;

const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/replies/model");
const RECORDS: &str = "{\"prompt\": \"The train is late again.\", \"completion\": \" Oh no, sorry!\"}\n{\"prompt_ids\": [9], \"completion_ids\": [8, 300]}\n";

#[test]
fn an_exported_model_is_read_again() {
    let place = Place::new();
    let of_folder = logprobs(&place.logprob(BUNDLED, RECORDS, &[]));
    for (kind, most) in [("f32", 1e-9), ("bf16", 0.2), ("f16", 0.02), ("q8_0", 0.2)] {
        let ended = place.succeed(&["export", BUNDLED, "--gguf", kind, "-o", kind]);
        assert_eq!(ended.stderr, format!("written      {kind}\n"));
        let file = format!("model-{kind}.gguf");
        let expected = ["Modelfile", "README.md", "manifest.json", file.as_str()];
        assert_eq!(entries(&place.path(kind)), expected);
        let of_file = logprobs(&place.logprob(&format!("{kind}/{file}"), RECORDS, &[]));
        let off = distance(&of_folder, &of_file);
        assert!(off <= most, "{kind}: {off}");
    }
    let modelfile = place.read("q8_0/Modelfile");
    assert!(modelfile.contains("FROM ./model-q8_0.gguf\n"), "{modelfile}");
    assert!(modelfile.contains("PARAMETER stop \"<|im_end|>\"\n"), "{modelfile}");
    let card = place.read("q8_0/README.md");
    assert!(card.starts_with("---\nlibrary_name: gguf\ntags:\n- gguf\n---\n\n# model\n"), "{card}");
    assert!(card.contains("llama-cli -m model-q8_0.gguf\n"), "{card}");
}

/// Creates a place with the model `m` as `g/model-f32.gguf`, and the configuration that trains an adapter
/// for that file.
fn with_gguf() -> Place {
    let place = training_texts::place("llama");
    place.succeed(&["export", "m", "--gguf", "f32", "-o", "g"]);
    place.write(
        "train.toml",
        training_texts::TRAIN.replace("model = \"m\"", "model = \"g/model-f32.gguf\""),
    );
    place
}

#[test]
fn a_run_from_a_gguf_file_is_trained_resumed_replayed_audited_and_merged() {
    let place = with_gguf();
    let checked = place.succeed(&["train", "train.toml", "--check"]).stdout;
    assert!(checked.contains("configuration is valid"), "{checked}");
    place.succeed(&["train", "train.toml"]);
    // It is the run from the folder, to the bit.
    place.succeed(&["train", "train.toml", "--set", "model=m", "--run", "other"]);
    for file in ["adapter/adapter_model.safetensors", "ledger.jsonl"] {
        let read = |run: &str| fs::read(place.path(run).join(file)).unwrap();
        assert!(read("run") == read("other"), "{file}");
    }
    place.succeed(&["train", "--resume", "run", "--verify"]);
    let replayed = place.succeed(&["replay", "run", "--step", "2"]).stdout;
    assert!(replayed.contains("bit for bit"), "{replayed}");
    let explained = place.succeed(&["explain", "run", "--step", "2"]).stdout;
    assert!(explained.contains("two and two are"), "{explained}");
    // A card may be edited, and other files lie next to a GGUF file.
    place.write("g/README.md", "# Mine\n");
    place.write("g/other.txt", "x");
    let audited = place.succeed(&["audit", "run"]).stdout;
    assert!(!audited.contains("VIOLATED") && !audited.contains("not recorded"), "{audited}");

    let base = "g/model-f32.gguf";
    place.succeed(&["merge", "--model", base, "--adapter", "run/adapter", "-o", "merged"]);
    let adapted = place.logprob(base, RECORDS, &["--adapter", "run/adapter"]);
    let merged = place.logprob("merged", RECORDS, &[]);
    assert!(distance(&logprobs(&adapted), &logprobs(&merged)) < 1e-4);
    place.succeed(&["export", "run", "--gguf", "f32"]);
    let exported = place.logprob("run-f32/model-f32.gguf", RECORDS, &[]);
    assert!(distance(&logprobs(&merged), &logprobs(&exported)) < 1e-9);
    place.succeed(&["attention", "--model", base, "-o", "a.svg", "two and two"]);
}

#[test]
fn a_run_is_exported_with_a_card() {
    let place = training_texts::place("llama");
    place.write("m/README.md", "---\nlicense: apache-2.0\n---\n# Theirs\n");
    place.succeed(&["train", "train.toml"]);
    let ended = place.succeed(&["export", "run", "--gguf", "q8_0"]);
    assert_eq!(ended.stderr, "written      run-q8_0\n");
    let card = place.read("run-q8_0/README.md");
    let data = grpo_run::sha256(place.read("prompts.jsonl").as_bytes());
    for line in [
        "license: \"apache-2.0\"\nlibrary_name: gguf\ntags:\n- grpo\n- gguf\n---\n\n# run\n",
        "| Base model | m |\n",
        "| Licence of the base model | apache-2.0, according to its README.md |\n",
        "| Training | GRPO (grpo train), LoRA of rank 2 |\n",
        "| Reward | pattern",
        "| Steps | 3 of 3 |\n",
        &format!("| Input: prompts | prompts.jsonl, SHA-256 {data} |\n"),
        "3 completions before the first step and after step 3, with the same prompts",
        "| mean reward | ",
        "\nVerdict: ",
        "| Reward rises | ",
    ] {
        assert!(card.contains(line), "{line}\n{card}");
    }

    // The adapter alone refers to its base.
    let ended = place.succeed(&["export", "run/adapter", "--gguf", "f16", "--adapter-only"]);
    assert_eq!(ended.stderr, "written      run-adapter-f16\n");
    let expected = ["Modelfile", "README.md", "adapter-f16.gguf", "manifest.json"];
    assert_eq!(entries(&place.path("run-adapter-f16")), expected);
    let modelfile = place.read("run-adapter-f16/Modelfile");
    assert!(modelfile.contains("/m\nADAPTER ./adapter-f16.gguf\n"), "{modelfile}");
    let card = place.read("run-adapter-f16/README.md");
    assert!(card.contains("llama-cli -m BASE.gguf --lora adapter-f16.gguf\n"), "{card}");
    let file = fs::File::open(place.path("run-adapter-f16/adapter-f16.gguf")).unwrap();
    let gguf = Gguf::open(file).unwrap();
    assert_eq!(gguf.metadata().get("adapter.lora.alpha"), Some(&MetadataValue::F32(4.0)));
    assert!(gguf.tensor("blk.1.ffn_down.weight.lora_b").is_some());

    // A merged folder has the same, and may be edited.
    place.succeed(&["merge", "--model", "m", "--adapter", "run/adapter", "-o", "merged"]);
    let card = place.read("merged/README.md");
    assert!(card.contains("library_name: transformers\ntags:\n- grpo\n"), "{card}");
    assert!(card.contains("grpo sample --model . --prompt TEXT --chat\n"), "{card}");
    place.write("merged/README.md", card + "\nMore.\n");
    place.logprob("merged", RECORDS, &[]);
    fs::remove_file(place.path("merged/README.md")).unwrap();
    place.logprob("merged", RECORDS, &[]);
}

#[test]
fn force_replaces_an_exported_folder_and_nothing_else() {
    let place = with_gguf();
    let export = |to| ["export", "m", "--gguf", "f32", "-o", to, "--force"];
    place.refuse(
        &export("g")[..6],
        str!["g already exists; choose another folder, or replace it with --force"],
    );
    place.succeed(&export("g"));
    place.refuse(
        &["export", "g/model-f32.gguf", "--gguf", "f16", "-o", "g", "--force"],
        str!["g is an input of the export; choose another folder for -o"],
    );
    place.refuse(
        &export("m-source"),
        str!["m-source is not an exported folder, so --force does not replace it; choose another folder for -o"],
    );
    // A file from which a run was started is kept.
    place.succeed(&["train", "train.toml"]);
    let again = place.succeed(&["export", "m", "--gguf", "f16", "-o", "g", "--force"]);
    assert!(again.stderr.contains("which is kept as g.old-1"), "{}", again.stderr);
    place.succeed(&["train", "--resume", "run", "--verify"]);
    place.refuse(
        &["export", "m", "--gguf", "f16", "--adapter-only"],
        str!["m has no adapter; remove --adapter-only"],
    );
}

/// Writes the model in `from` again with another value of a key of its metadata.
fn changed(place: &Place, from: &str, key: &str, value: impl Into<MetadataValue>) {
    let mut gguf = Gguf::open(fs::File::open(place.path(from)).unwrap()).unwrap();
    let mut metadata = gguf.metadata().clone();
    metadata.set(key, value);
    let plan = |info: &grpo_gguf::TensorInfo| TensorPlan {
        name: info.name.clone(),
        shape: info.shape.clone(),
        kind: TensorType::F32,
    };
    let plans: Vec<TensorPlan> = gguf.tensors().iter().map(plan).collect();
    let mut writer = GgufWriter::new(Vec::new(), &metadata, plans.clone()).unwrap();
    for plan in plans {
        writer.write(&plan.name, &gguf.read(&plan.name).unwrap()).unwrap();
    }
    place.write("changed.gguf", writer.finish().unwrap());
}

#[test]
fn damaged_files_and_other_models_are_refused() {
    let place = Place::new();
    place.succeed(&["export", BUNDLED, "--gguf", "q8_0", "-o", "out"]);
    let whole = fs::read(place.path("out/model-q8_0.gguf")).unwrap();
    place.write("half.gguf", &whole[..1000]);
    let sample = |model| ["sample", "--model", model, "--prompt", "a"];
    place.refuse(
        &sample("half.gguf"),
        str!["half.gguf: [..]the file is truncated or damaged, so download it again"],
    );
    let file = "out/model-q8_0.gguf";
    changed(&place, file, "general.architecture", "gemma3");
    place.refuse(
        &sample("changed.gguf"),
        str!["changed.gguf: its architecture is `gemma3`, which is not supported; supported are llama, qwen2 and qwen3"],
    );
    changed(&place, file, "tokenizer.ggml.tokens", vec!["a".to_owned(), "b".to_owned()]);
    let refused = place.run(&sample("changed.gguf"));
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(1), 1), "{}", refused.stderr);
    assert!(refused.stderr.starts_with("error: changed.gguf"), "{}", refused.stderr);
    // The type of the first tensor follows its name and shape. 23 is IQ4_XS.
    let mut other = whole.clone();
    let name = b"token_embd.weight";
    let at = other.windows(name.len()).position(|bytes| bytes == name).unwrap() + name.len();
    other[at + 4 + 16..][..4].copy_from_slice(&23u32.to_le_bytes());
    place.write("other.gguf", &other);
    place.refuse(
        &sample("other.gguf"),
        str![
            "other.gguf: tensor `token_embd.weight` is stored as IQ4_XS, which is not supported[..]"
        ],
    );
    place.refuse(
        &["init", file, "-o", "new"],
        str![
            "out/model-q8_0.gguf is a GGUF file, which has weights already; expected a config.json"
        ],
    );
    place.refuse(
        &["sample", "--model", file, "--adapter", file, "--prompt", "a"],
        str!["adapter folder out/model-q8_0.gguf is not a folder; an adapter folder contains adapter_config.json and adapter_model.safetensors[..]"],
    );
    place.model_of_ids("m", "gpt2", 12);
    place.refuse(
        &["export", "m", "--gguf", "q8_0", "-o", "new"],
        str!["cannot export m: it has no tokenizer.json, which a GGUF file needs; add the tokenizer of the model"],
    );
    assert!(!place.path("new").exists());
}

use std::fs;
use std::path::Path;

use grpo_run::{DataFile, RunInfo, write_manifest};
use serde_json::json;

use super::*;
use crate::import_trl::yaml::parse_yaml;

/// A text that would end a scalar, a cell, a block and the metadata.
const HOSTILE: &str = "x\n---\nlicense: mit\n# Heading\n```\n| a | b |\n<script> [link](https://example.org) \u{2028}\"'";

fn card(name: &str, base: Option<Base>, trained_by: Option<TrainedBy>) -> String {
    let contents = Contents::Model { is_in_transformers: true };
    Card { name, base, trained_by, contents, has_chat: true }.to_string()
}

/// Returns the metadata of a card and the text below.
fn parts(card: &str) -> (serde_json::Value, &str) {
    let (metadata, text) = card.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    (parse_yaml(metadata).unwrap(), text)
}

#[test]
fn the_licence_and_the_commit_of_the_base_are_those_of_its_folder() {
    let place = tempfile::tempdir().unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let base = place.path().join("models--Qwen--Qwen3-0.6B/snapshots").join(commit);
    fs::create_dir_all(&base).unwrap();
    let theirs = "---\nlicense: other\nlicense_name: their-licence\nlicense_link: LICENSE\ntags: [a, b]\n---\n# Qwen\n";
    fs::write(base.join("README.md"), theirs).unwrap();
    let written = card("mine", Some(Base::of(&base)), None);
    let (metadata, text) = parts(&written);
    let expected = json!({
        "base_model": "Qwen/Qwen3-0.6B",
        "base_model_relation": "finetune",
        "license": "other",
        "license_name": "their-licence",
        "license_link": format!("https://huggingface.co/Qwen/Qwen3-0.6B/blob/{commit}/LICENSE"),
        "library_name": "transformers",
    });
    assert_eq!(metadata, expected);
    assert!(text.contains("| Base model | Qwen/Qwen3-0.6B |\n"), "{text}");
    assert!(text.contains(&format!("| Revision | {commit} |\n")), "{text}");
    assert!(!text.contains(&place.path().display().to_string()), "{text}");
    // Without a card, the text of the licence is recognised.
    fs::remove_file(base.join("README.md")).unwrap();
    fs::write(base.join("LICENSE"), "\n   Apache License\n   Version 2.0, January 2004\n").unwrap();
    let text = card("mine", Some(Base::of(&base)), None);
    assert!(text.contains("| apache-2.0, according to its LICENSE |\n"), "{text}");
    fs::write(base.join("LICENSE"), "All rights reserved").unwrap();
    assert!(!card("mine", Some(Base::of(&base)), None).contains("icence"));
}

#[test]
fn a_foreign_card_adds_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    for (theirs, expected) in [
        (format!("---\nlicense: {}\n---\n", json!(HOSTILE)), json!(null)),
        (format!("---\nlicense: mit\nlicense_name: {}\n---\n", json!(HOSTILE)), json!(HOSTILE)),
        (
            format!("---\nlicense: mit\nlicense_link: {}\n---\n", json!("javascript://x")),
            json!(null),
        ),
        (format!("---\nlicense: mit\nbase_model: {}\n---\n", json!(HOSTILE)), json!(null)),
        ("---\nlicense: *a\n---\n".to_owned(), json!(null)),
        ("---\nlicense: mit".to_owned(), json!(null)),
        ("# No metadata\n---\nlicense: mit\n---\n".to_owned(), json!(null)),
    ] {
        fs::write(place.path().join("README.md"), &theirs).unwrap();
        let written = card(HOSTILE, Some(Base::of(place.path())), None);
        let (metadata, text) = parts(&written);
        assert_eq!(metadata["license_name"], expected, "{theirs}");
        let found = metadata.as_object().unwrap().keys().map(String::as_str);
        let known = ["license", "license_name", "library_name"];
        assert!(found.clone().all(|key| known.contains(&key)), "{theirs}: {metadata}");
        check_text(text);
    }
}

/// Checks that a hostile text has added no lines: headings, blocks, rows and HTML.
fn check_text(text: &str) {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let known = ["# x ", "## How to load it", "## Evaluation", "## Checks of the run"];
    assert!(
        headings.clone().all(|line| known.iter().any(|known| line.starts_with(known))),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("```")).count(), 4, "{text}");
    assert!(!text.lines().any(|line| line == "---" || line == "| a | b |"), "{text}");
    for unescaped in ["<script>", "[link]"] {
        let escaped = text.matches(&format!("\\{unescaped}")).count();
        assert_eq!(text.matches(unescaped).count(), escaped, "{text}");
    }
}

/// Writes the files of a finished run.
fn run(folder: &Path, name: &str, paths: &[&str]) {
    fs::create_dir_all(folder.join("adapter")).unwrap();
    let data = |path: &&str| DataFile {
        role: name.to_owned(),
        path: path.into(),
        bytes: 1,
        sha256: "ab".repeat(32),
    };
    let info = RunInfo {
        seed: 7,
        versions: [("grpo".to_owned(), "1.2.3".to_owned())].into(),
        data: paths.iter().map(data).collect(),
        ..RunInfo::default()
    };
    let line = |value: serde_json::Value| format!("{value}\n");
    let write = |file: &str, text: String| fs::write(folder.join(file), text).unwrap();
    write("run.json", line(serde_json::to_value(&info).unwrap()));
    write(
        "config.toml",
        format!(
            "model = 'm'\n[lora]\nrank = 8\n[train]\nsteps = 2\n[reward]\ntype = {}\n",
            json!(name)
        ),
    );
    write(
        "metrics.jsonl",
        line(json!({"step": 1, "reward": 0.25})) + &line(json!({"step": 2, "reward": 0.5})),
    );
    let measure = json!({"name": name, "before": 0.25, "after": 0.75, "error": 0.125});
    let comparison = json!({
        "step": 2, "samples": name, "count": 4, "reward": measure, "parts": [measure], "measures": [],
        "before": [], "after": [], "best": [],
    });
    write("comparison.json", line(comparison));
    write("adapter/adapter_config.json", "{}".to_owned());
    write_manifest(&folder.join("adapter")).unwrap();
}

#[test]
fn a_run_is_described_by_what_it_recorded() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("mine");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let cached = format!("/x/datasets--openai--gsm8k/snapshots/{commit}/main/train.parquet");
    run(&folder, "rising", &["data/prompts.jsonl", &cached]);
    let text = card("mine", None, TrainedBy::read(&folder.join("adapter")).unwrap());
    let hash = "ab".repeat(32);
    for line in [
        "tags:\n- grpo\n---\n\n# mine\n",
        "| Training | GRPO (grpo train), LoRA of rank 8 |\n| Reward | rising: rising |\n| Steps | 2 of 2 |\n",
        &format!("| Input: rising | data/prompts.jsonl, SHA-256 {hash} |\n"),
        &format!("| hf://datasets/openai/gsm8k@{commit}/main/train.parquet, SHA-256 {hash} |\n"),
        "| Seed | 7 |\n| Trained with | grpo 1.2.3 |\n",
        "|  | before | after | change |\n|---|---|---|---|\n| rising | 0.2500 | 0.7500 | 0.5000 ± 0.1250 |\n",
        "Verdict: ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Other folders belong to no run.
    assert!(TrainedBy::read(&place.path().join("mine")).unwrap().is_none());
    assert!(TrainedBy::read(&place.path().join("missing/adapter")).unwrap().is_none());
    // A checkpoint before the end has no evaluation and no verdict.
    fs::create_dir_all(folder.join("checkpoints/step-1")).unwrap();
    let text = card("mine", None, TrainedBy::read(&folder.join("checkpoints/step-1")).unwrap());
    assert!(text.contains("| Steps | 1 of 2 |\n"), "{text}");
    assert!(!text.contains("## Evaluation") && !text.contains("Verdict"), "{text}");
    // Damage is an error, which is said.
    fs::write(folder.join("comparison.json"), "{").unwrap();
    assert!(TrainedBy::read(&folder.join("adapter")).is_err());
}

#[test]
fn names_in_a_run_cannot_change_the_card() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("mine");
    run(&folder, HOSTILE, &[HOSTILE]);
    let text = card(HOSTILE, None, TrainedBy::read(&folder.join("adapter")).unwrap());
    let (metadata, text) = parts(&text);
    assert_eq!(metadata, json!({"library_name": "transformers", "tags": ["grpo"]}));
    check_text(text);
    assert!(text.contains("x --- license: mit # Heading"), "{text}");
}

//! `grpo import-molgpt`: models of checkpoints that torch has written, compared with torch.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::texts::{distance, logprobs};

/// Written by tests/peers/torch/make_checkpoints.py.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-model/tests/fixtures/torch").join(name)
}

/// Creates a place with a checkpoint and its vocabulary.
fn place(checkpoint: &str) -> Place {
    let place = Place::new();
    for name in [checkpoint, "vocabulary.json"] {
        place.write(name, std::fs::read(fixture(name)).unwrap());
    }
    place
}

/// Imports a checkpoint as the folder `m`.
fn import<'a>(checkpoint: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let basic = [
        "import-molgpt",
        checkpoint,
        "--vocabulary",
        "vocabulary.json",
        "--n-head",
        "4",
        "-o",
        "m",
    ];
    [&basic, more].concat()
}

#[test]
fn log_probabilities_are_those_of_torch() {
    let expected = std::fs::read_to_string(fixture("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let molecules = expected["molecules"].as_array().unwrap();
    for (name, more) in [("molgpt", &[][..]), ("legacy", &[]), ("encoder", &["--block-size", "24"])]
    {
        let checkpoint = format!("{name}.pt");
        let place = place(&checkpoint);
        let ended = place.succeed(&import(&checkpoint, more));
        assert_eq!(ended.stdout, "model        m\n");
        // The published code knows nothing about the first atom, so it is the prompt.
        let records: String = molecules
            .iter()
            .map(|smiles| json!({"prompt": "", "completion": smiles}).to_string() + "\n")
            .collect();
        let lines = place.logprob("m", &records, &[]);
        let rows = expected[name]["logprobs"].as_array().unwrap();
        let expected: Vec<f64> = rows
            .iter()
            .map(|row| row.as_array().unwrap())
            // Without the end of the molecule, which is not part of the text.
            .flat_map(|row| row[..row.len() - 1].iter().map(|number| number.as_f64().unwrap()))
            .collect();
        let difference = distance(&logprobs(&lines), &expected);
        assert!(difference < 1e-4, "{name}: {difference}");
    }
}

#[test]
fn molecules_begin_with_the_start_token() {
    let place = place("molgpt.pt");
    place.succeed(&import("molgpt.pt", &[]));
    let sampled = place.succeed(&["sample", "--model", "m", "-n", "20", "-q"]).stdout;
    assert_eq!(sampled.lines().count(), 20);
    assert!(sampled.lines().all(|line| line.starts_with('C')), "{sampled}");
    assert!(place.read("m/vocabulary.json").contains("\"start\": \"C\""));
    place.write("scored.jsonl", "{\"prompt\": \"\", \"completion\": \"OCC\"}\n");
    place.refuse(
        &["logprob", "--model", "m", "--input", "scored.jsonl"],
        str![
            "scored.jsonl:1: `OCC` does not start with `C`, the start token of this model; rewrite the SMILES so that it does"
        ],
    );
}

#[test]
fn a_converted_encoder_says_what_may_differ() {
    let place = place("encoder.pt");
    place.refuse(
        &import("encoder.pt", &[]),
        str![
            "encoder.pt has no position embeddings, so its context length is unknown; add --block-size N (MOSES models use 54)"
        ],
    );
    let ended = place.succeed(&import("encoder.pt", &["--block-size", "24"]));
    assert!(ended.stderr.contains("note: the weights do not show whether"), "{}", ended.stderr);
}

#[test]
fn files_that_could_run_code_or_do_not_fit_are_refused() {
    let place = place("molgpt.pt");
    let bytes = std::fs::read(fixture("molgpt.pt")).unwrap();
    // A name of the same length in place of one that PyTorch uses.
    let (good, evil) = (b"ctorch\nFloatStorage\n", b"cposix\nsystem    \n  ");
    let at = bytes.windows(good.len()).position(|window| window == good).unwrap();
    let mut hostile = bytes.clone();
    hostile[at..at + evil.len()].copy_from_slice(evil);
    place.write("hostile.pt", hostile);
    place.refuse(
        &import("hostile.pt", &[]),
        str![
            "hostile.pt: it refers to `posix.system    `, which is not part of a state dict and could run code; if you trust the file, load it in Python and save only model.state_dict()"
        ],
    );
    place.write("small.json", "{\"<\": 0, \"C\": 1}");
    place.refuse(
        &["import-molgpt", "molgpt.pt", "--vocabulary", "small.json", "--n-head", "4", "-o", "m"],
        str![
            "molgpt.pt has embeddings of 26 tokens, but small.json has 2; use the vocabulary that the model was trained with"
        ],
    );
    place.refuse(
        &[
            "import-molgpt",
            "molgpt.pt",
            "--vocabulary",
            "vocabulary.json",
            "--n-head",
            "3",
            "-o",
            "m",
        ],
        str!["molgpt.pt: n_embd = 16 is not a multiple of n_head = 3"],
    );
}

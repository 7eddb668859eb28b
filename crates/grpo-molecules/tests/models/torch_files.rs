//! Checkpoints written by torch, compared with what torch computes from them.
//!
//! The fixtures were written by `tests/peers/torch/make_checkpoints.py`.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use grpo_data::Prefix;
use grpo_model::{Dropout, Frozen, LanguageModel, TokenBatch, score_completions};
use grpo_molecules::{ImportedMolGpt, MolGptImport};
use serde_json::Value;

use crate::support::{assert_close, host};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-model/tests/fixtures/torch").join(name)
}

fn import(name: &str, block_size: Option<usize>) -> ImportedMolGpt {
    let import = MolGptImport { n_head: 4, block_size, conditions: None };
    import.read(&fixture(name), &Device::flex()).unwrap()
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

/// Returns the ids of the molecules of the fixture, with the end token. Bromine and `[nH]` are the
/// only tokens of several characters.
fn molecules() -> Vec<Vec<u32>> {
    let vocabulary = json("vocabulary.json");
    let id = |token: &str| vocabulary[token].as_u64().unwrap() as u32;
    let tokens = |smiles: &str| -> Vec<u32> {
        let spaced: String = smiles.chars().flat_map(|c| [' ', c]).collect();
        let spaced = spaced.replace(" B r", " Br").replace(" [ n H ]", " [nH]");
        spaced.split_whitespace().chain(["<"]).map(id).collect()
    };
    let list = json("expected.json")["molecules"].as_array().unwrap().clone();
    list.iter().map(|smiles| tokens(smiles.as_str().unwrap())).collect()
}

#[test]
fn log_probabilities_are_those_of_torch() {
    let expected = json("expected.json");
    for (name, block_size, notes) in
        [("molgpt", None, 0), ("legacy", None, 0), ("encoder", Some(24), 1)]
    {
        let imported = import(&format!("{name}.pt"), block_size);
        assert_eq!(imported.notes.len(), notes, "{name}: {:?}", imported.notes);
        let molecules = molecules();
        let rows: Vec<(&[u32], &[u32])> = molecules.iter().map(|ids| ids.split_at(1)).collect();
        let scores = score_completions(&Frozen::snapshot(&imported.model), &rows, 1.0);
        let found: Vec<f64> = scores.into_iter().flat_map(|scores| scores.logprobs).collect();
        let rows = expected[name]["logprobs"].as_array().unwrap();
        let numbers = rows.iter().flat_map(|row| row.as_array().unwrap());
        let expected: Vec<f64> = numbers.map(|number| number.as_f64().unwrap()).collect();
        assert_close(&found, &expected, 1e-4);
    }
}

/// The head count is the one thing that cannot be inferred from the weights.
#[test]
fn another_number_of_heads_gives_another_model() {
    let import = MolGptImport { n_head: 2, block_size: None, conditions: None };
    let model = import.read(&fixture("molgpt.pt"), &Device::flex()).unwrap().model;
    let molecules = molecules();
    let rows: Vec<(&[u32], &[u32])> = molecules.iter().map(|ids| ids.split_at(1)).collect();
    let scores = score_completions(&Frozen::snapshot(&model), &rows, 1.0);
    let first = json("expected.json")["molgpt"]["logprobs"][1][3].as_f64().unwrap();
    assert!((scores[1].logprobs[3] - first).abs() > 1e-3);
}

/// The fixtures of conditional models: properties, a scaffold's tokens, and an LSTM of them.
#[test]
fn conditional_log_probabilities_are_those_of_torch() {
    let expected = json("expected.json");
    for name in ["property", "scaffold", "lstm"] {
        let expected = &expected[name];
        let list = |key: &str| expected[key].as_array().cloned().unwrap_or_default();
        let prefix = Prefix {
            ids: list("scaffold").iter().map(|id| id.as_u64().unwrap() as u32).collect(),
            values: list("properties").iter().map(|x| Some(x.as_f64().unwrap() as f32)).collect(),
        };
        let model = import(&format!("{name}.pt"), None).model;
        for (ids, row) in molecules().iter().zip(list("logprobs")) {
            let mut batch = TokenBatch::default();
            batch.push_conditional(&prefix, &ids[..ids.len() - 1]);
            let logits = host(model.logits(model.hidden(&batch, &mut Dropout::off())));
            let rows = logits.chunks(logits.len() / (ids.len() - 1));
            let logprob = |(logits, id): (&[f64], &u32)| {
                logits[*id as usize] - logits.iter().map(|x| x.exp()).sum::<f64>().ln()
            };
            let found: Vec<f64> = rows.zip(&ids[1..]).map(logprob).collect();
            let expected: Vec<f64> =
                row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            assert_close(&found, &expected, 1e-4);
        }
    }
}

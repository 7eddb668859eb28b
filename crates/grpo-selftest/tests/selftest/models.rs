//! Compares models with results from transformers, PEFT and torch.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use grpo_selftest::{Options, Suite, run};
use safetensors::SafeTensors;
use tempfile::TempDir;

#[test]
fn other_programs_compute_the_same_of_the_same_models() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
    let report =
        run(&Options { golden: Some(golden), device: Device::flex(), families: crate::families() })
            .unwrap();
    let of_models = |suite: &&Suite| {
        ["policy", "encoder", "embedder", "infiller", "judge", "adapter", "optimizer steps"]
            .contains(&suite.name)
    };
    let suites: Vec<&Suite> = report.suites.iter().filter(of_models).collect();
    let listed: Vec<String> =
        suites.iter().map(|suite| format!("{} {}", suite.against, suite.cases)).collect();
    let expected = [
        "transformers, bert-other 15",
        "PEFT, dora-gpt2 2",
        "PEFT, dora-qwen3 2",
        "transformers, gpt2-inner 9",
        "torch, infiller 8",
        "transformers, llama-yarn-set 9",
        "PEFT, lora-gpt2 2",
        "transformers, qwen2-bf16 9",
        "transformers, qwen3-untied 9",
        "PEFT, saved-gpt2 2",
        "PEFT, saved-qwen2 2",
        "sentence-transformers, sentence-new 27",
        "sentence-transformers, sentence-old 27",
        "torch, sequence-scorer 14",
        "PEFT, tied-embedding-qwen2 2",
        "PEFT, tied-head-qwen2 2",
        "TRL and torch, train-gpt2-tiny 35",
        "TRL and torch, train-qwen2-grpo 32",
    ];
    assert_eq!(listed, expected);
    for suite in suites {
        let all = (suite.missed_cases, suite.rounded_cases);
        assert_eq!(all, (0, 0), "{}: {:?}", suite.against, suite.misses);
    }
}

#[test]
fn one_model_folder_will_do() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/lora-gpt2");
    let report =
        run(&Options { golden: Some(golden), device: Device::flex(), families: crate::families() })
            .unwrap();
    let last = report.suites.last().unwrap();
    assert_eq!((last.against.as_str(), last.cases, report.passed()), ("PEFT, lora-gpt2", 2, true));
}

/// Returns the first mismatch reported for the training folder if the expected weight at `index` in
/// the tensor `name` is increased by `more`.
fn miss_of_changed_weight(name: &str, index: usize, more: f32) -> Option<String> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/train-gpt2-tiny");
    let changed = TempDir::new().unwrap();
    for folder in ["before", "after"] {
        fs::create_dir(changed.path().join(folder)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            let file = Path::new(folder).join(file);
            fs::copy(golden.join(&file), changed.path().join(&file)).unwrap();
        }
    }
    fs::copy(golden.join("expected.json"), changed.path().join("expected.json")).unwrap();
    let weights = changed.path().join("after/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let start = tensors.tensor(name).unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize;
    let weight = &mut bytes[start + 4 * index..][..4];
    let value = f32::from_le_bytes(weight.try_into().unwrap());
    weight.copy_from_slice(&(value + more).to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    let options = Options {
        golden: Some(changed.path().to_owned()),
        device: Device::flex(),
        families: crate::families(),
    };
    let mut misses = run(&options).unwrap().suites.pop().unwrap().misses.into_iter();
    let miss = misses.next()?;
    assert_eq!((miss.label.as_str(), misses.len()), (name, 0));
    Some(miss.what)
}

/// AdamW performs five steps of 2e-4 here, so a weight changes by at most 1e-3. Two implementations
/// differ by at most 2e-3.
#[test]
fn a_wrong_weight_is_found_and_the_rounding_of_a_key_bias_is_not_one() {
    let bias = "transformer.h.0.attn.c_attn.bias";
    let wrong = |name, index, more| miss_of_changed_weight(name, index, more);
    // 96 values for queries, keys and values. Only those for keys have a gradient of 0.
    let distance = Some("distance from its expected value, relative to its movement".to_owned());
    assert_eq!(wrong(bias, 40, 1e-3), None);
    assert_eq!(wrong(bias, 40, 2.5e-3), Some(format!("{bias}[40]")));
    assert_eq!(wrong(bias, 31, 1e-4), distance);
    assert_eq!(wrong(bias, 64, 1e-4), distance);
    assert_eq!(wrong("transformer.h.1.mlp.c_fc.weight", 100, 1e-3), distance);
    assert_eq!(wrong("transformer.ln_f.weight", 3, 1e-4), distance);
}

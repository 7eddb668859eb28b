//! Models against what transformers, PEFT and torch computed of them.

use std::path::Path;

use burn::tensor::Device;
use grpo_selftest::{Options, Suite, run};

#[test]
fn other_programs_compute_the_same_of_the_same_models() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
    let report = run(&Options { golden: Some(golden), device: Device::flex() }).unwrap();
    let of_models = |suite: &&Suite| {
        ["policy", "encoder", "embedder", "infiller", "judge", "adapter", "optimizer steps"]
            .contains(&suite.name)
    };
    let suites: Vec<&Suite> = report.suites.iter().filter(of_models).collect();
    let listed: Vec<String> =
        suites.iter().map(|suite| format!("{} {}", suite.against, suite.cases)).collect();
    let expected = [
        "transformers, bert-other 15",
        "transformers, gpt2-inner 9",
        "torch, infiller 8",
        "transformers, llama-yarn-set 9",
        "PEFT, lora-gpt2 2",
        "transformers, qwen2-bf16 9",
        "transformers, qwen3-untied 9",
        "sentence-transformers, sentence-new 27",
        "sentence-transformers, sentence-old 27",
        "torch, sequence-scorer 14",
        "TRL and torch, train-qwen2-grpo 32",
    ];
    assert_eq!(listed, expected);
    for suite in suites {
        let all = (suite.missed_cases, suite.rounded_cases, suite.uncompared_cases);
        assert_eq!(all, (0, 0, 0), "{}: {:?}", suite.against, suite.misses);
    }
}

#[test]
fn one_model_folder_will_do() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/lora-gpt2");
    let report = run(&Options { golden: Some(golden), device: Device::flex() }).unwrap();
    let last = report.suites.last().unwrap();
    assert_eq!((last.against.as_str(), last.cases, report.passed()), ("PEFT, lora-gpt2", 2, true));
}

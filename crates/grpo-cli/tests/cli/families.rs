//! `grpo families`, and configurations that a family refuses.

use serde_json::{Map, Value, json};
use snapbox::str;

use crate::support::Place;

#[test]
fn families_are_listed() {
    let place = Place::new();
    let table = place.succeed(&["families"]).stdout;
    for (name, models) in [("gpt2", "DistilGPT2"), ("gemma3_text", "270M"), ("bert", "MiniLM")] {
        let row = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(row.contains(models), "{row}");
    }
    assert!(!table.contains("molgpt"), "{table}");
    let json = place.succeed(&["families", "--json"]).stdout;
    let names: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["model_type"].clone())
        .collect();
    for name in ["llama", "mistral", "olmo3", "molgpt"] {
        assert!(names.contains(&name.into()), "{names:?}");
    }
}

/// Families, options that they do not have, and why they are refused.
const REFUSED: [[&str; 3]; 14] = [
    [
        "llama",
        r#"{"layer_types": ["sliding_attention", "sliding_attention"]}"#,
        r#"layer type "sliding_attention" is not supported; supported: full_attention"#,
    ],
    [
        "mistral",
        r#"{"layer_types": ["full_attention", "full_attention"]}"#,
        r#"layer_types is not a key of this family, which ignores it in transformers; set model_type to "ministral""#,
    ],
    [
        "mistral",
        r#"{"sliding_window": 0}"#,
        "sliding_window = 0 is out of range; expected 1 or more",
    ],
    [
        "ministral",
        r#"{"layer_types": ["sliding_attention"]}"#,
        "layer_types has 1 elements; expected one per layer, 2",
    ],
    [
        "ministral",
        r#"{"layer_types": ["sliding_attention", "chunked_attention"]}"#,
        r#"layer type "chunked_attention" is not supported; supported: full_attention, sliding_attention"#,
    ],
    ["ministral", r#"{"layer_types": "all"}"#, r#"layer_types = "all"; expected a list"#],
    [
        "granite",
        r#"{"residual_multiplier": -1.0}"#,
        "residual_multiplier = -1 is out of range; expected more than 0",
    ],
    [
        "smollm3",
        r#"{"no_rope_layers": [1]}"#,
        "no_rope_layers is not a list of at least 2 numbers that are 0 or 1, one per layer",
    ],
    [
        "smollm3",
        r#"{"no_rope_layer_interval": 0}"#,
        "no_rope_layer_interval = 0 is out of range; expected 1 or more",
    ],
    ["olmo2", r#"{"partial_rotary_factor": 0.5}"#, "partial_rotary_factor = 0.5 is not supported"],
    [
        "olmo3",
        r#"{"rope_scaling": {"rope_type": "longrope"}}"#,
        r#"rope_type = "longrope" is not supported; supported: default, linear, llama3, yarn"#,
    ],
    [
        "gemma3_text",
        r#"{"final_logit_softcapping": 30.0}"#,
        "final_logit_softcapping = 30 is not supported; supported: null",
    ],
    [
        "gemma3_text",
        r#"{"use_bidirectional_attention": true}"#,
        "use_bidirectional_attention = true is not supported",
    ],
    [
        "gemma3_text",
        r#"{"hidden_activation": "silu"}"#,
        r#"hidden_activation = "silu" is not supported; supported: gelu_pytorch_tanh"#,
    ],
];

/// Every option that a family does not implement is one sentence, before anything is loaded.
#[test]
fn options_that_a_family_does_not_have_are_refused() {
    let place = Place::new();
    let sizes = json!({
        "vocab_size": 12, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 16, "head_dim": 4,
    });
    for [family, options, fault] in REFUSED {
        let mut config = sizes.as_object().unwrap().clone();
        config.insert("model_type".to_owned(), family.into());
        let options: Map<String, Value> = serde_json::from_str(options).unwrap();
        config.extend(options);
        place.write("config.json", Value::Object(config).to_string());
        let ended = place.run(&["init", "config.json", "-o", "m"]);
        assert_eq!(ended.code, Some(1), "{fault}");
        assert_eq!(ended.stderr, format!("error: config.json: {fault}\n"));
        assert!(!place.path("m").exists());
    }
    place.write("config.json", json!({"model_type": "gemma3"}).to_string());
    place.refuse(
        &["init", "config.json", "-o", "m"],
        str!["config.json: unknown model family \"gemma3\"; supported model families: [..]gemma3_text[..]"],
    );
}

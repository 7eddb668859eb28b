//! Supported and rejected `config.json` files.

use grpo_model::{
    Activation, Biases, FamilyKind, HeadKind, ModelConfig, Positions, QueryKeyNorm, RotaryConfig,
    RotaryScaling,
};
use serde_json::{Value, json};

use crate::configs::{bert, config, gpt2, language_models, llama, other, qwen2, qwen3, with};
use crate::known_families;

#[track_caller]
fn check_refused(json: Value, expected: &str) {
    assert_eq!(known_families().parse(&json.to_string()).unwrap_err(), expected);
}

fn without(mut json: Value, key: &str) -> Value {
    json.as_object_mut().unwrap().remove(key).unwrap();
    json
}

fn known() -> String {
    let names: Vec<_> = known_families().iter().map(|kind| kind.name).collect();
    assert_eq!(names[..4], ["gpt2", "llama", "qwen2", "qwen3"]);
    format!("supported model families: {}", names.join(", "))
}

#[test]
fn families_that_are_not_known() {
    check_refused(
        with(llama(), json!({"model_type": "mamba"})),
        &format!("unknown model family \"mamba\"; {}", known()),
    );
    check_refused(
        with(llama(), json!({"model_type": 3})),
        &format!("unknown model family 3; {}", known()),
    );
    check_refused(
        without(llama(), "model_type"),
        &format!(
            "missing model_type (transformers) or architecture (models of tasks); {}",
            known()
        ),
    );
    let wrapped = with(llama(), json!({"model_type": "gemma3", "text_config": llama()}));
    let error = known_families().parse(&wrapped.to_string()).unwrap_err();
    let part = "has a text model next to other parts (text_config), such as vision or audio, which are not supported; use a model of text alone";
    assert!(error.starts_with(&format!("model_type \"gemma3\" {part}")), "{error}");
    assert_eq!(
        ModelConfig::from_json("[]").unwrap_err(),
        "found a list; expected an object; copy the file from the original again"
    );
    let of_hub = crate::hub_families::FAMILIES.iter().map(|text| {
        let cases: Value = serde_json::from_str(text).unwrap();
        cases[0]["config"].clone()
    });
    let known = [llama(), qwen2(), qwen3(), gpt2(), bert(), other()].into_iter().chain(of_hub);
    let found: Vec<&FamilyKind> = known.map(|json| config(&json).family()).collect();
    for family in known_families().iter() {
        assert!(found.contains(&family), "{family:?}");
    }
}

#[test]
fn quantised_checkpoints() {
    for json in language_models().into_iter().take(4).chain([bert()]) {
        check_refused(
            with(json.clone(), json!({"quantization_config": {"quant_method": "gptq"}})),
            "quantization_config describes weights that are quantised (GPTQ), which is not supported; use the model's bf16 or f32 weights, which a run can quantise in memory",
        );
        config(&with(json, json!({"quantization_config": null})));
    }
}

/// Applies each change to a valid configuration and checks the resulting error message.
#[track_caller]
fn check_changes<const N: usize>(fine: &Value, changes: [(Value, &str); N]) {
    for (change, expected) in changes {
        check_refused(with(fine.clone(), change), expected);
    }
}

#[test]
fn what_is_computed_otherwise() {
    check_changes(
        &gpt2(),
        [
            (
                json!({"activation_function": "relu"}),
                "activation_function = \"relu\" is not supported; supported: gelu_new, gelu_pytorch_tanh, gelu",
            ),
            (json!({"scale_attn_weights": false}), "scale_attn_weights = false is not supported"),
            (
                json!({"scale_attn_by_inverse_layer_idx": true}),
                "scale_attn_by_inverse_layer_idx = true is not supported",
            ),
            (json!({"add_cross_attention": true}), "add_cross_attention = true is not supported"),
        ],
    );
    check_changes(
        &bert(),
        [
            (json!({"is_decoder": true}), "is_decoder = true is not supported"),
            (json!({"add_cross_attention": true}), "add_cross_attention = true is not supported"),
            (
                json!({"position_embedding_type": "relative_key"}),
                "position_embedding_type = \"relative_key\" is not supported; supported: absolute",
            ),
            (
                json!({"hidden_act": "relu"}),
                "hidden_act = \"relu\" is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh",
            ),
        ],
    );
    let gelu = json!({"hidden_act": "gelu"});
    check_changes(&llama(), [(gelu, "hidden_act = \"gelu\" is not supported; supported: silu")]);
    let window = json!({"use_sliding_window": true});
    check_changes(&qwen2(), [(window, "use_sliding_window = true is not supported")]);
    let sliding = json!({"layer_types": ["full_attention", "sliding_attention"]});
    let refusal = "layer type \"sliding_attention\" is not supported; supported: full_attention";
    check_changes(&qwen3(), [(sliding, refusal)]);
}

#[test]
fn rotary_positions_that_cannot_be() {
    let scaling = |json: Value| json!({"rope_scaling": json});
    check_changes(
        &llama(),
        [
            (
                scaling(json!({"type": "dynamic", "factor": 2.0})),
                "rope_type = \"dynamic\" is not supported; supported: default, linear, llama3, yarn",
            ),
            (scaling(json!({"type": "linear"})), "missing key 'factor'"),
            (
                scaling(json!({"type": "linear", "factor": 0})),
                "factor = 0 is out of range; expected more than 0",
            ),
            (scaling(json!(7)), "rope_scaling = 7; expected an object"),
            (
                scaling(
                    json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
                ),
                "high_freq_factor = 4 must be greater than low_freq_factor = 4",
            ),
            (
                scaling(
                    json!({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 0}),
                ),
                "original_max_position_embeddings = 0 is out of range; expected 1 or more",
            ),
            (json!({"rope_theta": 1.0}), "rope_theta = 1 is out of range; expected more than 1"),
            (json!({"rope_theta": -3.0}), "rope_theta = -3 is out of range; expected more than 0"),
        ],
    );
}

#[test]
fn rotary_positions_of_single_layers() {
    let linear = json!({"rope_type": "linear", "factor": 2.0});
    let both = |full: Value, sliding: Value| json!({"rope_parameters": {"full_attention": full, "sliding_attention": sliding}});
    let partial = "partial_rotary_factor = 0.5 is not supported";
    let half = json!({"partial_rotary_factor": 0.5});
    check_changes(
        &llama(),
        [
            (
                both(linear.clone(), linear.clone()),
                "rope_parameters.full_attention is not supported; all layers of this family have the same parameters",
            ),
            (json!({"rope_scaling": with(linear.clone(), half.clone())}), partial),
        ],
    );
    let gemma = with(llama(), json!({"model_type": "gemma3_text", "head_dim": 6}));
    check_changes(
        &gemma,
        [
            (
                json!({"rope_parameters": with(linear.clone(), json!({"rope_theta": 50.0}))}),
                "rope_parameters.rope_type is not supported; expected full_attention and sliding_attention, each with the parameters of its layers",
            ),
            (both(linear.clone(), half), partial),
            (
                json!({"sliding_window_pattern": 0}),
                "sliding_window_pattern = 0 is out of range; expected 1 or more",
            ),
            (
                json!({"sliding_window": null}),
                "sliding_window = null, but there are layers with a window; expected 1 or more",
            ),
        ],
    );
    // What rope_parameters do not say follows from the older keys.
    let theta = json!({"rope_theta": 70.0, "rope_local_base_freq": 30.0});
    let of = |change: Value| {
        config(&with(with(gemma.clone(), theta.clone()), change)).description().clone()
    };
    let scaled = RotaryConfig { base: 70.0, scaling: RotaryScaling::Linear { factor: 2.0 } };
    let window = Some(RotaryConfig { base: 30.0, scaling: RotaryScaling::Default });
    for change in [
        json!({"rope_parameters": {"full_attention": linear}}),
        json!({"rope_scaling": linear}),
        with(both(json!({"rope_type": "default"}), Value::Null), json!({"rope_scaling": linear})),
    ] {
        let found = of(change);
        assert_eq!(
            (found.positions, found.window_rotary),
            (Positions::Rotary(scaled.clone()), window.clone())
        );
    }
    // A context length outside of the parameters takes precedence.
    let yarn = json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16});
    let outside =
        with(llama(), json!({"rope_scaling": yarn, "original_max_position_embeddings": 32}));
    let inside =
        json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32});
    let inside = with(llama(), json!({"rope_scaling": inside}));
    assert_eq!(config(&outside).description(), config(&inside).description());
}

#[test]
fn sizes_that_do_not_fit() {
    check_changes(
        &llama(),
        [
            (
                json!({"hidden_size": 23}),
                "hidden_size = 23 is not a multiple of num_attention_heads = 4",
            ),
            (
                json!({"num_attention_heads": 0}),
                "hidden_size = 24 is not a multiple of num_attention_heads = 0",
            ),
            (
                json!({"initializer_range": 1e-50}),
                "initializer_range = 1e-50 is out of range; expected 1e-9 to 10",
            ),
            (
                json!({"num_key_value_heads": 3}),
                "4 heads cannot be divided evenly among 3 key-value heads",
            ),
            (
                json!({"num_key_value_heads": 8}),
                "4 heads cannot be divided evenly among 8 key-value heads",
            ),
            (
                json!({"num_key_value_heads": 0}),
                "the number of key-value heads is 0; expected 1 to 4096",
            ),
            (json!({"head_dim": 5}), "rotary positions require an even head width, found 5"),
            (json!({"vocab_size": 0}), "the vocabulary is 0; expected 1 to 4194304"),
            (
                json!({"num_hidden_layers": 1025}),
                "num_hidden_layers = 1025 is out of range; expected at most 1024",
            ),
            (
                json!({"intermediate_size": u64::MAX}),
                "the width of the MLP is 18446744073709551615; expected 1 to 1048576",
            ),
            (
                json!({"rms_norm_eps": 0.0}),
                "rms_norm_eps = 0 is out of range; expected more than 0",
            ),
        ],
    );
    let whole_number = "expected a non-negative integer";
    check_changes(
        &llama(),
        [
            (json!({"vocab_size": -1}), &format!("vocab_size = -1; {whole_number}")),
            (json!({"vocab_size": 1.5}), &format!("vocab_size = 1.5; {whole_number}")),
            (
                json!({"tie_word_embeddings": "yes"}),
                "tie_word_embeddings = \"yes\"; expected true or false",
            ),
        ],
    );
    check_refused(without(llama(), "vocab_size"), "missing key 'vocab_size'");
}

#[test]
fn sizes_of_other_families_that_do_not_fit() {
    check_changes(
        &gpt2(),
        [
            (json!({"n_head": 5}), "n_embd = 24 is not a multiple of n_head = 5"),
            (
                json!({"n_embd": u64::MAX, "n_head": 1}),
                "the width is 18446744073709551615; expected 1 to 65536",
            ),
        ],
    );
    check_refused(without(gpt2(), "n_positions"), "missing key 'n_ctx'");
    check_changes(
        &bert(),
        [
            (
                json!({"num_attention_heads": 5}),
                "hidden_size = 24 is not a multiple of num_attention_heads = 5",
            ),
            (json!({"type_vocab_size": 0}), "the number of token types is 0; expected 1 to 65536"),
        ],
    );
}

#[test]
fn defaults_are_those_of_transformers() {
    let of = |json: Value| config(&json).description().clone();
    let small = json!({
        "model_type": "llama", "vocab_size": 10, "max_position_embeddings": 8, "hidden_size": 8,
        "intermediate_size": 9, "num_hidden_layers": 1, "num_attention_heads": 2,
    });
    let llama = of(small.clone());
    assert_eq!((llama.kv_heads, llama.head_width, llama.head), (2, 4, HeadKind::Own));
    for (family, kv_heads) in [
        ("mistral", 8),
        ("ministral", 8),
        ("smollm3", 4),
        ("gemma3_text", 4),
        ("granite", 16),
        ("olmo3", 16),
    ] {
        let heads = json!({"model_type": family, "num_attention_heads": 16, "head_dim": 2});
        let found = of(with(small.clone(), heads));
        assert_eq!(found.kv_heads, kv_heads, "{family}");
        let has_windows = matches!(family, "mistral" | "ministral" | "gemma3_text" | "olmo3");
        assert_eq!(found.attention_of(0).window, has_windows.then_some(4096), "{family}");
    }
    assert_eq!(llama.biases, Biases::everywhere(false));
    let default = RotaryConfig { base: 10_000.0, scaling: RotaryScaling::Default };
    assert_eq!(llama.positions, Positions::Rotary(default));
    let qwen3 = of(with(small.clone(), json!({"model_type": "qwen3"})));
    assert_eq!((qwen3.head_width, qwen3.query_key_norm), (128, QueryKeyNorm::EachHead));
    let qwen2 = of(with(small, json!({"model_type": "qwen2"})));
    let inputs = Biases { attention_inputs: true, attention_output: false, mlp: false };
    assert_eq!((qwen2.biases, qwen2.query_key_norm), (inputs, QueryKeyNorm::None));
    let gpt2 = of(gpt2());
    assert_eq!(
        (gpt2.mlp_width, gpt2.head, gpt2.activation),
        (96, HeadKind::Tied, Activation::GeluTanh)
    );
    assert_eq!(of(bert()).head, HeadKind::None);
    // transformers reads mlp_bias only for Llama.
    for qwen in [crate::configs::qwen2(), crate::configs::qwen3()] {
        assert_eq!(of(with(qwen.clone(), json!({"mlp_bias": true}))), of(qwen));
    }
    // A disabled sliding window is ignored.
    assert_eq!(
        of(with(
            crate::configs::qwen2(),
            json!({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})
        )),
        of(crate::configs::qwen2())
    );
}

/// `rope_theta` and `rope_scaling` of transformers 4 are equivalent to `rope_parameters` of
/// transformers 5.
#[test]
fn old_and_new_keys_are_the_same_model() {
    let new = |rope: Value| with(without(llama(), "rope_theta"), json!({"rope_parameters": rope}));
    let old = |rope: Value| with(llama(), json!({"rope_theta": 500.0, "rope_scaling": rope}));
    let llama3 = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
    });
    let yarn = json!({"factor": 4.0, "original_max_position_embeddings": 16});
    let mut seen = vec![];
    for (kind, keys) in [
        ("default", json!({})),
        ("linear", json!({"factor": 4.0})),
        ("llama3", llama3),
        ("yarn", yarn),
    ] {
        let newer =
            config(&new(with(keys.clone(), json!({"rope_type": kind, "rope_theta": 500.0}))));
        for key in ["rope_type", "type"] {
            let older = config(&old(with(keys.clone(), json!({ key: kind }))));
            assert_eq!(older.description(), newer.description(), "{kind}");
        }
        assert!(!seen.contains(newer.description()), "{kind} is as another");
        seen.push(newer.description().clone());
    }
    assert_eq!(config(&old(Value::Null)).description(), &seen[0]);
    // If both are present, transformers 5 uses the older one unless it is empty.
    let linear = json!({"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0});
    let both = |rope: Value| with(new(linear.clone()), json!({"rope_scaling": rope}));
    let yarn = json!({"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16});
    assert_eq!(config(&both(yarn)).description(), &seen[3]);
    assert_eq!(config(&both(json!({}))).description(), &seen[1]);
    let Positions::Rotary(rotary) = &seen[3].positions else { panic!("rotary") };
    let RotaryScaling::Yarn { attention_factor, beta_fast, beta_slow, truncate, .. } =
        rotary.scaling
    else {
        panic!("yarn")
    };
    assert!((attention_factor - (0.1 * 4.0_f64.ln() + 1.0)).abs() < 1e-12);
    assert_eq!((beta_fast, beta_slow, truncate), (32.0, 1.0, true));
}

#[test]
fn other_keys_are_kept() {
    let json =
        with(llama(), json!({"zz": {"a": [1, null]}, "architectures": ["LlamaForCausalLM"]}));
    assert_eq!(Value::Object(config(&json).json().clone()), json);
}

//! Adapter directories that are rejected, and the error messages.

use burn::tensor::Device;
use grpo_model::{Adapter, LoraConfig};
use serde_json::{Value, json};

use crate::adapters::lora;
use crate::configs::{config, gpt2, llama, with};
use crate::peft::{CONFIG, FILE, Q, change, check_refused, edit, folder, load, model};
use crate::support::{Weights, read_safetensors, shaken};

#[test]
fn settings_that_contradict_the_file() {
    let model = model();
    let check = |keys: Value, expected: &str| {
        let folder = folder(&model);
        change(folder.path(), keys);
        check_refused(folder.path(), &model, expected);
    };
    let known = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj";
    check(
        json!({"target_modules": ["nope", "none"]}),
        &format!(
            "adapter_model.safetensors: adapter_config.json targets nope, none, but the linear layers of this model are {known}; was the adapter trained on a different base model?"
        ),
    );
    check(
        json!({"target_modules": ["q_proj", 2]}),
        "adapter_config.json: target_modules = [\"q_proj\",2]; expected names",
    );
    check(
        json!({"target_modules": 2}),
        "adapter_config.json: target_modules = 2; expected a list of names",
    );
    check(
        json!({"target_modules": ["q_proj", "nope"]}),
        "adapter_model.safetensors: the file has matrices for model.layers.0.self_attn.k_proj, which is not in target_modules of adapter_config.json; use both files from the same adapter",
    );
    check(
        json!({"use_something_new": true}),
        "adapter_config.json: use_something_new = true is not supported",
    );
}

/// A rank above the size of the matrix would be useless.
#[test]
fn ranks_that_a_layer_cannot_have() {
    let config = LoraConfig { rank: 13, ..lora(0.0) };
    let refused = Adapter::random(&config, &model(), 1, &Device::flex()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "lora.rank = 13 is too large for model.layers.0.self_attn.k_proj, a 24 × 12 matrix"
    );
}

#[test]
fn adapters_of_another_base() {
    let model = model();
    let folder = folder(&model);
    let known = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj";
    let other = |json: Value| shaken(&config(&json), 1, &Device::flex());
    // The adapter has more blocks than the base.
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"num_hidden_layers": 1}))),
        &format!(
            "adapter_model.safetensors: 'base_model.model.model.layers.1.mlp.down_proj.lora_A.weight' does not match a linear layer of this model ({known}); was the adapter trained on a different base model?"
        ),
    );
    // The adapter has fewer blocks than the base.
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"num_hidden_layers": 3}))),
        "adapter_model.safetensors is missing tensor 'base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight'; is it a checkpoint of this model family?",
    );
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"hidden_size": 28, "head_dim": 6}))),
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_A.weight' has shape [3, 24], but the model and adapter_config.json require [3, 28]; was the adapter trained on a different base model?"
        ),
    );
    check_refused(
        folder.path(),
        &other(gpt2()),
        &format!(
            "adapter_model.safetensors: adapter_config.json targets {known}, but the linear layers of this model are c_attn, c_fc, c_proj; was the adapter trained on a different base model?"
        ),
    );
}

#[test]
fn pairs_that_are_not_whole() {
    let model = model();
    let fresh = || folder(&model);
    for (part, other) in [("A", "B"), ("B", "A")] {
        let folder = fresh();
        let gone = format!("{Q}.lora_{part}.weight");
        edit(folder.path(), |weights| drop(weights.remove(&gone)));
        assert!(
            read_safetensors(&folder.path().join(FILE))
                .contains_key(&format!("{Q}.lora_{other}.weight"))
        );
        check_refused(
            folder.path(),
            &model,
            &format!(
                "adapter_model.safetensors is missing tensor '{gone}'; is it a checkpoint of this model family?"
            ),
        );
    }
    let folder = fresh();
    change(folder.path(), json!({"r": 4}));
    check_refused(
        folder.path(),
        &model,
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_A.weight' has shape [3, 24], but the model and adapter_config.json require [4, 24]; was the adapter trained on a different base model?"
        ),
    );
    let folder = fresh();
    edit(folder.path(), |weights| {
        weights.get_mut(&format!("{Q}.lora_B.weight")).unwrap().0 = vec![12, 6]
    });
    check_refused(
        folder.path(),
        &model,
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_B.weight' has shape [12, 6], but the model and adapter_config.json require [24, 3]; was the adapter trained on a different base model?"
        ),
    );
    let folder = fresh();
    edit(folder.path(), |weights| {
        weights.get_mut(&format!("{Q}.lora_B.weight")).unwrap().1[5] = f32::NAN
    });
    check_refused(
        folder.path(),
        &model,
        &format!("adapter_model.safetensors: tensor '{Q}.lora_B.weight' holds a non-finite value"),
    );
    let folder = fresh();
    edit(folder.path(), Weights::clear);
    change(folder.path(), json!({"target_modules": "all-linear"}));
    check_refused(folder.path(), &model, "adapter_model.safetensors has no LoRA matrices");
    // A layer trained in full, in addition to the adapter, that modules_to_save does not name.
    let folder = fresh();
    edit(folder.path(), |weights| {
        drop(weights.insert("base_model.model.lm_head.weight".into(), (vec![1], vec![1.0])))
    });
    assert!(load(folder.path(), &model).unwrap_err().starts_with(
        "adapter_model.safetensors: tensor 'base_model.model.lm_head.weight' has shape [1], but"
    ));
}

#[test]
fn kinds_that_are_not_supported() {
    let model = model();
    for (keys, expected) in [
        (json!({"peft_type": "LOHA"}), "peft_type = LOHA is not supported; supported: LORA"),
        (json!({"peft_type": null}), "peft_type = nothing is not supported; supported: LORA"),
        (
            json!({"bias": "some"}),
            "bias = \"some\" is not supported; supported: \"none\", \"all\", \"lora_only\"",
        ),
        (json!({"use_dora": "yes"}), "use_dora = \"yes\"; expected true or false"),
        (json!({"ensure_weight_tying": true}), "ensure_weight_tying = true is not supported"),
        (json!({"lora_bias": true}), "lora_bias = true is not supported"),
        (
            json!({"modules_to_save": "lm_head"}),
            "modules_to_save = \"lm_head\"; expected a list of names",
        ),
        (json!({"layer_replication": [[0, 4]]}), "layer_replication = [[0,4]] is not supported"),
        (json!({"trainable_token_indices": [1]}), "trainable_token_indices = [1] is not supported"),
        (json!({"alora_invocation_tokens": [1]}), "alora_invocation_tokens = [1] is not supported"),
        (json!({"target_parameters": ["x"]}), "target_parameters = [\"x\"] is not supported"),
        (json!({"use_qalora": true}), "use_qalora = true is not supported"),
        (json!({"r": 0}), "r = 0 is out of range; expected 1 to 65536"),
        (json!({"r": 1.5}), "r = 1.5 is out of range; expected 1 to 65536"),
        (
            json!({"lora_alpha": -1}),
            "lora_alpha = -1 is out of range; expected a number of at least 0",
        ),
        (
            json!({"lora_alpha": null}),
            "lora_alpha = null is out of range; expected a number of at least 0",
        ),
        (
            json!({"lora_alpha": 1e39}),
            "lora_alpha = 1e+39 is out of range; expected 1.2e-38 to 3.4e38",
        ),
        (
            json!({"lora_dropout": 1}),
            "lora_dropout = 1 is out of range; expected 0 or more, and less than 1",
        ),
        (
            json!({"init_lora_weights": "pissa_niter_16"}),
            "init_lora_weights = \"pissa_niter_16\" is not supported: it modifies the base weights",
        ),
        // Rounds to 1 as f32.
        (
            json!({"lora_dropout": 0.999_999_999}),
            "lora_dropout = 0.999999999 is out of range; expected 0 or more, and less than 1",
        ),
        (json!({"use_rslora": "yes"}), "use_rslora = \"yes\"; expected true or false"),
        (
            json!({"rank_pattern": {"q_proj": 0}}),
            "rank_pattern = 0 is out of range; expected 1 to 65536",
        ),
        (json!({"rank_pattern": ["q_proj"]}), "rank_pattern = [\"q_proj\"]; expected an object"),
        (
            json!({"alpha_pattern": {"q_proj": "x"}}),
            "alpha_pattern = \"x\" is out of range; expected a number of at least 0",
        ),
    ] {
        let folder = folder(&model);
        change(folder.path(), keys);
        check_refused(folder.path(), &model, &format!("{CONFIG}: {expected}"));
    }
    for pattern in ["(", "(a{1000}){1000}{1000}", "\\"] {
        let folder = folder(&model);
        change(folder.path(), json!({"rank_pattern": { pattern: 2 }}));
        let message = load(folder.path(), &model).unwrap_err();
        let start = format!("{CONFIG}: rank_pattern: invalid pattern '{pattern}': ");
        assert!(message.starts_with(&start), "{message}");
    }
    // Features can be disabled in different ways.
    let folder = folder(&model);
    change(
        folder.path(),
        json!({"use_dora": false, "modules_to_save": [], "layer_replication": null, "loftq_config": {}, "bias": null, "init_lora_weights": "gaussian"}),
    );
    load(folder.path(), &model).unwrap();
}

#[test]
fn folders_that_are_not_whole() {
    let model = model();
    let folder = folder(&model);
    std::fs::write(folder.path().join(CONFIG), "[]").unwrap();
    check_refused(
        folder.path(),
        &model,
        "adapter_config.json: found a list; expected an object; copy the file from the original again",
    );
    std::fs::remove_file(folder.path().join(CONFIG)).unwrap();
    check_refused(
        folder.path(),
        &model,
        "cannot read adapter_config.json: No such file or directory (os error 2)",
    );
}

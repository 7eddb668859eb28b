//! Adapters in PEFT's folder format: out and in again, and what is refused.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use grpo_data::{Codec, Codecs};
use grpo_model::{
    Adapter, AdapterConfig, AdapterFolder, LoraConfig, ModelFolder, ModelSpec, StoredAs,
    Transformer, WeightPrecision, write_adapter,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::adapters::{lora, pairs, shaken_adapter};
use crate::configs::{config, gpt2, language_models, llama, qwen3, with};
use crate::support::{
    Weights, assert_close, largest, named_tensors, read_safetensors, safetensors_bytes, shaken,
    shakes,
};

const CONFIG: &str = "adapter_config.json";
const FILE: &str = "adapter_model.safetensors";
const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj";

fn model() -> Transformer {
    shaken(&config(&llama()), 1, &Device::flex())
}

/// A folder with an adapter of [`model`].
fn folder(model: &Transformer) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let adapter = shaken_adapter(model, 0.25, &Device::flex());
    let config = AdapterConfig::new(&lora(0.25), model, "a/base");
    write_adapter(&adapter, &config, folder.path(), model).unwrap();
    folder
}

fn read_json(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join(CONFIG)).unwrap()).unwrap()
}

/// Changes keys of the settings.
fn change(folder: &Path, keys: Value) {
    let json = with(read_json(folder), keys);
    std::fs::write(folder.join(CONFIG), json.to_string()).unwrap();
}

/// Changes the tensors.
fn edit(folder: &Path, change: impl FnOnce(&mut Weights)) {
    let mut weights = read_safetensors(&folder.join(FILE));
    change(&mut weights);
    std::fs::write(folder.join(FILE), safetensors_bytes(&weights)).unwrap();
}

fn load(folder: &Path, model: &Transformer) -> Result<AdapterFolder, String> {
    let loaded = AdapterFolder::load(folder, model, &Device::flex());
    loaded.map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
}

#[track_caller]
fn check_refused(folder: &Path, model: &Transformer, expected: &str) {
    assert_eq!(load(folder, model).unwrap_err(), expected);
}

/// PEFT says nothing of the numbers of a base, and ours do: read again, the adapter is for that base alone.
#[test]
fn an_adapter_says_which_numbers_it_was_trained_on() {
    let device = Device::flex();
    let bases = [1, 2].map(|seed| {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&llama());
        let model = Transformer::random(&config, seed, &device).unwrap();
        let spec = ModelSpec { config, codec: Codec::of_ids(Default::default()) };
        spec.write(folder.path(), &model, StoredAs::F32).unwrap();
        folder
    });
    let [first, second] = [0, 1]
        .map(|base| ModelFolder::load(bases[base].path(), &Codecs::default(), &device).unwrap());
    let config = AdapterConfig::new(&lora(0.25), &first.model, "a/base");
    let (here, other) = (Path::new("here"), Path::new("other"));
    let config = config.on_base(&first.digest, here, here).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let adapter = shaken_adapter(&first.model, 0.25, &device);
    write_adapter(&adapter, &config, folder.path(), &first.model).unwrap();
    let read = load(folder.path(), &first.model).unwrap();
    assert_eq!(read.config, config);
    assert_eq!(read.config.clone().on_base(&first.digest, here, here).unwrap(), config);
    let digest = |of: &ModelFolder| of.digest.to_string()[..12].to_owned();
    assert_eq!(
        read.config.on_base(&second.digest, here, other).unwrap_err().to_string(),
        format!(
            "here was trained on another base: on a/base with the weights {}, and other has the weights {}; give the model that it was trained on",
            digest(&first),
            digest(&second)
        )
    );
    // In whatever precision a base is held, it is the same one.
    for precision in [WeightPrecision::Bf16, WeightPrecision::Q8] {
        let held =
            ModelFolder::load_in(bases[0].path(), &Codecs::default(), precision, &device).unwrap();
        assert_eq!(held.digest, first.digest);
    }
    // One of PEFT's is accepted on every base.
    edit(folder.path(), |_| ());
    let of_peft = load(folder.path(), &first.model).unwrap().config;
    of_peft.on_base(&second.digest, here, other).unwrap();
}

#[test]
fn adapters_survive_the_way_out_and_in() {
    for json in language_models() {
        let model = shaken(&config(&json), 1, &Device::flex());
        let first = folder(&model);
        let read = load(first.path(), &model).unwrap();
        assert_eq!(read.config, AdapterConfig::new(&lora(0.25), &model, "a/base"));
        let again = tempfile::tempdir().unwrap();
        read.write(again.path(), &model).unwrap();
        for name in [CONFIG, FILE] {
            let bytes = |folder: &TempDir| std::fs::read(folder.path().join(name)).unwrap();
            assert_eq!(bytes(&first), bytes(&again), "{name} of {json}");
        }
        let stored = read_safetensors(&first.path().join(FILE));
        assert_eq!(pairs(&read.adapter, &model), stored);
        // Both of a pair for each layer; A is `[rank, in]`, B is `[out, rank]`.
        assert_eq!(
            stored.values().map(|(_, values)| values.len()).sum::<usize>(),
            read.adapter.num_params()
        );
        for (name, (shape, _)) in &stored {
            let rank = if name.ends_with("lora_A.weight") { shape[0] } else { shape[1] };
            assert_eq!(rank, 3, "{name}: {shape:?}");
        }
    }
}

#[test]
fn settings_are_written_as_peft_reads_them() {
    let json = read_json(folder(&model()).path());
    let targets =
        json!(["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]);
    let expected = json!({
        "base_model_name_or_path": "a/base", "bias": "none", "fan_in_fan_out": false,
        "inference_mode": true, "init_lora_weights": true, "lora_alpha": 5.0, "lora_dropout": 0.25,
        "peft_type": "LORA", "r": 3, "target_modules": targets, "task_type": "CAUSAL_LM",
        "use_dora": false, "use_rslora": false,
    });
    assert_eq!(json, expected);
    let gpt2 = shaken(&config(&gpt2()), 1, &Device::flex());
    let json = read_json(folder(&gpt2).path());
    assert_eq!(
        (&json["fan_in_fan_out"], &json["target_modules"]),
        (&json!(true), &json!(["c_attn", "c_fc", "c_proj"]))
    );
    // Keys that are none of our business stay.
    let folder = folder(&gpt2);
    change(folder.path(), json!({"revision": "main", "loftq_config": {}}));
    let read = load(folder.path(), &gpt2).unwrap();
    read.write(folder.path(), &gpt2).unwrap();
    assert_eq!(read_json(folder.path())["revision"], "main");
}

/// What an adapter adds to the matrix of a layer of a Llama or Qwen, `[out · in]`.
fn added(model: &Transformer, adapter: &Adapter, layer: &str) -> Vec<f64> {
    let name = format!("{layer}.weight");
    let [merged, plain] = [named_tensors(&model.merged(adapter)), named_tensors(model)];
    let both = merged[&name].iter::<f64>().zip(plain[&name].iter::<f64>());
    both.map(|(merged, plain)| merged - plain).collect()
}

/// `scale · B · A` of a pair on disk.
fn product(pairs: &Weights, layer: &str, scale: f64) -> Vec<f64> {
    let of = |part: &str| &pairs[&format!("base_model.model.{layer}.lora_{part}.weight")];
    let ((a_shape, a), (b_shape, b)) = (of("A"), of("B"));
    let (rank, input, output) = (a_shape[0], a_shape[1], b_shape[0]);
    let element = |o: usize, i: usize| -> f64 {
        let terms = (0..rank).map(|r| f64::from(b[o * rank + r]) * f64::from(a[r * input + i]));
        scale * terms.sum::<f64>()
    };
    (0..output).flat_map(|o| (0..input).map(move |i| (o, i))).map(|(o, i)| element(o, i)).collect()
}

#[test]
fn patterns_give_layers_ranks_and_alphas_of_their_own() {
    let model = shaken(&config(&qwen3()), 1, &Device::flex());
    let folder = folder(&model);
    // Of several patterns the first that is true counts; one is true of a whole path, or of an end behind a dot.
    change(
        folder.path(),
        json!({
            "rank_pattern": {"model.layers.1.self_attn.q_proj": 1, "o_proj": 5, "proj": 9},
            "alpha_pattern": {"down_proj": 1, "layers\\.0\\.self_attn\\.o_proj": 20, "self_attn.*": 7},
        }),
    );
    let ranks = |name: &str| match name {
        name if name.contains("layers.1.self_attn.q_proj") => 1,
        name if name.contains("o_proj") => 5,
        _ => 3,
    };
    edit(folder.path(), |weights| {
        for (name, (shape, values)) in weights {
            let rank = ranks(name);
            let of_a = name.ends_with("lora_A.weight");
            *shape = if of_a { vec![rank, shape[1]] } else { vec![shape[0], rank] };
            *values = shakes(name).take(shape.iter().product()).collect();
        }
    });
    let read = load(folder.path(), &model).unwrap();
    let stored = read_safetensors(&folder.path().join(FILE));
    assert_eq!(pairs(&read.adapter, &model), stored);
    for (layer, alpha) in [
        ("model.layers.0.mlp.down_proj", 1.0),
        ("model.layers.1.mlp.down_proj", 1.0),
        ("model.layers.0.mlp.up_proj", 5.0),
        ("model.layers.0.self_attn.o_proj", 20.0),
        ("model.layers.1.self_attn.o_proj", 7.0),
        ("model.layers.0.self_attn.q_proj", 7.0),
        ("model.layers.1.self_attn.q_proj", 7.0),
    ] {
        let expected = product(&stored, layer, alpha / ranks(layer) as f64);
        // The difference of two f32 near 1.
        assert_close(
            &added(&model, &read.adapter, layer),
            &expected,
            3e-7 * largest(&expected).max(1.0),
        );
    }
    change(folder.path(), json!({"use_rslora": true}));
    let rslora = load(folder.path(), &model).unwrap().adapter;
    let layer = "model.layers.0.self_attn.o_proj";
    let expected = product(&stored, layer, 20.0 / 5.0_f64.sqrt());
    assert_close(&added(&model, &rslora, layer), &expected, 3e-7 * largest(&expected).max(1.0));
}

#[test]
fn some_layers_alone() {
    let model = model();
    let config = LoraConfig { targets: vec!["q_proj".into(), "v_proj".into()], ..lora(0.0) };
    let adapter = Adapter::random(&config, &model, 1, &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_adapter(&adapter, &AdapterConfig::new(&config, &model, ""), folder.path(), &model)
        .unwrap();
    let read = load(folder.path(), &model).unwrap();
    assert_eq!(pairs(&read.adapter, &model), pairs(&adapter, &model));
    assert_eq!(read.adapter.num_params(), 2 * 3 * (24 + 24 + 24 + 12));
    // A layer that the settings name and the file does not have.
    edit(folder.path(), |weights| {
        weights.retain(|name, _| !name.contains("layers.1.self_attn.v_proj"))
    });
    check_refused(
        folder.path(),
        &model,
        "adapter_model.safetensors has no tensor 'base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight'; is it a checkpoint of this model family?",
    );
    // Where a pattern stands in place of names, or some are left out, it is not missing.
    let saved = read_json(folder.path());
    for keys in [json!({"target_modules": ".*(q|v)_proj"}), json!({"exclude_modules": ["x"]})] {
        change(folder.path(), keys);
        assert_eq!(load(folder.path(), &model).unwrap().adapter.num_params(), 3 * (48 + 36 + 48));
        change(folder.path(), with(saved.clone(), json!({"exclude_modules": null})));
    }
    // Of the blocks that are named, all are there, and of others none.
    let other = "it has matrices for model.layers.1.self_attn.q_proj, which target_modules of adapter_config.json does not name; take both files from the same adapter";
    for blocks in [json!([0]), json!(0)] {
        change(folder.path(), json!({"layers_to_transform": blocks}));
        check_refused(folder.path(), &model, &format!("adapter_model.safetensors: {other}"));
    }
    edit(folder.path(), |weights| weights.retain(|name, _| !name.contains("layers.1.")));
    assert_eq!(load(folder.path(), &model).unwrap().adapter.num_params(), 2 * 3 * 42);
    change(folder.path(), json!({"layers_to_transform": "0"}));
    check_refused(
        folder.path(),
        &model,
        "adapter_config.json: layers_to_transform = \"0\"; expected numbers of blocks",
    );
}

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
            "adapter_model.safetensors: its adapter_config.json targets nope, none, and the linear layers of this model are {known}; was the adapter trained on another base?"
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
        "adapter_model.safetensors: it has matrices for model.layers.0.self_attn.k_proj, which target_modules of adapter_config.json does not name; take both files from the same adapter",
    );
    check(
        json!({"use_something_new": true}),
        "adapter_config.json: use_something_new = true is not supported",
    );
}

/// More columns than a matrix has could say nothing more.
#[test]
fn ranks_that_a_layer_cannot_have() {
    let config = LoraConfig { rank: 13, ..lora(0.0) };
    let refused = Adapter::random(&config, &model(), 1, &Device::flex()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "lora.rank = 13 is more than the rank that model.layers.0.self_attn.k_proj can have, which is 24 × 12"
    );
}

#[test]
fn adapters_of_another_base() {
    let model = model();
    let folder = folder(&model);
    let known = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj";
    let other = |json: Value| shaken(&config(&json), 1, &Device::flex());
    // More blocks than the base has.
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"num_hidden_layers": 1}))),
        &format!(
            "adapter_model.safetensors: 'base_model.model.model.layers.1.mlp.down_proj.lora_A.weight' has no layer in this model, whose linear layers are {known}; was the adapter trained on another base?"
        ),
    );
    // Fewer blocks.
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"num_hidden_layers": 3}))),
        "adapter_model.safetensors has no tensor 'base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight'; is it a checkpoint of this model family?",
    );
    check_refused(
        folder.path(),
        &other(with(llama(), json!({"hidden_size": 28, "head_dim": 6}))),
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_A.weight' has shape [3, 24], but the model and adapter_config.json ask for [3, 28]; was the adapter trained on another base?"
        ),
    );
    check_refused(
        folder.path(),
        &other(gpt2()),
        &format!(
            "adapter_model.safetensors: its adapter_config.json targets {known}, and the linear layers of this model are c_attn, c_fc, c_proj; was the adapter trained on another base?"
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
                "adapter_model.safetensors has no tensor '{gone}'; is it a checkpoint of this model family?"
            ),
        );
    }
    let folder = fresh();
    change(folder.path(), json!({"r": 4}));
    check_refused(
        folder.path(),
        &model,
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_A.weight' has shape [3, 24], but the model and adapter_config.json ask for [4, 24]; was the adapter trained on another base?"
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
            "adapter_model.safetensors: tensor '{Q}.lora_B.weight' has shape [12, 6], but the model and adapter_config.json ask for [24, 3]; was the adapter trained on another base?"
        ),
    );
    let folder = fresh();
    edit(folder.path(), |weights| {
        weights.get_mut(&format!("{Q}.lora_B.weight")).unwrap().1[5] = f32::NAN
    });
    check_refused(
        folder.path(),
        &model,
        &format!(
            "adapter_model.safetensors: tensor '{Q}.lora_B.weight' holds a number that is not finite"
        ),
    );
    let folder = fresh();
    edit(folder.path(), Weights::clear);
    change(folder.path(), json!({"target_modules": "all-linear"}));
    check_refused(folder.path(), &model, "adapter_model.safetensors has no LoRA matrices");
    // Trained beside the pairs (modules_to_save).
    let folder = fresh();
    edit(folder.path(), |weights| {
        drop(weights.insert("base_model.model.lm_head.weight".into(), (vec![1], vec![1.0])))
    });
    assert!(
        load(folder.path(), &model).unwrap_err().starts_with(
            "adapter_model.safetensors: 'base_model.model.lm_head.weight' has no layer"
        )
    );
}

#[test]
fn kinds_that_are_not_supported() {
    let model = model();
    for (keys, expected) in [
        (json!({"peft_type": "LOHA"}), "peft_type is LOHA; LORA is read"),
        (json!({"peft_type": null}), "peft_type is nothing; LORA is read"),
        (json!({"bias": "lora_only"}), "bias = \"lora_only\" is not supported; there is \"none\""),
        (json!({"use_dora": true}), "use_dora = true is not supported"),
        (json!({"lora_bias": true}), "lora_bias = true is not supported"),
        (
            json!({"modules_to_save": ["lm_head"]}),
            "modules_to_save = [\"lm_head\"] is not supported",
        ),
        (json!({"layer_replication": [[0, 4]]}), "layer_replication = [[0,4]] is not supported"),
        (json!({"trainable_token_indices": [1]}), "trainable_token_indices = [1] is not supported"),
        (json!({"alora_invocation_tokens": [1]}), "alora_invocation_tokens = [1] is not supported"),
        (json!({"target_parameters": ["x"]}), "target_parameters = [\"x\"] is not supported"),
        (json!({"use_qalora": true}), "use_qalora = true is not supported"),
        (json!({"r": 0}), "r = 0; expected 1 to 65536"),
        (json!({"r": 1.5}), "r = 1.5; expected 1 to 65536"),
        (json!({"lora_alpha": 0}), "lora_alpha = 0; expected a number above 0"),
        (json!({"lora_alpha": null}), "lora_alpha = null; expected a number above 0"),
        (json!({"lora_dropout": 1}), "lora_dropout = 1; expected 0 to 1"),
        (
            json!({"init_lora_weights": "pissa_niter_16"}),
            "init_lora_weights = \"pissa_niter_16\" is not supported: it changes the base",
        ),
        // As f32 it would be 1.
        (json!({"lora_dropout": 0.999_999_999}), "lora_dropout = 0.999999999; expected 0 to 1"),
        (json!({"use_rslora": "yes"}), "use_rslora = \"yes\"; expected true or false"),
        (json!({"rank_pattern": {"q_proj": 0}}), "rank_pattern = 0; expected 1 to 65536"),
        (json!({"rank_pattern": ["q_proj"]}), "rank_pattern = [\"q_proj\"]; expected an object"),
        (
            json!({"alpha_pattern": {"q_proj": "x"}}),
            "alpha_pattern = \"x\"; expected a number above 0",
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
        let start = format!("{CONFIG}: rank_pattern: '{pattern}' is no pattern: ");
        assert!(message.starts_with(&start), "{message}");
    }
    // What is off, whatever way it is said.
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
        "adapter_config.json: invalid type: sequence, expected a map at line 1 column 0",
    );
    std::fs::remove_file(folder.path().join(CONFIG)).unwrap();
    check_refused(
        folder.path(),
        &model,
        "cannot read adapter_config.json: No such file or directory (os error 2)",
    );
}

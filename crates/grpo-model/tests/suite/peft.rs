//! Adapters in PEFT's directory format: a round trip, and supported variants.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use grpo_data::Codec;
use grpo_model::{
    Adapter, AdapterConfig, AdapterFolder, LoraConfig, ModelFolder, ModelSpec, StoredAs,
    Transformer, WeightPrecision, write_adapter,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::adapters::{lora, pairs, shaken_adapter};
use crate::configs::{config, formats, gpt2, language_models, llama, qwen3, with};
use crate::support::{
    Weights, assert_close, largest, named_tensors, read_safetensors, safetensors_bytes, shaken,
    shakes,
};

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const FILE: &str = "adapter_model.safetensors";
pub(crate) const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj";

pub(crate) fn model() -> Transformer {
    shaken(&config(&llama()), 1, &Device::flex())
}

/// Returns a directory with an adapter for [`model`].
pub(crate) fn folder(model: &Transformer) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let adapter = shaken_adapter(model, 0.25, &Device::flex());
    let config = AdapterConfig::new(&lora(0.25), model, "a/base");
    write_adapter(&adapter, &config, folder.path(), model).unwrap();
    folder
}

pub(crate) fn read_json(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join(CONFIG)).unwrap()).unwrap()
}

/// Changes keys in the adapter configuration.
pub(crate) fn change(folder: &Path, keys: Value) {
    let json = with(read_json(folder), keys);
    std::fs::write(folder.join(CONFIG), json.to_string()).unwrap();
}

/// Modifies the tensors of the adapter.
pub(crate) fn edit(folder: &Path, change: impl FnOnce(&mut Weights)) {
    let mut weights = read_safetensors(&folder.join(FILE));
    change(&mut weights);
    std::fs::write(folder.join(FILE), safetensors_bytes(&weights)).unwrap();
}

pub(crate) fn load(folder: &Path, model: &Transformer) -> Result<AdapterFolder, String> {
    let loaded = AdapterFolder::load(folder, model, &Device::flex());
    loaded.map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
}

#[track_caller]
pub(crate) fn check_refused(folder: &Path, model: &Transformer, expected: &str) {
    assert_eq!(load(folder, model).unwrap_err(), expected);
}

/// Unlike PEFT, we record the base weights, so a stored adapter is tied to its base.
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
    let [first, second] =
        [0, 1].map(|base| ModelFolder::load(bases[base].path(), &formats(), &device).unwrap());
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
            "here was trained on a different base model: a/base with weights {}, but other has weights {}; use the model it was trained on",
            digest(&first),
            digest(&second)
        )
    );
    // The digest doesn't depend on the precision in which the base is loaded.
    for precision in [WeightPrecision::Bf16, WeightPrecision::Q8] {
        let held = ModelFolder::load_in(bases[0].path(), &formats(), precision, &device).unwrap();
        assert_eq!(held.digest, first.digest);
    }
    // An adapter written by PEFT is accepted for any base.
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
        // Both matrices for each layer. A is `[rank, in]`, B is `[out, rank]`.
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
    // Keys that we don't interpret are preserved.
    let folder = folder(&gpt2);
    change(folder.path(), json!({"revision": "main", "loftq_config": {}}));
    let read = load(folder.path(), &gpt2).unwrap();
    read.write(folder.path(), &gpt2).unwrap();
    assert_eq!(read_json(folder.path())["revision"], "main");
}

/// Returns what an adapter adds to the matrix of a Llama or Qwen layer, `[out · in]`.
fn added(model: &Transformer, adapter: &Adapter, layer: &str) -> Vec<f64> {
    let name = format!("{layer}.weight");
    let [merged, plain] = [named_tensors(&model.merged(adapter)), named_tensors(model)];
    let both = merged[&name].iter::<f64>().zip(plain[&name].iter::<f64>());
    both.map(|(merged, plain)| merged - plain).collect()
}

/// Computes `scale · B · A` from the matrices on disk.
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
    // The first matching pattern counts. A pattern matches a full path, or the end of a path
    // following a dot.
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
        // The tolerance accounts for a difference of two f32 numbers near 1.
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
    // A layer named in the configuration is missing from the weights.
    edit(folder.path(), |weights| {
        weights.retain(|name, _| !name.contains("layers.1.self_attn.v_proj"))
    });
    check_refused(
        folder.path(),
        &model,
        "adapter_model.safetensors is missing tensor 'base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight'; is it a checkpoint of this model family?",
    );
    // This is not an error if the targets are a pattern, or if the layer is excluded.
    let saved = read_json(folder.path());
    for keys in [
        json!({"target_modules": ".*(q|v)_proj"}),
        json!({"exclude_modules": ["1.self_attn.v_proj"]}),
        json!({"exclude_modules": r".*\.1\.self_attn\.v_proj"}),
    ] {
        change(folder.path(), keys);
        assert_eq!(load(folder.path(), &model).unwrap().adapter.num_params(), 3 * (48 + 36 + 48));
        change(folder.path(), with(saved.clone(), json!({"exclude_modules": null})));
    }
    change(folder.path(), json!({"target_modules": "zzz"}));
    check_refused(
        folder.path(),
        &model,
        "adapter_model.safetensors: adapter_config.json targets zzz, but the linear layers of this model are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; was the adapter trained on a different base model?",
    );
    change(folder.path(), json!({"target_modules": "("}));
    check_refused(
        folder.path(),
        &model,
        "adapter_config.json: target_modules = \"(\" is not a valid regular expression; copy the file from the adapter again",
    );
    change(folder.path(), saved.clone());
    // Excluded layers must not be present, and all others must be.
    change(folder.path(), json!({"exclude_modules": ["1.self_attn.q_proj"]}));
    check_refused(
        folder.path(),
        &model,
        "adapter_model.safetensors: the file has matrices for model.layers.1.self_attn.q_proj, which exclude_modules of adapter_config.json excludes; use both files from the same adapter",
    );
    change(folder.path(), with(saved.clone(), json!({"exclude_modules": ["x"]})));
    assert!(load(folder.path(), &model).is_err());
    change(folder.path(), json!({"exclude_modules": 3}));
    check_refused(
        folder.path(),
        &model,
        "adapter_config.json: exclude_modules = 3; expected a list of names or a pattern",
    );
    change(folder.path(), with(saved.clone(), json!({"exclude_modules": null})));
    // All layers in the given blocks must be present, and none in other blocks.
    let other = "the file has matrices for model.layers.1.self_attn.q_proj, which is not in target_modules of adapter_config.json; use both files from the same adapter";
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
        "adapter_config.json: layers_to_transform = \"0\"; expected a list of block indices",
    );
}

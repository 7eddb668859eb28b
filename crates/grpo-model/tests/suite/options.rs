//! Options of a description that no family of the crate uses, compared with models that have the same
//! effect in their weights.

use grpo_model::{
    Description, Families, FamilyKind, Fields, Frozen, KvCache, ModelConfig, ModelFolder, Names,
    QueryKeyNorm, Scales, TokenBatch, Transformer,
};
use serde_json::Value;

use crate::configs::{config, other, qwen3};
use crate::other_family::OTHER;
use crate::support::{
    IDS, Weights, assert_close, device, host, largest, logits, shaken, weights, write_folder,
};

static SCALED: FamilyKind = FamilyKind::new("scaled", OTHER.names, |fields| {
    let scales = Scales {
        embedding: 3.0,
        attention: Some(0.7),
        residual: 0.4,
        logits: 0.25,
        ..Scales::default()
    };
    Ok(Description { scales, ..(OTHER.describe)(fields)? })
});

/// A Qwen3 with one matrix for queries, keys and values.
static JOINT: FamilyKind = FamilyKind::new("joint", NAMES, joint_qwen3);

/// The same with a norm over all heads.
static ALL_HEADS: FamilyKind = FamilyKind::new("all_heads", NAMES, |fields| {
    Ok(Description { query_key_norm: QueryKeyNorm::AllHeads, ..joint_qwen3(fields)? })
});

const NAMES: Names = Names {
    prefix: "model.",
    blocks: "layers.",
    outside: &[("token_embedding", "embed_tokens"), ("norm", "norm"), ("head", "lm_head")],
    inside: &[
        ("attention_norm", "input_layernorm"),
        ("attention.inputs.0", "self_attn.qkv_proj"),
        ("attention.query_norm", "self_attn.q_norm"),
        ("attention.key_norm", "self_attn.k_norm"),
        ("attention.output", "self_attn.o_proj"),
        ("mlp_norm", "post_attention_layernorm"),
        ("mlp.gate", "mlp.gate_proj"),
        ("mlp.up", "mlp.up_proj"),
        ("mlp.down", "mlp.down_proj"),
    ],
    conv1d: false,
    ignored: |_| false,
};

fn joint_qwen3(fields: &Fields<'_>) -> Result<Description, String> {
    let families = Families::default();
    let qwen3 = families.iter().find(|kind| kind.name == "qwen3").unwrap();
    Ok(Description { joint_inputs: true, ..(qwen3.describe)(fields)? })
}

fn of_family(family: &'static FamilyKind, json: Value, weights: &Weights) -> Transformer {
    let Value::Object(mut json) = json else { panic!("an object") };
    json.insert("model_type".to_owned(), family.name.into());
    let config = ModelConfig::new(family, json).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &config, weights);
    ModelFolder::load_model(folder.path(), &family.into(), &device()).unwrap()
}

/// Computes logits of a sequence in two parts with a cache.
fn cached_logits(model: &Transformer) -> Vec<f64> {
    let model = Frozen::snapshot(model);
    let mut cache = KvCache::new();
    let slot = cache.open();
    let mut part = |ids: &[u32]| {
        let tokens = TokenBatch::from_iter([ids]);
        host(model.logits(model.extend(&tokens, &mut cache, &[slot])))
    };
    [part(&IDS[..4]), part(&IDS[4..])].concat()
}

#[track_caller]
fn check_equal(one: &Transformer, other: &Transformer) {
    let batch = TokenBatch::from_iter([&IDS[..], &IDS[3..5]]);
    let expected = logits(other, &batch);
    let tolerance = 2e-5 * largest(&expected);
    assert_close(&logits(one, &batch), &expected, tolerance);
    assert_close(&cached_logits(one), &expected[..19 * IDS.len()], tolerance);
}

#[test]
fn scales_are_factors_of_weights() {
    let config = config(&other());
    let plain = weights(&shaken(&config, 1, &device()));
    let mut changed = plain.clone();
    for (name, (_, values)) in &mut changed {
        let factor = match name.as_str() {
            "tok_emb.weight" => 3.0,
            "head.weight" => 0.25,
            name if name.contains("attn.query") => 0.7 * 8_f32.sqrt(),
            name if name.contains("attn.proj") || name.contains("mlp.2") => 0.4,
            _ => 1.0,
        };
        values.iter_mut().for_each(|value| *value *= factor);
    }
    assert_ne!(plain, changed);
    let scaled = of_family(&SCALED, other(), &plain);
    check_equal(&scaled, &of_family(&OTHER, other(), &changed));
}

/// Replaces the matrices of queries, keys and values by one.
fn joint(weights: &Weights) -> Weights {
    let mut weights = weights.clone();
    for layer in 0..2 {
        let at = |part: &str| format!("model.layers.{layer}.self_attn.{part}.weight");
        let parts = ["q_proj", "k_proj", "v_proj"].map(|part| weights.remove(&at(part)).unwrap());
        let rows = parts.iter().map(|(shape, _)| shape[0]).sum();
        let shape = vec![rows, parts[0].0[1]];
        weights.insert(at("qkv_proj"), (shape, parts.map(|(_, values)| values).concat()));
    }
    weights
}

#[test]
fn joint_inputs_can_be_normalised_and_rotated() {
    let model = shaken(&config(&qwen3()), 1, &device());
    check_equal(&of_family(&JOINT, qwen3(), &joint(&weights(&model))), &model);
}

/// If all heads are the same, their common norm is that of each.
#[test]
fn all_heads_can_have_one_norm() {
    let mut each = weights(&shaken(&config(&qwen3()), 1, &device()));
    let mut all = each.clone();
    for layer in 0..2 {
        for (part, heads) in [("q", 4), ("k", 2)] {
            let matrix = format!("model.layers.{layer}.self_attn.{part}_proj.weight");
            let first = each[&matrix].1[..10 * 24].to_vec();
            for weights in [&mut each, &mut all] {
                weights.get_mut(&matrix).unwrap().1 = first.repeat(heads);
            }
            let norm = format!("model.layers.{layer}.self_attn.{part}_norm.weight");
            let (shape, values) = all.get_mut(&norm).unwrap();
            (*shape, *values) = (vec![10 * heads], values.repeat(heads));
        }
    }
    let all = of_family(&ALL_HEADS, qwen3(), &joint(&all));
    check_equal(&all, &of_family(&JOINT, qwen3(), &joint(&each)));
    // The norm of other matrices depends on all heads.
    let plain = weights(&shaken(&config(&qwen3()), 1, &device()));
    let mut widened = plain.clone();
    for (name, (shape, values)) in &mut widened {
        let heads = if name.contains("q_norm") { 4 } else { 2 };
        if name.contains("_norm.weight") {
            (*shape, *values) = (vec![10 * heads], values.repeat(heads));
        }
    }
    let apart = cached_logits(&of_family(&ALL_HEADS, qwen3(), &joint(&widened)));
    let expected = cached_logits(&of_family(&JOINT, qwen3(), &joint(&plain)));
    assert!(apart.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-3 * largest(&expected)));
}

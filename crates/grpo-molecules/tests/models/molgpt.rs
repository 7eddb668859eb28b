//! MolGPT: comparison with plain f64 loops, cached and full passes, and a round trip of the
//! weights.

use std::cell::RefCell;
use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Device;
use grpo_data::Codec;
use grpo_model::{
    Dropout, Frozen, KvCache, LanguageModel, ModelConfig, ModelFolder, ModelFormats, ModelSpec,
    StoredAs, StoredTensors, TokenBatch, Transformer, linear_weights,
};

use grpo_molecules::{MOLGPT, MolGptConfig};

use crate::support::{assert_close, attention, device, host, named_tensors, shaken_by};

thread_local! {
    /// The attention weights so far, by layer, query, head and key.
    static WEIGHTS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

fn formats() -> ModelFormats {
    ModelFormats { families: (&MOLGPT).into(), ..ModelFormats::default() }
}

fn config(vocab_size: usize, block_size: usize, n_layer: usize, n_embd: usize) -> ModelConfig {
    MolGptConfig::new(vocab_size, block_size, n_layer, 4, n_embd).to_config().unwrap()
}

fn model(config: &ModelConfig, device: &Device) -> Transformer {
    shaken_by(config, 3, |_| 5.0, device)
}

fn logits(model: &Transformer, rows: &[&[u32]]) -> Vec<f64> {
    let tokens = TokenBatch::from_iter(rows.iter().copied());
    host(model.logits(model.hidden(&tokens, &mut Dropout::off())))
}

/// Reference implementation of the forward pass. It uses the stored tensors and processes one
/// sequence at a time.
pub(crate) struct Oracle(BTreeMap<String, Vec<f64>>);

impl Oracle {
    pub(crate) fn of(model: &Transformer) -> Self {
        Self(
            named_tensors(model).into_iter().map(|(n, d)| (n, d.iter::<f64>().collect())).collect(),
        )
    }

    pub(crate) fn linear(&self, name: &str, x: &[f64], bias: bool) -> Vec<f64> {
        let weight = &self.0[&format!("{name}.weight")];
        (0..weight.len() / x.len())
            .map(|o| {
                let row = &weight[o * x.len()..(o + 1) * x.len()];
                let product: f64 = row.iter().zip(x).map(|(w, x)| w * x).sum();
                product + if bias { self.0[&format!("{name}.bias")][o] } else { 0.0 }
            })
            .collect()
    }

    /// Returns the values of a stored tensor.
    pub(crate) fn tensor(&self, name: &str) -> &[f64] {
        &self.0[name]
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let (gamma, beta) = (&self.0[&format!("{name}.weight")], &self.0[&format!("{name}.bias")]);
        (0..x.len())
            .map(|i| (x[i] - mean) / (variance + 1e-5).sqrt() * gamma[i] + beta[i])
            .collect()
    }

    /// Computes the logits of each token. `prefix` contains the vectors of its conditions.
    pub(crate) fn logits(
        &self,
        tokens: &[u32],
        prefix: &[Vec<f64>],
        layers: usize,
        heads: usize,
    ) -> Vec<f64> {
        let (tok, kind, pos) =
            (&self.0["tok_emb.weight"], &self.0["type_emb.weight"], &self.0["pos_emb"]);
        let d = kind.len() / 2;
        let mut x: Vec<Vec<f64>> =
            prefix.iter().map(|p| (0..d).map(|i| p[i] + kind[i]).collect()).collect();
        for (t, &id) in tokens.iter().enumerate() {
            x.push(
                (0..d).map(|i| tok[id as usize * d + i] + pos[t * d + i] + kind[d + i]).collect(),
            );
        }
        for layer in 0..layers {
            let name = |part: &str| format!("blocks.{layer}.{part}");
            let normal: Vec<_> = x.iter().map(|x| self.norm(&name("ln1"), x)).collect();
            let part = |p: &str| -> Vec<Vec<f64>> {
                normal.iter().map(|x| self.linear(&name(p), x, true)).collect()
            };
            let (q, k, v) = (part("attn.query"), part("attn.key"), part("attn.value"));
            let w = d / heads;
            for t in 0..x.len() {
                let mut mixed = vec![0.0; d];
                for head in 0..heads {
                    let range = head * w..(head + 1) * w;
                    let dot = |s: usize| -> f64 {
                        q[t][range.clone()]
                            .iter()
                            .zip(&k[s][range.clone()])
                            .map(|(a, b)| a * b)
                            .sum()
                    };
                    let weight: Vec<f64> =
                        (0..=t).map(|s| (dot(s) / (w as f64).sqrt()).exp()).collect();
                    let total: f64 = weight.iter().sum();
                    WEIGHTS.with_borrow_mut(|all| {
                        all.extend(weight.iter().map(|weight| weight / total));
                        all.resize(all.len() + x.len() - 1 - t, 0.0);
                    });
                    for s in 0..=t {
                        for i in range.clone() {
                            mixed[i] += weight[s] / total * v[s][i];
                        }
                    }
                }
                let out = self.linear(&name("attn.proj"), &mixed, true);
                x[t].iter_mut().zip(out).for_each(|(x, o)| *x += o);
            }
            for x in &mut x {
                let up = self.linear(&name("mlp.0"), &self.norm(&name("ln2"), x), true);
                let gelu: Vec<f64> = up
                    .iter()
                    .map(|u| 0.5 * u * (1.0 + libm::erf(u / std::f64::consts::SQRT_2)))
                    .collect();
                let out = self.linear(&name("mlp.2"), &gelu, true);
                x.iter_mut().zip(out).for_each(|(x, o)| *x += o);
            }
        }
        let states = x[prefix.len()..].iter();
        states.flat_map(|x| self.linear("head", &self.norm("ln_f", x), false)).collect()
    }
}

#[test]
fn logits_are_those_of_the_definition() {
    let model = model(&config(11, 9, 3, 16), &device());
    let rows: [&[u32]; 2] = [&[0, 3, 10, 7, 3], &[5, 5, 1, 2, 9]];
    let expected: Vec<f64> =
        rows.iter().flat_map(|row| Oracle::of(&model).logits(row, &[], 3, 4)).collect();
    assert_close(&logits(&model, &rows), &expected, 2e-5);
}

#[test]
fn attention_weights_are_those_of_the_definition() {
    let model = model(&config(11, 9, 3, 16), &device());
    let ids = [0, 3, 10, 7, 3];
    WEIGHTS.with_borrow_mut(Vec::clear);
    Oracle::of(&model).logits(&ids, &[], 3, 4);
    assert_close(&attention(&model, &ids), &WEIGHTS.take(), 2e-6);
}

#[test]
fn the_cache_equals_the_full_pass() {
    let device = device();
    let model = model(&config(11, 9, 3, 16), &device);
    let rows: [&[u32]; 3] = [&[0, 3, 10, 7, 3, 1], &[5, 5, 1, 2, 9, 0], &[1, 1, 1, 1, 1, 1]];
    let full = logits(&model, &rows);
    let frozen = Frozen::snapshot(&model);
    let mut cache = KvCache::new();
    let mut slots = rows.map(|_| cache.open()).to_vec();
    let mut kept: Vec<usize> = vec![0, 1, 2];
    for t in 0..6 {
        if t == 3 {
            kept = vec![2, 0];
            cache.close(slots[1]);
            slots = vec![slots[2], slots[0]];
        }
        let column: TokenBatch = kept.iter().map(|&row| &rows[row][t..=t]).collect();
        let got = host(frozen.logits(frozen.extend(&column, &mut cache, &slots)));
        let expected: Vec<f64> = kept
            .iter()
            .flat_map(|row| full[(row * 6 + t) * 11..(row * 6 + t + 1) * 11].to_vec())
            .collect();
        assert_close(&got, &expected, 1e-5);
        assert!(slots.iter().all(|&slot| cache.length(slot) == t + 1));
    }
}

#[test]
fn later_tokens_change_nothing() {
    let model = model(&config(11, 9, 2, 16), &device());
    let short = logits(&model, &[&[0, 3, 10]]);
    let longer = logits(&model, &[&[0, 3, 10, 6, 6]]);
    assert_close(&longer[..short.len()], &short, 1e-6);
}

#[test]
fn parameters_are_counted_as_published() {
    let count = |vocab, block| {
        let config = MolGptConfig::new(vocab, block, 8, 8, 256).to_config().unwrap();
        Transformer::random(&config, 0, &device()).unwrap().num_params()
    };
    assert_eq!(count(94, 100), 6_392_832);
    assert_eq!(count(26, 54), 6_346_240);
}

#[test]
fn stored_names_and_layouts_are_the_published_ones() {
    let model = Transformer::random(&config(11, 9, 1, 16), 0, &device()).unwrap();
    let listed: Vec<String> = named_tensors(&model)
        .iter()
        .map(|(name, data)| format!("{name} {:?}", data.shape().to_vec()))
        .collect();
    let expected = "\
blocks.0.attn.key.bias [16]
blocks.0.attn.key.weight [16, 16]
blocks.0.attn.proj.bias [16]
blocks.0.attn.proj.weight [16, 16]
blocks.0.attn.query.bias [16]
blocks.0.attn.query.weight [16, 16]
blocks.0.attn.value.bias [16]
blocks.0.attn.value.weight [16, 16]
blocks.0.ln1.bias [16]
blocks.0.ln1.weight [16]
blocks.0.ln2.bias [16]
blocks.0.ln2.weight [16]
blocks.0.mlp.0.bias [64]
blocks.0.mlp.0.weight [64, 16]
blocks.0.mlp.2.bias [16]
blocks.0.mlp.2.weight [16, 64]
head.weight [11, 16]
ln_f.bias [16]
ln_f.weight [16]
pos_emb [1, 9, 16]
tok_emb.weight [11, 16]
type_emb.weight [2, 16]";
    assert_eq!(listed.join("\n"), expected);
}

#[test]
fn weights_survive_the_way_out_and_in() {
    let device = device().autodiff();
    let config = config(11, 9, 2, 16);
    let model = model(&config, &device);
    let folder = tempfile::tempdir().unwrap();
    let spec = ModelSpec { config, codec: Codec::of_ids(Default::default()) };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let again = ModelFolder::load(folder.path(), &formats(), &device).unwrap();
    assert_eq!(again.spec.config, spec.config);
    assert_eq!(named_tensors(&again.model), named_tensors(&model));
    let row: &[u32] = &[0, 3, 10];
    assert_eq!(logits(&again.model, &[row]), logits(&model, &[row]));
}

#[test]
fn seeds_give_models() {
    let config = config(11, 9, 1, 16);
    let of = |seed| named_tensors(&Transformer::random(&config, seed, &device()).unwrap());
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    let weights: Vec<f64> = of(1)["blocks.0.mlp.0.weight"].iter::<f64>().collect();
    let n = weights.len() as f64;
    let deviation = (weights.iter().map(|w| w * w).sum::<f64>() / n).sqrt();
    // Five standard errors of the standard deviation.
    assert!((deviation - 0.02).abs() < 5.0 * 0.02 / (2.0 * n).sqrt(), "{deviation}");
}

#[test]
fn a_frozen_model_keeps_its_values_and_is_off_the_tape() {
    let device = device().autodiff();
    let model = Transformer::random(&config(11, 9, 1, 16), 1, &device).unwrap();
    let frozen = Frozen::snapshot(&model);
    let states = frozen.hidden(&TokenBatch::from_iter([[1, 2].as_slice()]));
    assert!(!states.is_autodiff());
}

#[test]
fn a_file_that_does_not_fit_is_refused_by_name() {
    let device = device();
    let good = config(11, 9, 1, 16);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = |config: &ModelConfig| {
        let model = Transformer::random(config, 1, &device).unwrap();
        StoredTensors::of(&model).write(&path, StoredAs::F32, None).unwrap();
        std::fs::read(&path).unwrap()
    };
    let load = |config: &ModelConfig| {
        let json = serde_json::to_string(config.json()).unwrap();
        std::fs::write(folder.path().join("config.json"), json).unwrap();
        ModelFolder::load(folder.path(), &formats(), &device)
    };
    let refusal = |config: &ModelConfig| load(config).unwrap_err().to_string();
    let bytes_of_good = bytes(&good);
    std::fs::write(&path, &bytes_of_good).unwrap();
    load(&good).unwrap();

    assert!(
        refusal(&config(12, 9, 1, 16))
            .contains("'tok_emb.weight' has shape [11, 16], but config.json requires [12, 16]")
    );
    assert!(refusal(&config(11, 9, 2, 16)).contains("missing tensor 'blocks.1.ln1.weight'"));
    std::fs::write(&path, bytes(&config(11, 9, 2, 16))).unwrap();
    assert!(refusal(&good).contains("unexpected tensor 'blocks.1.attn.key.bias'"));
    for end in [0, 3, 100, bytes_of_good.len() - 1] {
        std::fs::write(&path, &bytes_of_good[..end]).unwrap();
        assert!(refusal(&good).contains("not a complete safetensors file"), "cut at {end}");
    }
    let mut poisoned = bytes_of_good.clone();
    let end = poisoned.len();
    poisoned[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, &poisoned).unwrap();
    assert!(refusal(&good).contains("holds a non-finite value"));
    std::fs::remove_file(&path).unwrap();
    assert!(refusal(&good).contains(" has neither model.safetensors nor model.safetensors.index"));
    // A directory in place of the file.
    std::fs::create_dir(&path).unwrap();
    assert!(load(&good).is_err());
}

#[test]
fn weight_decay_is_for_the_matrices_of_linear_layers() {
    let model = Transformer::random(&config(11, 9, 2, 16), 0, &device()).unwrap();
    // Four attention matrices and two MLP matrices per block, and the head.
    assert_eq!(linear_weights(&model).len(), 2 * 6 + 1);
}

#[test]
fn sizes_that_do_not_fit() {
    let refused = |key: &str, value: serde_json::Value| {
        let mut json = config(11, 9, 1, 24).json().clone();
        json.insert(key.to_owned(), value);
        ModelConfig::new(&MOLGPT, json).unwrap_err()
    };
    for (key, value, expected) in [
        ("n_head", 5, "n_embd = 24 is not a multiple of n_head = 5"),
        ("n_layer", 0, "n_layer = 0 is out of range; expected 1 or more"),
        ("block_size", 1 << 21, "block_size = 2097152 is out of range; expected at most 1048576"),
    ] {
        assert_eq!(refused(key, value.into()), expected);
    }
    let message = refused("dropout", 0.1.into());
    let said = "unknown key `dropout`, expected one of `architecture`";
    assert!(message.starts_with(said), "{message}");
}

//! Reference implementation of the forward pass in f64. It uses `config.json` and the stored
//! tensors, and processes one sequence at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::f64::consts::{PI, SQRT_2, TAU};

use burn::tensor::{Device, Tensor};
use grpo_model::{Dropout, ModelConfig, Transformer};
use serde_json::{Map, Value};

use crate::support::{Weights, host, weights};

pub(crate) struct Oracle {
    json: Map<String, Value>,
    /// Tensor values by the names used on disk.
    pub(crate) tensors: BTreeMap<String, Vec<f64>>,
    /// Dropout of the pass. Only supported for Llama.
    dropout: RefCell<Dropout>,
}

thread_local! {
    /// The attention weights so far, by layer, query, head and key.
    pub(crate) static WEIGHTS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Hidden states, `[token][width]`.
type States = Vec<Vec<f64>>;

impl Oracle {
    pub(crate) fn of(config: &ModelConfig, model: &Transformer) -> Self {
        Self::of_weights(config, &weights(model))
    }

    pub(crate) fn of_weights(config: &ModelConfig, weights: &Weights) -> Self {
        let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
        let tensors = weights.iter().map(|(name, (_, values))| (name.clone(), wide(values)));
        Self::of_numbers(config, tensors.collect())
    }

    pub(crate) fn of_numbers(config: &ModelConfig, tensors: BTreeMap<String, Vec<f64>>) -> Self {
        Self { json: config.json().clone(), tensors, dropout: RefCell::new(Dropout::off()) }
    }

    /// Adds dropout at the same positions as in GPT: after the embeddings, to the attention
    /// weights, and to the outputs of attention and MLP.
    pub(crate) fn dropping(self, dropout: Dropout) -> Self {
        Self { dropout: RefCell::new(dropout), ..self }
    }

    /// Returns the next dropout mask.
    fn mask(&self, n: usize) -> Vec<f64> {
        let ones = Tensor::<1>::ones([n], &Device::flex());
        host(self.dropout.borrow_mut().apply(ones))
    }

    /// Adds `scale · B · A` to the matrix of a module. A and B are stored as `[rank, in]` and
    /// `[out, rank]`.
    pub(crate) fn add_pair(&mut self, module: &str, a: &[f64], b: &[f64], rank: usize, scale: f64) {
        let (input, output) = (a.len() / rank, b.len() / rank);
        let conv1d = self.is("gpt2");
        let weight = self.tensors.get_mut(&format!("{module}.weight")).unwrap();
        for o in 0..output {
            for i in 0..input {
                let sum: f64 = (0..rank).map(|r| b[o * rank + r] * a[r * input + i]).sum();
                let place = if conv1d { i * output + o } else { o * input + i };
                weight[place] += scale * sum;
            }
        }
    }

    /// Computes the logits, `[token · vocabulary]`.
    pub(crate) fn logits(&self, ids: &[u32]) -> Vec<f64> {
        let tied = self.json.get("tie_word_embeddings").and_then(Value::as_bool);
        let head = match (tied.unwrap_or(self.is("gpt2")), self.is("gpt2")) {
            (false, _) => "lm_head.weight",
            (true, true) => "transformer.wte.weight",
            (true, false) => "model.embed_tokens.weight",
        };
        let head = if self.is("infiller") { "tok_emb.weight" } else { head };
        let hidden = self.hidden(ids);
        hidden.iter().flat_map(|x| product(&self.tensors[head], x)).collect()
    }

    /// Computes the hidden states after the final norm.
    pub(crate) fn hidden(&self, ids: &[u32]) -> States {
        match self.json["model_type"].as_str().unwrap() {
            "gpt2" => self.gpt2(ids),
            "bert" => self.bert(ids),
            "infiller" | "sequence_scorer" => self.infiller(ids),
            _ => self.llama(ids),
        }
    }

    fn llama(&self, ids: &[u32]) -> States {
        let table = &self.tensors["model.embed_tokens.weight"];
        let width = self.size("hidden_size");
        let heads = self.size("num_attention_heads");
        let kv_heads =
            self.json.get("num_key_value_heads").map_or(heads, |n| n.as_u64().unwrap() as usize);
        let head_width =
            self.json.get("head_dim").map_or(width / heads, |n| n.as_u64().unwrap() as usize);
        let (frequencies, attention_factor) = self.rotary(head_width);
        let rms = |name: &str, x: &[f64]| {
            let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
            let root = (square + self.number("rms_norm_eps")).sqrt();
            let gamma = &self.tensors[&format!("{name}.weight")];
            x.iter().zip(gamma).map(|(x, g)| x / root * g).collect::<Vec<f64>>()
        };
        let turn = |x: &mut [f64], position: usize| {
            let half = head_width / 2;
            for (i, frequency) in frequencies.iter().enumerate() {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                let (sin, cos) = (sin * attention_factor, cos * attention_factor);
                let (a, b) = (x[i], x[i + half]);
                (x[i], x[i + half]) = (a * cos - b * sin, b * cos + a * sin);
            }
        };
        let mut x: States = ids.iter().map(|&id| row(table, id, width)).collect();
        multiply(&mut x, &self.mask(ids.len() * width));
        for layer in 0..self.size("num_hidden_layers") {
            let at = |part: &str| format!("model.layers.{layer}.{part}");
            let normal: States = x.iter().map(|x| rms(&at("input_layernorm"), x)).collect();
            let placed = |part: &str, norm: &str| -> States {
                let of_token = |(position, x): (usize, &Vec<f64>)| {
                    let all = self.linear(&at(&format!("self_attn.{part}")), x);
                    all.chunks(head_width)
                        .flat_map(|head| {
                            let norm = at(&format!("self_attn.{norm}"));
                            let normed = self.tensors.contains_key(&format!("{norm}.weight"));
                            let mut head = if normed { rms(&norm, head) } else { head.to_vec() };
                            turn(&mut head, position);
                            head
                        })
                        .collect()
                };
                normal.iter().enumerate().map(of_token).collect()
            };
            let (q, k) = (placed("q_proj", "q_norm"), placed("k_proj", "k_norm"));
            let v: States =
                normal.iter().map(|x| self.linear(&at("self_attn.v_proj"), x)).collect();
            let weights = self.mask(heads * ids.len() * ids.len());
            let mixed = attention_dropping(&q, &k, &v, heads, kv_heads, true, &weights);
            let linear = |part: &str, x: &[f64]| self.linear(&at(part), x);
            let mut added: States = mixed.iter().map(|x| linear("self_attn.o_proj", x)).collect();
            multiply(&mut added, &self.mask(ids.len() * width));
            x.iter_mut().zip(&added).for_each(|(x, added)| add(x, added));
            let widened = |x: &Vec<f64>| {
                let normal = rms(&at("post_attention_layernorm"), x);
                let (gate, up) = (linear("mlp.gate_proj", &normal), linear("mlp.up_proj", &normal));
                let silu = |g: f64| g / (1.0 + (-g).exp());
                let active: Vec<f64> = gate.iter().zip(up).map(|(&g, u)| silu(g) * u).collect();
                linear("mlp.down_proj", &active)
            };
            let mut added: States = x.iter().map(widened).collect();
            multiply(&mut added, &self.mask(ids.len() * width));
            x.iter_mut().zip(&added).for_each(|(x, added)| add(x, added));
        }
        x.iter().map(|x| rms("model.norm", x)).collect()
    }

    fn gpt2(&self, ids: &[u32]) -> States {
        let (width, heads) = (self.size("n_embd"), self.size("n_head"));
        let tokens = &self.tensors["transformer.wte.weight"];
        let positions = &self.tensors["transformer.wpe.weight"];
        let embed = |(position, &id): (usize, &u32)| {
            let mut x = row(tokens, id, width);
            add(&mut x, &row(positions, position as u32, width));
            x
        };
        let norm =
            |name: &str, x: &[f64]| self.layer_norm(name, x, self.number("layer_norm_epsilon"));
        let mut x: States = ids.iter().enumerate().map(embed).collect();
        for layer in 0..self.size("n_layer") {
            let at = |part: &str| format!("transformer.h.{layer}.{part}");
            let joint: States =
                x.iter().map(|x| self.linear(&at("attn.c_attn"), &norm(&at("ln_1"), x))).collect();
            let part = |i: usize| -> States {
                joint.iter().map(|x| x[i * width..(i + 1) * width].to_vec()).collect()
            };
            let mixed = attention(&part(0), &part(1), &part(2), heads, heads, true);
            for (x, mixed) in x.iter_mut().zip(mixed) {
                add(x, &self.linear(&at("attn.c_proj"), &mixed));
                let up = self.linear(&at("mlp.c_fc"), &norm(&at("ln_2"), x));
                let active = self.activated(&up, "activation_function");
                add(x, &self.linear(&at("mlp.c_proj"), &active));
            }
        }
        x.iter().map(|x| norm("transformer.ln_f", x)).collect()
    }

    fn bert(&self, ids: &[u32]) -> States {
        let (width, heads) = (self.size("hidden_size"), self.size("num_attention_heads"));
        let table =
            |name: &str| &self.tensors[&format!("bert.embeddings.{name}_embeddings.weight")];
        let norm = |name: &str, x: &[f64]| self.layer_norm(name, x, self.number("layer_norm_eps"));
        let embed = |(position, &id): (usize, &u32)| {
            let mut x = row(table("word"), id, width);
            add(&mut x, &row(table("position"), position as u32, width));
            add(&mut x, &row(table("token_type"), 0, width));
            norm("bert.embeddings.LayerNorm", &x)
        };
        let mut x: States = ids.iter().enumerate().map(embed).collect();
        for layer in 0..self.size("num_hidden_layers") {
            let at = |part: &str| format!("bert.encoder.layer.{layer}.{part}");
            let part = |name: &str| -> States {
                x.iter().map(|x| self.linear(&at(&format!("attention.self.{name}")), x)).collect()
            };
            let mixed =
                attention(&part("query"), &part("key"), &part("value"), heads, heads, false);
            for (x, mixed) in x.iter_mut().zip(mixed) {
                add(x, &self.linear(&at("attention.output.dense"), &mixed));
                *x = norm(&at("attention.output.LayerNorm"), x);
                let up = self.linear(&at("intermediate.dense"), x);
                add(x, &self.linear(&at("output.dense"), &self.activated(&up, "hidden_act")));
                *x = norm(&at("output.LayerNorm"), x);
            }
        }
        x
    }

    /// Bidirectional, pre-norm, rotary positions, exact GELU.
    fn infiller(&self, ids: &[u32]) -> States {
        let (width, heads) = (self.size("n_embd"), self.size("n_head"));
        let (frequencies, _) = self.rotary(width / heads);
        let norm = |name: &str, x: &[f64]| self.layer_norm(name, x, 1e-5);
        let turned = |position: usize, x: &[f64]| -> Vec<f64> {
            let of_head = |x: &[f64]| -> Vec<f64> {
                let (a, b) = x.split_at(x.len() / 2);
                let angles = || frequencies.iter().map(|f| (position as f64 * f).sin_cos());
                let pairs = || a.iter().zip(b).zip(angles());
                let first = pairs().map(|((a, b), (sin, cos))| a * cos - b * sin);
                first.chain(pairs().map(|((a, b), (sin, cos))| b * cos + a * sin)).collect()
            };
            x.chunks(width / heads).flat_map(of_head).collect()
        };
        let mut x: States =
            ids.iter().map(|&id| row(&self.tensors["tok_emb.weight"], id, width)).collect();
        for layer in 0..self.size("n_layer") {
            let at = |part: &str| format!("blocks.{layer}.{part}");
            let part = |name: &str| -> States {
                let name = at(name);
                x.iter().map(|x| self.linear(&name, &norm(&at("ln1"), x))).collect()
            };
            let placed = |x: States| -> States {
                x.iter().enumerate().map(|(position, x)| turned(position, x)).collect()
            };
            let (q, k) = (placed(part("attn.query")), placed(part("attn.key")));
            let mixed = attention(&q, &k, &part("attn.value"), heads, heads, false);
            for (x, mixed) in x.iter_mut().zip(mixed) {
                add(x, &self.linear(&at("attn.proj"), &mixed));
                let up = self.linear(&at("mlp.up"), &norm(&at("ln2"), x));
                let active: Vec<f64> = up.iter().map(|&x| gelu(x)).collect();
                add(x, &self.linear(&at("mlp.down"), &active));
            }
        }
        x.iter().map(|x| norm("ln_f", x)).collect()
    }

    /// Returns the radians per position for each pair, and the factor applied to cosines and sines.
    fn rotary(&self, head_width: usize) -> (Vec<f64>, f64) {
        let rope = self.json.get("rope_parameters").or(self.json.get("rope_scaling"));
        let rope = rope.and_then(Value::as_object).cloned().unwrap_or_default();
        let base = rope.get("rope_theta").or(self.json.get("rope_theta"));
        let base = base.map_or(10_000.0, |base| base.as_f64().unwrap());
        let number = |key: &str| rope[key].as_f64().unwrap();
        let d = head_width as f64;
        let plain: Vec<f64> = (0..head_width / 2).map(|i| base.powf(-2.0 * i as f64 / d)).collect();
        let kind =
            rope.get("rope_type").or(rope.get("type")).map_or("default", |k| k.as_str().unwrap());
        match kind {
            "linear" => (plain.iter().map(|f| f / number("factor")).collect(), 1.0),
            "llama3" => {
                let original = number("original_max_position_embeddings");
                let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
                let change = |&f: &f64| {
                    let wavelength = TAU / f;
                    if wavelength > original / low {
                        f / number("factor")
                    } else if wavelength < original / high {
                        f
                    } else {
                        let smooth = (original / wavelength - low) / (high - low);
                        (1.0 - smooth) * f / number("factor") + smooth * f
                    }
                };
                (plain.iter().map(change).collect(), 1.0)
            }
            "yarn" => {
                let original = number("original_max_position_embeddings");
                let beta = |key: &str, default: f64| {
                    rope.get(key).map_or(default, |b| b.as_f64().unwrap())
                };
                let dimension =
                    |turns: f64| d * (original / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
                let low = dimension(beta("beta_fast", 32.0)).floor().max(0.0);
                let high = dimension(beta("beta_slow", 1.0)).ceil().min(d - 1.0);
                let high = if low == high { high + 0.001 } else { high };
                let factor = number("factor");
                let change = |(i, f): (usize, &f64)| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                };
                let scale = rope
                    .get("attention_factor")
                    .map_or(0.1 * factor.ln() + 1.0, |s| s.as_f64().unwrap());
                (plain.iter().enumerate().map(change).collect(), scale)
            }
            _ => (plain, 1.0),
        }
    }

    pub(crate) fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = &self.tensors[&format!("{name}.weight")];
        let mut y = if self.is("gpt2") {
            let outputs = weight.len() / x.len();
            (0..outputs)
                .map(|o| (0..x.len()).map(|i| x[i] * weight[i * outputs + o]).sum())
                .collect()
        } else {
            product(weight, x)
        };
        if let Some(bias) = self.tensors.get(&format!("{name}.bias")) {
            add(&mut y, bias);
        }
        y
    }

    fn layer_norm(&self, name: &str, x: &[f64], epsilon: f64) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let root = (variance + epsilon).sqrt();
        let part = |part: &str| &self.tensors[&format!("{name}.{part}")];
        let (gamma, beta) = (part("weight"), part("bias"));
        (0..x.len()).map(|i| (x[i] - mean) / root * gamma[i] + beta[i]).collect()
    }

    fn activated(&self, x: &[f64], key: &str) -> Vec<f64> {
        let tanh = self.json[key] != "gelu";
        let approximation =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
        x.iter().map(|&x| if tanh { approximation(x) } else { gelu(x) }).collect()
    }

    fn is(&self, family: &str) -> bool {
        self.json["model_type"] == family
    }

    pub(crate) fn size(&self, key: &str) -> usize {
        self.json[key].as_u64().unwrap() as usize
    }

    fn number(&self, key: &str) -> f64 {
        self.json[key].as_f64().unwrap()
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / SQRT_2))
}

fn row(table: &[f64], index: u32, width: usize) -> Vec<f64> {
    table[index as usize * width..][..width].to_vec()
}

fn multiply(x: &mut States, mask: &[f64]) {
    x.iter_mut().flatten().zip(mask).for_each(|(x, factor)| *x *= factor);
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Computes the product with a matrix stored as `[out, in]`.
fn product(weight: &[f64], x: &[f64]) -> Vec<f64> {
    weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn attention(
    q: &States,
    k: &States,
    v: &States,
    heads: usize,
    kv_heads: usize,
    causal: bool,
) -> States {
    let all = vec![1.0; heads * q.len() * q.len()];
    attention_dropping(q, k, v, heads, kv_heads, causal, &all)
}

/// Computes attention, with the attention weights multiplied by `mask` (`[head][query][key]`).
fn attention_dropping(
    q: &States,
    k: &States,
    v: &States,
    heads: usize,
    kv_heads: usize,
    causal: bool,
    mask: &[f64],
) -> States {
    let width = q[0].len() / heads;
    let of_query = |t: usize| -> Vec<f64> {
        let of_head = |head: usize| -> Vec<f64> {
            let shared = head / (heads / kv_heads) * width;
            let query = &q[t][head * width..][..width];
            let seen = if causal { t + 1 } else { q.len() };
            let score = |s: usize| -> f64 {
                let dot: f64 = query.iter().zip(&k[s][shared..]).map(|(a, b)| a * b).sum();
                dot / (width as f64).sqrt()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let shares: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f64 = shares.iter().sum();
            let mask = &mask[(head * q.len() + t) * q.len()..][..seen];
            let weights: Vec<f64> = shares.iter().zip(mask).map(|(s, m)| s / total * m).collect();
            WEIGHTS.with_borrow_mut(|all| {
                all.extend(&weights);
                all.resize(all.len() + q.len() - seen, 0.0);
            });
            let mixed = |i: usize| (0..seen).map(|s| weights[s] * v[s][shared + i]).sum();
            (0..width).map(mixed).collect()
        };
        (0..heads).flat_map(of_head).collect()
    };
    (0..q.len()).map(of_query).collect()
}

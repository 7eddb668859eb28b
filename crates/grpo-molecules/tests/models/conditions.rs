//! Conditions in front of a sequence: comparison with plain f64 loops, cached and full passes,
//! shared prompts, gradients, and stored names.

use burn::tensor::Device;
use grpo_data::Prefix;
use grpo_model::{
    Dropout, Frozen, KvCache, LanguageModel, ModelConfig, Policy, TokenBatch, Transformer,
    linear_weights, parameters,
};

use grpo_molecules::MolGptConfig;

use crate::molgpt::Oracle;
use crate::support::{assert_close, device, host, named_tensors, shaken_by};

const WIDTH: usize = 16;
const LAYERS: usize = 2;

fn config(change: impl FnOnce(&mut MolGptConfig)) -> ModelConfig {
    let mut sizes = MolGptConfig::new(11, 9, LAYERS, 4, WIDTH);
    change(&mut sizes);
    sizes.to_config().unwrap()
}

/// Three values, of which some can be left open, and the tokens of a scaffold.
fn of_tokens() -> ModelConfig {
    config(|sizes| (sizes.num_props, sizes.partial_props, sizes.scaffold) = (3, true, true))
}

fn of_lstm() -> ModelConfig {
    config(|sizes| {
        (sizes.num_props, sizes.scaffold) = (3, true);
        (sizes.lstm, sizes.lstm_layers) = (true, 2);
    })
}

fn model(config: &ModelConfig, device: &Device) -> Transformer {
    shaken_by(config, 3, |_| 5.0, device)
}

fn prefix(ids: &[u32], values: &[Option<f32>]) -> Prefix {
    Prefix { ids: ids.to_vec(), values: values.to_vec() }
}

/// The LSTM of PyTorch's documentation, one gate and one sequence at a time.
fn last_states(oracle: &Oracle, inputs: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut inputs, mut last) = (inputs, Vec::new());
    for layer in 0..2 {
        let product = |read: &str, gate: usize, x: &[f64]| -> Vec<f64> {
            let weight = oracle.tensor(&format!("lstm.weight_{read}_l{layer}"));
            let bias = oracle.tensor(&format!("lstm.bias_{read}_l{layer}"));
            let row = |i: usize| gate * WIDTH + i;
            (0..WIDTH)
                .map(|i| {
                    let weights = &weight[row(i) * WIDTH..(row(i) + 1) * WIDTH];
                    bias[row(i)] + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
                })
                .collect()
        };
        let (mut h, mut c) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
        for input in &mut inputs {
            let gate = |gate| -> Vec<f64> {
                let (a, b) = (product("ih", gate, input), product("hh", gate, &h));
                a.iter().zip(b).map(|(a, b)| a + b).collect()
            };
            let (i, f, g, o) = (gate(0), gate(1), gate(2), gate(3));
            for k in 0..WIDTH {
                c[k] = sigmoid(f[k]) * c[k] + sigmoid(i[k]) * g[k].tanh();
            }
            h = (0..WIDTH).map(|k| sigmoid(o[k]) * c[k].tanh()).collect();
            *input = h.clone();
        }
        last.push(h);
    }
    last
}

/// Returns the vectors in front of a sequence, before the type embedding is added.
fn vectors(oracle: &Oracle, prefix: &Prefix, partial: bool, lstm: bool) -> Vec<Vec<f64>> {
    let table = oracle.tensor("tok_emb.weight");
    let embedded = prefix.ids.iter().map(|&id| table[id as usize * WIDTH..][..WIDTH].to_vec());
    let embedded: Vec<Vec<f64>> = embedded.collect();
    let mut vectors = match lstm && !prefix.ids.is_empty() {
        true => last_states(oracle, embedded),
        false => embedded,
    };
    if !prefix.values.is_empty() {
        let mut inputs: Vec<f64> =
            prefix.values.iter().map(|value| value.map_or(0.0, f64::from)).collect();
        if partial {
            inputs.extend(prefix.values.iter().map(|value| f64::from(u8::from(value.is_some()))));
        }
        vectors.push(oracle.linear("prop_nn", &inputs, true));
    }
    vectors
}

/// Sequences with all kinds of conditions.
fn sequences() -> Vec<(Prefix, Vec<u32>)> {
    let all = [Some(0.5), Some(-1.5), Some(0.25)];
    vec![
        (prefix(&[4, 2, 9, 4], &all), vec![0, 3, 10, 7]),
        (prefix(&[], &[]), vec![5, 5, 1]),
        (prefix(&[1, 8], &[]), vec![2, 9, 0, 1, 1]),
        (prefix(&[], &all), vec![0, 3]),
    ]
}

fn expected(model: &Transformer, sequences: &[(Prefix, Vec<u32>)], lstm: bool) -> Vec<f64> {
    let oracle = Oracle::of(model);
    let of = |(prefix, ids): &(Prefix, Vec<u32>)| {
        let vectors = vectors(&oracle, prefix, !lstm, lstm);
        oracle.logits(ids, &vectors, LAYERS, 4)
    };
    sequences.iter().flat_map(of).collect()
}

fn batch(sequences: &[(Prefix, Vec<u32>)]) -> TokenBatch {
    let mut batch = TokenBatch::new();
    for (prefix, ids) in sequences {
        batch.push_conditional(prefix, ids);
    }
    batch
}

#[test]
fn logits_are_those_of_the_definition() {
    for (config, lstm) in [(of_tokens(), false), (of_lstm(), true)] {
        let model = model(&config, &device());
        let mut sequences = sequences();
        if !lstm {
            sequences.push((prefix(&[3], &[None, Some(2.0), None]), vec![0, 4]));
        }
        let got = host(model.logits(model.hidden(&batch(&sequences), &mut Dropout::off())));
        assert_close(&got, &expected(&model, &sequences, lstm), 2e-5);
        // An open value is not the value 0.
        if !lstm {
            let zero = prefix(&[3], &[Some(0.0), Some(2.0), Some(0.0)]);
            let zero = [(zero, vec![0, 4])];
            let zero = host(model.logits(model.hidden(&batch(&zero), &mut Dropout::off())));
            assert!(
                zero.iter().zip(&got[got.len() - zero.len()..]).any(|(a, b)| (a - b).abs() > 1e-3)
            );
        }
    }
}

/// Prompts and later tokens in one pass, as in the sampler. The conditions are only read once.
#[test]
fn the_cache_equals_the_full_pass_and_rows_are_independent() {
    for (config, lstm) in [(of_tokens(), false), (of_lstm(), true)] {
        let model = Frozen::snapshot(&model(&config, &device()));
        let sequences = sequences();
        let in_steps = |chosen: &[usize]| -> Vec<Vec<f64>> {
            let mut cache = KvCache::new();
            let mut rows = vec![Vec::new(); chosen.len()];
            let slots: Vec<_> = chosen.iter().map(|_| cache.open()).collect();
            for step in 0..5 {
                let (mut tokens, mut now, mut of) = (TokenBatch::new(), Vec::new(), Vec::new());
                for (place, &sequence) in chosen.iter().enumerate() {
                    let (prefix, ids) = &sequences[sequence];
                    // The last sequence begins one step later.
                    let Some(step) = (step + 1_usize).checked_sub(1 + sequence / 3) else {
                        continue;
                    };
                    let Some(id) = ids.get(step..=step) else { continue };
                    match step {
                        0 => tokens.push_conditional(prefix, id),
                        _ => tokens.push(id),
                    };
                    now.push(slots[place]);
                    of.push(place);
                }
                if of.is_empty() {
                    continue;
                }
                let logits = model.invariant_logits(model.extend(&tokens, &mut cache, &now));
                let logits = host(logits);
                for (row, place) in of.into_iter().enumerate() {
                    rows[place].extend_from_slice(&logits[row * 11..(row + 1) * 11]);
                }
            }
            rows
        };
        let together = in_steps(&[0, 1, 2, 3]);
        let full = {
            let model = crate::conditions::model(&config, &device());
            expected(&model, &sequences, lstm)
        };
        assert_close(&together.concat(), &full, 2e-5);
        // Bit for bit.
        for (sequence, rows) in together.iter().enumerate() {
            assert_eq!(in_steps(&[sequence])[0], *rows);
        }
    }
}

/// Completions share the conditions and the prompt of their group.
#[test]
fn continuations_see_the_conditions() {
    let model = model(&of_tokens(), &device());
    let (prefix, prompt) = (prefix(&[4, 2, 9], &[Some(1.0), None, None]), [0, 6]);
    let mut shared = TokenBatch::new();
    let first = shared.push_conditional(&prefix, &prompt);
    shared.push_behind(first, &[3, 10]);
    shared.push_behind(first, &[7]);
    let separate: Vec<(Prefix, Vec<u32>)> = [&[0, 6][..], &[0, 6, 3, 10], &[0, 6, 7]]
        .map(|ids| (prefix.clone(), ids.to_vec()))
        .to_vec();
    let got = host(model.logits(model.hidden(&shared, &mut Dropout::off())));
    let all = expected(&model, &separate, false);
    let row = |row: usize| all[row * 11..(row + 1) * 11].to_vec();
    // The prompt, and of each completion what follows it.
    assert_close(&got, &[0, 1, 4, 5, 8].map(row).concat(), 2e-5);
}

#[test]
fn recomputed_blocks_give_the_same_gradients() {
    for config in [of_tokens(), of_lstm()] {
        let policy = Policy::Whole(model(&config, &device().autodiff()));
        let gradients = |checkpointing: bool| -> Vec<(String, Vec<f64>)> {
            let forward = policy.forward(&batch(&sequences()), &mut Dropout::off(), checkpointing);
            let loss = policy.logits(forward.hidden.clone()).square().mean();
            let parts = forward.backward(loss, &policy);
            let of = |parameter: &grpo_model::Parameter| {
                let mut sum: Vec<f64> = vec![0.0; parameter.num_elements()];
                for part in &parts {
                    let found = |n| part.get::<1>(parameter.id).map(|g| (n, host(g)));
                    let found = match parameter.shape.len() {
                        1 => found(1),
                        _ => part.get::<2>(parameter.id).map(|g| (2, host(g))),
                    };
                    if let Some((_, values)) = found {
                        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                    }
                }
                (parameter.path.clone(), sum)
            };
            parameters(&policy).iter().map(of).collect()
        };
        for ((path, kept), (_, recomputed)) in gradients(false).into_iter().zip(gradients(true)) {
            let size = kept.iter().map(|x| x.abs()).fold(0.0, f64::max);
            if path.contains("prefix") {
                assert!(size > 1e-9, "{path} has no gradient");
            }
            let difference = kept.iter().zip(&recomputed).map(|(a, b)| (a - b).abs());
            assert!(difference.fold(0.0, f64::max) <= 1e-5 * size + 1e-12, "{path}");
        }
    }
}

#[test]
fn stored_names_are_the_published_ones() {
    let device = device();
    let names = |config: &ModelConfig| -> Vec<String> {
        named_tensors(&Transformer::random(config, 0, &device).unwrap())
            .iter()
            .map(|(name, data)| format!("{name} {:?}", data.shape().to_vec()))
            .filter(|name| name.starts_with("prop") || name.starts_with("lstm"))
            .collect()
    };
    assert_eq!(names(&of_tokens()), ["prop_nn.bias [16]", "prop_nn.weight [16, 6]"]);
    assert_eq!(
        names(&of_lstm()),
        [
            "lstm.bias_hh_l0 [64]",
            "lstm.bias_hh_l1 [64]",
            "lstm.bias_ih_l0 [64]",
            "lstm.bias_ih_l1 [64]",
            "lstm.weight_hh_l0 [64, 16]",
            "lstm.weight_hh_l1 [64, 16]",
            "lstm.weight_ih_l0 [64, 16]",
            "lstm.weight_ih_l1 [64, 16]",
            "prop_nn.bias [16]",
            "prop_nn.weight [16, 3]"
        ]
    );
    // Six per block, the head, the projection and two per LSTM layer.
    let model = Transformer::random(&of_lstm(), 0, &device).unwrap();
    assert_eq!(linear_weights(&model).len(), 2 * 6 + 1 + 1 + 4);
}

#[test]
fn a_model_refuses_conditions_that_it_cannot_read() {
    let device = device();
    let [tokens, lstm] = [of_tokens(), of_lstm()].map(|config| model(&config, &device));
    let plain = model(&config(|_| {}), &device);
    let values = [Some(1.0), None, None];
    assert_eq!(tokens.check_prefix(&prefix(&[1], &values)), Ok(()));
    let refused = |model: &Transformer, prefix: &Prefix| model.check_prefix(prefix).unwrap_err();
    assert!(refused(&lstm, &prefix(&[], &values)).contains("requires a value for each"));
    assert!(refused(&tokens, &prefix(&[], &values[..2])).contains("has 2 values, but the model"));
    assert!(refused(&tokens, &prefix(&[11], &[])).contains("token id 11"));
    assert!(refused(&plain, &prefix(&[1], &[])).contains("no token ids"));
    assert!(refused(&plain, &prefix(&[], &values)).contains("the model takes 0"));
}

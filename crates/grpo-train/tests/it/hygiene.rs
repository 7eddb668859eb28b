//! Tests which positions receive a gradient, using a model whose parameters are its logits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_core::KlEstimator;
use grpo_data::{Codec, Example, Examples, Prompt, SampleKey};
use grpo_infill::FillBlanks;
use grpo_logprob::Head;
use grpo_model::{
    CacheSlot, Dropout, Forward, KvCache, LanguageModel, ModelSetting, ProductPrecision,
    TokenBatch, WeightPrecision,
};
use grpo_train::{
    AboveTolerance, Decode, EngineFactory, Grpo, GrpoConfig, NextTokenObjective, NextTokens, Parts,
    PretrainConfig,
};
use serde_json::json;

use crate::oracle::completions;
use crate::recorder;
use crate::support::{SEED, config, molecules, parts, vocabulary};

const TOKENS: usize = 8;
/// End token, which is never passed to the model.
const END: u32 = 0;
/// Tokens that only occur in prompts.
const PROMPT: [u32; 2] = [5, 6];
/// Last token of every prompt.
const BEGIN: u32 = 7;

/// Number of forward passes with activation checkpointing.
static CHECKPOINTED: AtomicUsize = AtomicUsize::new(0);

/// Bigram model: row `a` of the table contains the logits after token `a`.
#[derive(Module, Debug)]
struct Bigram {
    table: Param<Tensor<2>>,
}

impl Bigram {
    fn new() -> Self {
        let mut rows = vec![0.0_f32; TOKENS * TOKENS];
        for row in rows.chunks_mut(TOKENS) {
            row[END as usize] = -1.0;
            PROMPT.into_iter().chain([BEGIN]).for_each(|never| row[never as usize] = -200.0);
        }
        let data = TensorData::new(rows, [TOKENS, TOKENS]);
        Self { table: Param::from_tensor(Tensor::from_data(data, &Device::flex().autodiff())) }
    }

    fn rows(&self) -> Vec<Vec<f32>> {
        let flat: Vec<f32> = self.table.val().into_data().iter().collect();
        flat.chunks(TOKENS).map(<[f32]>::to_vec).collect()
    }
}

impl LanguageModel for Bigram {
    fn supports(&self, setting: ModelSetting) -> bool {
        setting == ModelSetting::Checkpointing
    }

    fn hidden(&self, tokens: &TokenBatch, _: &mut Dropout) -> Tensor<2> {
        self.table.val().select(0, tokens.flat_ids(&self.device()))
    }

    fn extend(&self, tokens: &TokenBatch, _: &mut KvCache, _: &[CacheSlot]) -> Tensor<2> {
        self.hidden(tokens, &mut Dropout::off())
    }

    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        CHECKPOINTED.fetch_add(1, Ordering::Relaxed);
        Forward::kept(self.hidden(tokens, dropout))
    }

    fn head(&self) -> Head {
        Head::new(Tensor::eye(TOKENS, &self.device()))
    }

    fn vocabulary_size(&self) -> usize {
        TOKENS
    }

    fn context_length(&self) -> usize {
        64
    }
}

fn prompts() -> Vec<Prompt> {
    let ids: [&[u32]; 3] = [&[5, 6, BEGIN], &[6, BEGIN], &[BEGIN]];
    ids.into_iter().zip(0..).map(|(ids, index)| Prompt::of_ids(index, ids.to_vec())).collect()
}

fn grpo(config: GrpoConfig) -> Grpo<Bigram> {
    let decode = Arc::new(|ids: &[u32]| "C".repeat(ids.len()));
    grpo_of(Arc::new(NextTokens { end_ids: vec![END] }), decode, config)
}

fn grpo_of(
    actions: Arc<dyn EngineFactory<Bigram>>,
    decode: Decode,
    config: GrpoConfig,
) -> Grpo<Bigram> {
    let parts = parts(actions, molecules(0.7), Bigram::new(), decode);
    let parts = Parts { longest_prompt: 5, ..parts };
    Grpo::new(parts, config, SEED).unwrap()
}

/// A setting that the model would ignore is an error that names the key.
#[test]
fn settings_that_the_model_ignores_are_refused() {
    let refused = |change: fn(&mut GrpoConfig)| {
        let mut config = config();
        change(&mut config);
        let decode: Decode = Arc::new(|ids: &[u32]| "C".repeat(ids.len()));
        let actions = Arc::new(NextTokens { end_ids: vec![END] });
        let parts = parts(actions, molecules(0.7), Bigram::new(), decode);
        let parts = Parts { longest_prompt: 5, ..parts };
        Grpo::new(parts, config, SEED).err().map(|error| error.to_string())
    };
    assert_eq!(refused(|config| config.train.activation_checkpointing = true), None);
    for (key, change) in [
        (
            "train.precision",
            (|config| config.train.precision = ProductPrecision::Bf16) as fn(&mut GrpoConfig),
        ),
        ("sampling.weights", |config| {
            config.sampler_check.above = Some(AboveTolerance::Correct);
            config.sampling.weights = WeightPrecision::Bf16;
        }),
    ] {
        let error = refused(change).expect("it is refused");
        assert!(error.contains(&format!("this model does not support {key}")), "{error}");
    }
}

/// Acceptance test 5: the gradient is exactly 0 in prompts and after the end. The first token and
/// the end token have a gradient.
#[test]
fn only_actions_have_a_gradient() {
    let mut grpo = grpo(config());
    let before = grpo.policy().rows();
    let report = grpo.step(&prompts(), 0).unwrap();
    let lengths: BTreeSet<usize> =
        completions(&report).map(|completion| completion.ids().len()).collect();
    assert!(lengths.len() > 1, "all have one length");

    let after = grpo.policy().rows();
    // The end token is never an input, and 5 and 6 only occur inside prompts.
    for token in [END, PROMPT[0], PROMPT[1]] {
        assert_eq!(after[token as usize], before[token as usize], "after token {token}");
    }
    // The first token follows BEGIN. The end token can follow any action.
    let moved = |row: u32, column: u32| {
        after[row as usize][column as usize] != before[row as usize][column as usize]
    };
    assert!((1..5).all(|first| moved(BEGIN, first)));
    assert!((1..5).all(|last| moved(last, END)));
}

/// In supervised training, prompts are part of the context but not of the loss, regardless of
/// packing.
#[test]
fn only_what_follows_a_prompt_is_learned_from_examples() {
    let example = |prompt: &[u32], reply: &[u32]| {
        Example::new([prompt, reply, &[END]].concat(), prompt.len())
    };
    let train = vec![
        example(&[5, 6, BEGIN], &[1, 2, 3]),
        example(&[6, BEGIN], &[4]),
        example(&[6, 5, BEGIN], &[2, 1]),
    ];
    let examples = Examples::new(train.clone(), train);
    for micro_batch_tokens in [None, Some(6), Some(1)] {
        let config = PretrainConfig {
            micro_batch_tokens,
            ..serde_json::from_value(json!({
                "epochs": 2, "batch_size": 3, "optimizer": {"learning_rate": 0.1, "weight_decay": 0.0}
            }))
            .unwrap()
        };
        let codec = Codec::from_text_codec(vocabulary());
        let policy = Bigram::new();
        let before = policy.rows();
        let trainer = NextTokenObjective::trainer(policy, &codec, &examples, &config, SEED);
        let after = recorder::run(trainer).1.rows();
        for token in [END, PROMPT[0], PROMPT[1]] {
            assert_eq!(after[token as usize], before[token as usize], "after token {token}");
        }
        let moved = |row: u32| after[row as usize] != before[row as usize];
        assert!((1..5).chain([BEGIN]).all(moved));
    }
}

/// All blanks have the logits that follow MASK. Because blanks are read as MASK, the gradient is
/// exactly 0 at all other positions and for the filled-in characters.
#[test]
fn only_blanks_have_a_gradient() {
    const MASK: u32 = PROMPT[0];
    let texts: [&[u32]; 3] = [&[1, MASK, 6, MASK, 2], &[MASK, MASK, BEGIN], &[3, 4, MASK]];
    let texts: Vec<Prompt> = texts
        .into_iter()
        .zip(0..)
        .map(|(ids, index)| Prompt::of_ids(index, ids.to_vec()))
        .collect();
    for estimator in [KlEstimator::K3, KlEstimator::Exact] {
        let mut config = config();
        config.loss.kl_estimator = Some(estimator);
        config.train.updates_per_rollout = 2;
        let actions =
            Arc::new(FillBlanks { mask_id: MASK, forbidden: vec![MASK, PROMPT[1], BEGIN] });
        let decode = Arc::new(|ids: &[u32]| "C".repeat(1 + ids.iter().sum::<u32>() as usize));
        let mut grpo = grpo_of(actions, decode, config);
        let before = grpo.policy().rows();
        let report = grpo.step(&texts, 0).unwrap();
        let filled: BTreeSet<u32> =
            completions(&report).flat_map(|completion| completion.ids().to_vec()).collect();
        assert!((0..5).all(|id| filled.contains(&id)), "{filled:?}");

        let after = grpo.policy().rows();
        for token in (0..TOKENS).filter(|&token| token != MASK as usize) {
            assert_eq!(after[token], before[token], "after token {token}");
        }
        let (after, before) = (&after[MASK as usize], &before[MASK as usize]);
        assert!((0..5).all(|id| after[id] != before[id]), "{after:?}");
        // Tokens that cannot be sampled are not part of any softmax.
        assert_eq!(after[5..], before[5..]);
    }
}

#[test]
fn how_completions_are_packed_changes_no_number() {
    let of = |micro_batch_tokens| {
        let mut config = config();
        config.train.micro_batch_tokens = micro_batch_tokens;
        config.train.updates_per_rollout = 2;
        let mut grpo = grpo(config);
        let report = grpo.step(&prompts(), 0).unwrap();
        (report, grpo.policy().rows().concat())
    };
    let (packed, packed_table) = of(4096);
    let (bare, bare_table) = of(1);
    let keys = |report| completions(report).map(|completion| completion.key()).collect();
    let (a, b): (Vec<SampleKey>, Vec<SampleKey>) = (keys(&packed), keys(&bare));
    assert_eq!(a, b);
    assert!((packed.learned.loss() - bare.learned.loss()).abs() < 1e-6);
    assert!((packed.learned.grad_norm() - bare.learned.grad_norm()).abs() < 1e-6);
    let entropies = [&packed, &bare].map(|report| report.learned.tokens().entropy().unwrap());
    assert!((entropies[0] - entropies[1]).abs() < 1e-6);
    assert_eq!(packed.learned.tokens().tokens(), bare.learned.tokens().tokens());
    assert!(crate::support::distance(&packed_table, &bare_table) < 1e-5);
}

/// The results are the same with and without checkpointing, so passes are counted to verify that
/// the setting has an effect.
#[test]
fn blocks_are_computed_twice_where_that_is_asked_for() {
    let passes = |activation_checkpointing| {
        let before = CHECKPOINTED.load(Ordering::Relaxed);
        let mut config = config();
        config.train.activation_checkpointing = activation_checkpointing;
        config.train.micro_batch_tokens = 4096;
        grpo(config).step(&prompts(), 0).unwrap();
        CHECKPOINTED.load(Ordering::Relaxed) - before
    };
    // All completions fit into a single micro-batch.
    assert_eq!([passes(false), passes(true)], [0, 1]);
}

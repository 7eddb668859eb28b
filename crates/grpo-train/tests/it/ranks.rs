//! Tests that results don't depend on the number of ranks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use burn::tensor::Device;
use grpo_core::{KlEstimator, KlPlacement};
use grpo_data::Prompt;
use grpo_model::{
    Adapted, Adapter, LanguageModel, LoraConfig, ModelConfig, Policy, Transformer, parameters,
    weights_digest,
};
use grpo_runtime::Ranks;
use grpo_train::{
    Evaluation, Grpo, GrpoConfig, Metrics, NextTokens, StepReport, TrainError, Training,
    unconditional_prompts,
};
use rayon::ThreadPoolBuilder;

use crate::support::{SEED, begin, chains, config, model, molecules, timeless, vocabulary};

/// Runs the same code on `count` ranks, each with a thread pool of its own, like a process has. In a
/// shared pool, a rank that waits for a message could keep a thread polling that another one needs.
fn on_ranks<T: Send>(count: usize, code: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let code = &code;
        let ranks = Ranks::in_process(count).into_iter();
        let in_pool = |ranks| {
            let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            pool.install(|| code(ranks))
        };
        let threads: Vec<_> = ranks.map(|ranks| scope.spawn(move || in_pool(ranks))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn prompts() -> Vec<Prompt> {
    unconditional_prompts(3, vocabulary().boundary())
}

/// Everything that a step decides: weights, metrics without times, samples, and the ledger.
type Decided = (String, Vec<(String, f64)>, Vec<grpo_data::Group>, String);

fn decided<M: LanguageModel>(grpo: &Grpo<M>, report: StepReport) -> Decided {
    let metrics = timeless(&Metrics::of(&report, 0));
    let ledger = format!("{:?}", report.observed.ledger);
    (String::from(weights_digest(grpo.policy())), metrics, report.groups, ledger)
}

/// Takes two steps on one to four ranks and compares everything that they decide.
fn compare<M: LanguageModel>(what: &str, config: &GrpoConfig, policy: impl Fn() -> M + Sync) {
    let steps = |ranks: Ranks| -> Vec<Decided> {
        let boundary = vocabulary().boundary();
        let mut grpo = begin(policy(), config.clone(), SEED, boundary, chains()).unwrap();
        grpo.distribute_over(&ranks);
        grpo.set_recording(true);
        let step = |step| {
            let report = grpo.step(&prompts(), step).unwrap();
            decided(&grpo, report)
        };
        [0, 1].map(step).to_vec()
    };
    let expected = steps(Ranks::alone());
    for count in 2..=4 {
        for (rank, found) in on_ranks(count, steps).into_iter().enumerate() {
            assert_eq!(found, expected, "{what}: rank {rank} of {count}");
        }
    }
}

/// Returns settings with several updates per step.
fn several_updates(micro_batch_tokens: usize) -> GrpoConfig {
    let mut config = config();
    config.train.updates_per_rollout = 2;
    config.train.micro_batch_tokens = micro_batch_tokens;
    config
}

#[test]
fn whole_models_learn_the_same_on_any_number_of_ranks() {
    let vocabulary = vocabulary().len();
    // From one micro-batch per completion to a single one.
    for micro_batch_tokens in [1, 40, 64, 10_000] {
        let what = format!("micro_batch_tokens = {micro_batch_tokens}");
        compare(&what, &several_updates(micro_batch_tokens), || model(vocabulary, 2.0));
    }
    let mut config = several_updates(40);
    config.loss.kl_placement = Some(KlPlacement::Reward);
    config.loss.high_entropy_share = Some(0.5);
    compare("KL in the reward, high-entropy mask", &config, || model(vocabulary, 2.0));
    config.loss.kl_placement = None;
    config.loss.kl_estimator = Some(KlEstimator::Exact);
    compare("exact KL", &config, || model(vocabulary, 2.0));
}

/// With recomputed blocks and a tied output layer, gradients of a micro-batch come in parts, and the
/// embeddings occur in two of them.
#[test]
fn tied_models_with_recomputed_blocks_learn_the_same_on_any_number_of_ranks() {
    let json = serde_json::json!({
        "model_type": "qwen3", "vocab_size": vocabulary().len(), "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 32,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": true,
        "hidden_act": "silu", "attention_bias": false,
    });
    let tied = ModelConfig::from_json(&json.to_string()).unwrap();
    let policy = || Transformer::random(&tied, 1, &Device::flex().autodiff()).unwrap();
    assert!(parameters(&policy()).iter().all(|parameter| !parameter.path.contains("head")));
    let mut config = several_updates(40);
    config.train.activation_checkpointing = true;
    compare("recomputed blocks", &config, policy);
}

#[test]
fn adapters_learn_the_same_on_any_number_of_ranks() {
    let policy = || {
        let model = model(vocabulary().len(), 2.0);
        let config = LoraConfig { rank: 3, alpha: 6.0, dropout: 0.3, ..LoraConfig::default() };
        let adapter = Adapter::random(&config, &model, 1, &model.device()).unwrap();
        Policy::Adapted(Adapted::new(&model, adapter))
    };
    compare("LoRA", &several_updates(40), policy);
}

#[test]
fn evaluations_are_the_same_on_any_number_of_ranks() {
    let evaluated = |ranks: Ranks| {
        let vocabulary = vocabulary();
        let (policy, boundary) = (model(vocabulary.len(), 2.0), vocabulary.boundary());
        let actions = NextTokens { end_ids: vec![boundary] };
        let (reward, decode) = (molecules(0.7), chains());
        let of = unconditional_prompts(5, boundary);
        let evaluation =
            Evaluation::new(of, &policy, &config(), &actions, reward, decode, SEED).unwrap();
        let mut grpo = begin(policy, config(), SEED, boundary, chains()).unwrap();
        grpo.distribute_over(&ranks);
        Training::new(grpo, Some(evaluation)).evaluate().unwrap().unwrap().groups
    };
    let expected = evaluated(Ranks::alone());
    for count in [2, 3] {
        assert_eq!(on_ranks(count, evaluated), vec![expected.clone(); count], "{count} ranks");
    }
}

/// A rank whose policy differs, e.g. because its processor rounds differently, is named.
#[test]
fn a_rank_with_other_weights_is_named() {
    let other = |ranks: Ranks| {
        let vocabulary = vocabulary();
        let scale = if ranks.rank() == 2 { 2.001 } else { 2.0 };
        let policy = model(vocabulary.len(), scale);
        let boundary = vocabulary.boundary();
        let mut grpo = begin(policy, config(), SEED, boundary, chains()).unwrap();
        grpo.distribute_over(&ranks);
        grpo.step(&prompts(), 0).unwrap_err().to_string()
    };
    for error in on_ranks(3, other) {
        let expected = "rank 2 has different weights from rank 0 at the beginning of step 1";
        assert!(error.starts_with(expected), "{error}");
    }
}

/// An interrupt or an error on one rank ends the step on all of them, before the policy changes.
#[test]
fn all_ranks_end_together() {
    let interrupted = |ranks: Ranks| {
        let boundary = vocabulary().boundary();
        let mut grpo =
            begin(model(vocabulary().len(), 2.0), config(), SEED, boundary, chains()).unwrap();
        grpo.interrupted_by(Arc::new(AtomicBool::new(ranks.rank() == 1)));
        grpo.distribute_over(&ranks);
        let before = weights_digest(grpo.policy());
        let error = grpo.step(&prompts(), 0).unwrap_err();
        assert_eq!(weights_digest(grpo.policy()), before);
        matches!(error, TrainError::Interrupted)
    };
    assert_eq!(on_ranks(3, interrupted), [true; 3]);

    let refused = |ranks: Ranks| {
        let boundary = vocabulary().boundary();
        let mut grpo =
            begin(model(vocabulary().len(), 2.0), config(), SEED, boundary, chains()).unwrap();
        grpo.distribute_over(&ranks);
        let mut prompts = prompts();
        // In the share of rank 1.
        prompts[1].ids = vec![999];
        grpo.step(&prompts, 0).unwrap_err().to_string()
    };
    for error in on_ranks(3, refused) {
        assert_eq!(
            error,
            format!(
                "sampling: rank 1: prompt token id 999 is outside the vocabulary of {} tokens",
                vocabulary().len()
            )
        );
    }
}

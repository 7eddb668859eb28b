//! Tests steps in which only an adapter is trained, and steps with activation checkpointing.

use grpo_core::KlEstimator;
use grpo_model::{Adapted, Adapter, LanguageModel, LoraConfig, Policy, StoredTensors};
use grpo_train::{Grpo, GrpoConfig, Metrics};

use crate::support::{
    SEED, begin, chains, config, distance, model, parameters, take_step, timeless, vocabulary,
};

/// What is trained.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Whole,
    Adapted,
    /// With DoRA, matrices for the embedding, and norms that are trained in full.
    Mixed,
}

fn policy(kind: Kind) -> Policy {
    let model = model(vocabulary().len(), 2.0);
    let config = LoraConfig { rank: 3, alpha: 6.0, dropout: 0.3, ..LoraConfig::default() };
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let config = match kind {
        Kind::Whole => return Policy::Whole(model),
        Kind::Adapted => config,
        Kind::Mixed => LoraConfig {
            dora: true,
            targets: names(["attn.query", "tok_emb"]),
            modules_to_save: names(["ln1", "ln_f"]),
            ..config
        },
    };
    let adapter = Adapter::random(&config, &model, 1, &model.device()).unwrap();
    Policy::Adapted(Adapted::new(&model, adapter))
}

fn grpo(kind: Kind, config: GrpoConfig) -> Grpo<Policy> {
    begin(policy(kind), config, SEED, vocabulary().boundary(), chains()).unwrap()
}

#[test]
fn steps_move_the_adapter_and_no_bit_of_its_base() {
    let mut grpo = grpo(Kind::Adapted, config());
    let before = StoredTensors::of(grpo.policy().parts().0).read();
    let mut last = parameters(grpo.policy());
    for step in 0..3 {
        let report = take_step(&mut grpo, step);
        assert_eq!(StoredTensors::of(grpo.policy().parts().0).read(), before);
        let now = parameters(grpo.policy());
        assert!(distance(&now, &last) > 1e-4, "step {step} moved nothing");
        last = now;
        // The reference is the base model. B is initially 0, so both are equal in the first step.
        let kl = report.learned.tokens().kl().unwrap();
        assert_eq!(kl.abs() < 1e-10, step == 0, "step {step}: {kl}");
        // Samples come from the model including the adapter.
        let name = "sampling/sampling_logp_difference/max";
        assert_eq!(report.learned.tokens().metric(name), Some(0.0), "step {step}");
    }
}

#[test]
fn an_adapted_policy_learns() {
    let mut config = config();
    config.loss.kl_coef = None;
    config.optimizer.learning_rate = 2e-2;
    let mut grpo = grpo(Kind::Adapted, config);
    let mut reward = |steps: std::ops::Range<u32>| {
        let n = f64::from(steps.end - steps.start);
        let of = |step| Metrics::of(&take_step(&mut grpo, step), 0).get("reward").unwrap();
        steps.map(of).sum::<f64>() / n
    };
    let (first, last) = (reward(0..5), {
        reward(5..55);
        reward(55..60)
    });
    assert!(last - first > 0.1, "the reward went from {first} to {last}");
}

/// Uses two updates and several micro-batches, so that gradients are accumulated and ratios differ
/// from 1.
#[test]
fn blocks_computed_twice_give_the_same_step() {
    for kind in [Kind::Whole, Kind::Adapted, Kind::Mixed] {
        for estimator in [KlEstimator::K3, KlEstimator::Exact] {
            let of = |activation_checkpointing| {
                let mut config = config();
                config.train.activation_checkpointing = activation_checkpointing;
                config.train.updates_per_rollout = 2;
                config.train.micro_batch_tokens = 7;
                config.loss.kl_estimator = Some(estimator);
                let mut grpo = grpo(kind, config);
                take_step(&mut grpo, 0);
                let report = take_step(&mut grpo, 1);
                (timeless(&Metrics::of(&report, 0)), parameters(grpo.policy()))
            };
            // Recomputation uses the same operations, so gradients are bit-identical.
            assert_eq!(of(false), of(true), "{kind:?}, {estimator:?}");
        }
    }
}

//! Models, settings and comparisons that are shared by several tests.

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use grpo_data::Codec;
use grpo_model::{
    Frozen, LanguageModel, ModelConfig, ModelFolder, ModelSpec, StoredAs, Transformer,
};
use grpo_molecules::{LogpWindow, MolGptConfig, MoleculeReward, Vocabulary};
use grpo_rewards::{PatternReward, Reward};
use grpo_train::{
    AdvantageSettings, Decode, EngineFactory, EvalConfig, Grpo, GrpoConfig, LossSettings, Metrics,
    NextTokens, OptimizerConfig, Parts, ReferenceSettings, SamplerCheck, SamplingConfig,
    ScheduleConfig, StepReport, TrainConfig, TrainError, unconditional_prompts,
};

/// Returns a vocabulary for small molecules.
pub(crate) fn vocabulary() -> Vocabulary {
    Vocabulary::from_smiles(["CC(=O)N", "c1ccccc1", "OCl"]).unwrap()
}

pub(crate) fn sizes(vocab_size: usize) -> ModelConfig {
    MolGptConfig::new(vocab_size, 16, 1, 2, 16).to_config().unwrap()
}

/// Creates a randomly initialised model for training.
pub(crate) fn fresh_model(vocab_size: usize) -> Transformer {
    Transformer::random(&sizes(vocab_size), 1, &Device::flex().autodiff()).unwrap()
}

/// Creates a model for training whose probabilities are far from uniform. Initial weights are
/// scaled by `scale` and perturbed.
pub(crate) fn model(vocab_size: usize, scale: f32) -> Transformer {
    shaken(sizes(vocab_size), scale)
}

/// Like [`model`], but with a different configuration.
pub(crate) fn shaken(config: ModelConfig, scale: f32) -> Transformer {
    shaken_with(Codec::of_ids(Default::default()), config, scale)
}

/// Like [`shaken`], but for models that require a vocabulary.
pub(crate) fn shaken_with(codec: Codec, config: ModelConfig, scale: f32) -> Transformer {
    let device = Device::flex().autodiff();
    let folder = tempfile::tempdir().unwrap();
    let first = Transformer::random(&config, 1, &device).unwrap();
    let families = config.family().into();
    let spec = ModelSpec { config, codec };
    spec.write(folder.path(), &first, StoredAs::F32).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for (i, number) in file[header..].chunks_exact_mut(4).enumerate() {
        let value = f32::from_le_bytes((&*number).try_into().unwrap());
        let shake = ((i as u32).wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 - 0.5;
        number.copy_from_slice(&(scale * value + 0.4 * shake).to_le_bytes());
    }
    std::fs::write(&path, file).unwrap();
    ModelFolder::load_model(folder.path(), &families, &device).unwrap()
}

/// Returns valid settings.
pub(crate) fn config() -> GrpoConfig {
    GrpoConfig {
        train: TrainConfig {
            steps: 10,
            prompts_per_step: 3,
            group_size: 8,
            updates_per_rollout: 1,
            micro_batch_tokens: 64,
            activation_checkpointing: false,
            precision: Default::default(),
            reward_time_limit: 60.0,
            max_roll_backs: 3,
            max_failed_rewards: 0.1,
        },
        sampling: SamplingConfig { max_new_tokens: 12, ..SamplingConfig::default() },
        advantage: AdvantageSettings::default(),
        loss: LossSettings { kl_coef: Some(0.05), ..LossSettings::default() },
        kl_controller: None,
        reference: ReferenceSettings::default(),
        guards: None,
        sampler_check: SamplerCheck::default(),
        optimizer: optimizer(),
        schedule: ScheduleConfig::default(),
        eval: EvalConfig::default(),
    }
}

/// Returns a codec for ids without a text representation.
pub(crate) fn ids() -> Codec {
    Codec::of_ids(Default::default())
}

pub(crate) fn optimizer() -> OptimizerConfig {
    OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::new(1e-2) }
}

/// Decodes completions so that rewards vary, although an untrained model rarely produces a valid
/// molecule. A completion is decoded to a carbon chain of its length, or to an empty string if the
/// sum of its ids is odd.
pub(crate) fn chains() -> Decode {
    Arc::new(|ids| {
        let odd = ids.iter().sum::<u32>() % 2 == 1;
        if odd { String::new() } else { "C".repeat(ids.len()) }
    })
}

pub(crate) const SEED: u64 = 11;

/// Creates a run for a model whose probabilities are far from uniform.
pub(crate) fn grpo(config: GrpoConfig, decode: Decode) -> Grpo<Transformer> {
    let vocabulary = vocabulary();
    let model = model(vocabulary.len(), 2.0);
    begin(model, config, SEED, vocabulary.boundary(), decode).unwrap()
}

/// Returns a molecule reward that combines QED and SA, where `qed` is the weight of the former.
pub(crate) fn molecules(qed: f64) -> Arc<dyn Reward> {
    let window = LogpWindow { centre: 2.5, half_width: 2.0 };
    Arc::new(MoleculeReward { qed, sa: 1.0 - qed, logp: 0.0, window })
}

/// Returns a reward of 1 for completions that match `pattern`.
pub(crate) fn pattern(pattern: &str) -> Arc<dyn Reward> {
    Arc::new(PatternReward { pattern: regex::Regex::new(pattern).unwrap() })
}

/// Creates a run whose reference is the initial policy. Prompts consist of the beginning token
/// only.
pub(crate) fn begin<M: LanguageModel>(
    policy: M,
    config: GrpoConfig,
    seed: u64,
    boundary: u32,
    decode: Decode,
) -> Result<Grpo<M>, TrainError> {
    rewarded(molecules(0.7), policy, config, seed, boundary, decode)
}

/// Like [`begin`], but with a different reward.
pub(crate) fn rewarded<M: LanguageModel>(
    reward: Arc<dyn Reward>,
    policy: M,
    config: GrpoConfig,
    seed: u64,
    boundary: u32,
    decode: Decode,
) -> Result<Grpo<M>, TrainError> {
    let actions = Arc::new(NextTokens { end_ids: vec![boundary] });
    with_actions(actions, reward, policy, config, seed, decode)
}

/// Like [`rewarded`], but with a different engine.
pub(crate) fn with_actions<M: LanguageModel>(
    actions: Arc<dyn EngineFactory<M>>,
    reward: Arc<dyn Reward>,
    policy: M,
    config: GrpoConfig,
    seed: u64,
    decode: Decode,
) -> Result<Grpo<M>, TrainError> {
    Grpo::new(parts(actions, reward, policy, decode), config, seed)
}

/// Returns the parts of a run with nothing optional, for prompts of one token.
pub(crate) fn parts<M: LanguageModel>(
    actions: Arc<dyn EngineFactory<M>>,
    reward: Arc<dyn Reward>,
    policy: M,
    decode: Decode,
) -> Parts<M> {
    Parts {
        reference: Frozen::snapshot(&policy),
        policy,
        engine: actions,
        reward,
        extensions: Vec::new(),
        longest_prompt: 1,
        epoch: None,
        decode,
    }
}

/// Performs step number `step`.
pub(crate) fn take_step<M: LanguageModel>(grpo: &mut Grpo<M>, step: u32) -> StepReport {
    grpo.step(&unconditional_prompts(3, vocabulary().boundary()), step).unwrap()
}

/// Returns the values of all parameters in module order.
pub(crate) fn parameters<M: Module>(model: &M) -> Vec<f32> {
    struct Numbers(Vec<f32>);
    impl ModuleVisitor for Numbers {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut numbers = Numbers(vec![]);
    model.visit(&mut numbers);
    numbers.0
}

/// Returns the metrics without time measurements.
pub(crate) fn timeless(metrics: &Metrics) -> Vec<(String, f64)> {
    metrics
        .iter()
        .filter(|(name, _)| !metrics.is_of_machine(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the largest value of |a − b|.
pub(crate) fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

//! Models, adapters and engines that are shared by several tests.

use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use grpo_data::{OneOrSeveral, Prompt, Purpose};
use grpo_logprob::SamplingSettings;
use grpo_model::{
    Adapted, Adapter, AdapterConfig, AdapterFolder, Frozen, LoraConfig, ModelConfig, Policy,
    Transformer, write_adapter,
};
use grpo_rollout::{Decode, Engine, EngineFactory, EngineRequest, RolloutError, StepKey};
use grpo_servers::vllm::{OnServers, Servers, Tolerance, VllmConfig};
use tempfile::TempDir;

use super::fake::{Fake, Kind};

pub(crate) const END: u32 = 3;
pub(crate) const KEY: StepKey =
    StepKey { seed: 7, purpose: Purpose::SAMPLING, step: 3, policy_version: 5 };

/// A small Qwen3 model.
pub(crate) fn base(seed: u64) -> Transformer {
    let config = ModelConfig::from_json(
        r#"{"model_type": "qwen3", "vocab_size": 24, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false}"#,
    );
    Transformer::random(&config.unwrap(), seed, &Device::flex()).unwrap()
}

fn lora(base: &Transformer) -> (LoraConfig, AdapterConfig) {
    let config = LoraConfig { rank: 2, alpha: 16.0, ..LoraConfig::default() };
    let adapter = AdapterConfig::new(&config, base, "tiny");
    (config, adapter)
}

/// An adapter whose weights are far from their initial values, so that its effect is large.
pub(crate) fn policy(base: &Transformer, seed: u32) -> Policy {
    let folder = tempfile::tempdir().unwrap();
    let (lora, config) = lora(base);
    let adapter = Adapter::random(&lora, base, 1, &Device::flex()).unwrap();
    write_adapter(&adapter, &config, folder.path(), base).unwrap();
    let path = folder.path().join("adapter_model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for (number, i) in file[header..].chunks_exact_mut(4).zip(seed..) {
        let value = (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 - 0.5;
        number.copy_from_slice(&(2.0 * value).to_le_bytes());
    }
    std::fs::write(&path, file).unwrap();
    let AdapterFolder { adapter, .. } =
        AdapterFolder::load(folder.path(), base, &Device::flex()).unwrap();
    Policy::Adapted(Adapted::new(base, adapter))
}

/// What a test needs to sample on servers.
pub(crate) struct Setup {
    pub(crate) folder: TempDir,
    pub(crate) servers: Arc<Servers>,
    pub(crate) messages: Arc<Mutex<Vec<String>>>,
}

impl Setup {
    /// Prepares clients of servers.
    pub(crate) fn new(fakes: &[&Fake]) -> Self {
        Self::with(fakes, |_| {})
    }

    pub(crate) fn with(fakes: &[&Fake], change: impl FnOnce(&mut VllmConfig)) -> Self {
        Self::of(fakes, Tolerance::Each(1e-3), change)
    }

    pub(crate) fn tolerating(fakes: &[&Fake], tolerance: Tolerance) -> Self {
        Self::of(fakes, tolerance, |_| {})
    }

    fn of(fakes: &[&Fake], tolerance: Tolerance, change: impl FnOnce(&mut VllmConfig)) -> Self {
        let urls = fakes.iter().map(|fake| fake.server.url.clone()).collect();
        let mut config = VllmConfig {
            url: OneOrSeveral::Several(urls),
            time_limit: 30.0,
            ..VllmConfig::new("")
        };
        change(&mut config);
        let folder = tempfile::tempdir().unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&messages);
        let notify = Arc::new(move |message: &str| said.lock().unwrap().push(message.to_owned()));
        let write = |folder: &Path, policy: &Frozen<Policy>| {
            std::fs::create_dir(folder).unwrap();
            policy.write_adapter(&lora(&base(1)).1, folder).map_err(|error| error.to_string())
        };
        let path = folder.path().to_owned();
        let servers = Servers::new(&config, path, Arc::new(write), tolerance, notify).unwrap();
        Self { folder, servers, messages }
    }

    /// Names of the adapter folders.
    pub(crate) fn folders(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    pub(crate) fn factory(&self) -> OnServers {
        OnServers::new(Arc::clone(&self.servers), vec![END])
    }

    /// Creates an engine for groups of 4 completions with up to 6 tokens.
    pub(crate) fn engine(&self, policy: &Policy) -> Arc<dyn Engine<Policy>> {
        self.engine_with(policy, |_| {}).unwrap()
    }

    pub(crate) fn engine_with(
        &self,
        policy: &Policy,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Arc<dyn Engine<Policy>>, RolloutError> {
        engine(&self.factory(), policy, change)
    }
}

/// Settings of an engine that tests change.
pub(crate) struct Settings {
    pub(crate) group_size: usize,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: SamplingSettings,
    pub(crate) stop: Vec<String>,
}

/// Calls [`EngineFactory::create`] with usual settings.
pub(crate) fn engine(
    factory: &dyn EngineFactory<Policy>,
    policy: &Policy,
    change: impl FnOnce(&mut Settings),
) -> Result<Arc<dyn Engine<Policy>>, RolloutError> {
    let sampling = SamplingSettings { temperature: 0.7, forbidden: vec![5], ..Default::default() };
    let mut settings = Settings { group_size: 4, max_new_tokens: 6, sampling, stop: Vec::new() };
    change(&mut settings);
    let decode: Decode = Arc::new(|ids| ids.iter().map(|&id| letter(id)).collect());
    let Settings { group_size, max_new_tokens, sampling, stop } = &settings;
    let request = EngineRequest {
        group_size: *group_size,
        longest_prompt: 4,
        sampling,
        max_new_tokens: *max_new_tokens,
        batch_size: 8,
        stop,
        decode: &decode,
    };
    factory.create(policy, &request)
}

/// Decodes an id.
pub(crate) fn letter(id: u32) -> char {
    char::from(b'a' + id as u8)
}

pub(crate) fn prompts(count: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt::of_ids(index, vec![1, 2 + index % 20, 9])).collect()
}

pub(crate) fn fake(base: &Transformer) -> Fake {
    Fake::start(Kind::of(base))
}

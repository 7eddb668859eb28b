//! Helpers shared by the tests of both engines.

use burn::tensor::Device;
use grpo_data::{Codec, Completion, Group, Prompt, Purpose};
use grpo_model::{ModelConfig, ModelFolder, ModelSpec, StoredAs, Transformer};
use grpo_rollout::StepKey;

pub(crate) const KEY: StepKey =
    StepKey { seed: 7, purpose: Purpose::SAMPLING, step: 3, policy_version: 5 };

/// Returns a model whose weights are twice their initial values, plus noise of up to 0.2. Its
/// probabilities are far from uniform.
pub(crate) fn shaken(codec: Codec, config: ModelConfig) -> Transformer {
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    let model = Transformer::random(&config, 1, &device).unwrap();
    let families = config.family().into();
    let spec = ModelSpec { config, codec };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for (number, away) in file[header..].chunks_exact_mut(4).zip(shakes()) {
        let value = f32::from_le_bytes((&*number).try_into().unwrap());
        number.copy_from_slice(&(2.0 * value + 0.4 * away).to_le_bytes());
    }
    std::fs::write(&path, file).unwrap();
    ModelFolder::load_model(folder.path(), &families, &device).unwrap()
}

/// Returns pseudorandom numbers between −½ and ½.
pub(crate) fn shakes() -> impl Iterator<Item = f32> {
    (0_u32..).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 - 0.5)
}

pub(crate) fn prompt(index: u32, ids: &[u32]) -> Prompt {
    Prompt::of_ids(index, ids.to_vec())
}

pub(crate) fn completions(groups: &[Group]) -> impl Iterator<Item = &Completion> {
    groups.iter().flat_map(Group::completions)
}

/// Runs `f` in a thread pool with the given number of threads.
pub(crate) fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
}

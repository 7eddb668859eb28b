//! Measures memory use to check that adapters share their base model and that checkpointing saves
//! memory. This test has its own binary, because it counts all allocations of the process.

use std::alloc::System;

use burn::module::Module;
use burn::tensor::Device;
use grpo_model::{
    Adapted, Adapter, Dropout, Forward, Frozen, LanguageModel, LoraConfig, ModelConfig, Policy,
    TokenBatch, Transformer, weights_digest,
};
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Returns the peak memory that `work` allocated in addition to existing allocations, in bytes.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    ALLOCATOR.reset_peak_memory();
    let result = work();
    (ALLOCATOR.get_peak_memory(), result)
}

fn model(layers: usize, device: &Device) -> Transformer {
    let json = format!(
        r#"{{"model_type": "llama", "vocab_size": 64, "max_position_embeddings": 512,
            "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": {layers},
            "num_attention_heads": 4}}"#
    );
    Transformer::random(&ModelConfig::from_json(&json).unwrap(), 1, device).unwrap()
}

fn adapter(model: &Transformer, seed: u64) -> Adapter {
    let config = LoraConfig { rank: 2, alpha: 4.0, ..LoraConfig::default() };
    Adapter::random(&config, model, seed, &Device::flex().autodiff()).unwrap()
}

/// A single test, because tests running in parallel would affect the measurement.
#[test]
fn memory() {
    adapters_share_their_base();
    checkpointing_holds_one_block();
    hashing_copies_nothing();
}

fn hashing_copies_nothing() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        let model = model(4, &device);
        let bytes = 4 * model.num_params();
        let (held, _) = peak(|| weights_digest(&model));
        assert!(held < bytes / 64, "{held} bytes more; the numbers have {bytes}");
    }
}

fn adapters_share_their_base() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        let (of_base, base) = peak(|| model(4, &device));
        let bytes = 4 * base.num_params();
        assert!(of_base >= bytes, "{of_base} bytes for {bytes}: nothing is counted");
        let adapters = [adapter(&base, 1), adapter(&base, 2)];
        let (added, policies) = peak(|| {
            let policies = adapters.map(|adapter| Policy::Adapted(Adapted::new(&base, adapter)));
            let references = policies.each_ref().map(Frozen::snapshot);
            (policies.clone(), references, policies)
        });
        // The six policies only allocate their module trees, not the weights.
        assert!(added < bytes / 15, "{added} bytes more; the numbers of a base have {bytes}");
        drop(policies);
    }
}

/// With more blocks, memory grows only by their inputs, not by their inner activations.
fn checkpointing_holds_one_block() {
    let ids: Vec<u32> = (0..256).map(|i| i % 64).collect();
    let tokens = TokenBatch::from_iter([ids.as_slice(), &ids]);
    let of = |layers, checkpointing| {
        let base = model(layers, &Device::flex());
        let policy = Policy::Adapted(Adapted::new(&base, adapter(&base, 1)));
        let pass = || {
            let forward = match checkpointing {
                true => policy.checkpointed(&tokens, &mut Dropout::off()),
                false => Forward::kept(policy.hidden(&tokens, &mut Dropout::off())),
            };
            let loss = forward.hidden.clone().square().mean();
            forward.backward(loss, &policy)
        };
        // The first pass includes one-time allocations.
        pass();
        peak(pass).0
    };
    let [kept, checkpointed] = [false, true].map(|how| [of(2, how), of(6, how)]);
    // The inputs `[512, 128]` of four additional blocks.
    let inputs = 4 * 4 * 512 * 128;
    assert!(checkpointed[1] - checkpointed[0] < inputs * 11 / 10, "{checkpointed:?}");
    assert!(kept[1] - kept[0] > 20 * inputs, "{kept:?}");
}

//! Estimates the peak memory of training on the CPU.

use burn::module::Module;
use grpo_model::{
    Activation, Description, HeadKind, LanguageModel, Policy, ProductPrecision, WeightPrecision,
    sampling_copies_weights,
};
use grpo_train::{GrpoConfig, MOST_KEPT_ACTIVATIONS, ReferenceFrom, ReferenceSettings};

use super::trial::Lengths;
use super::words::words;
use crate::train_file::TrainFile;

/// Estimated memory by purpose. Each part names the key that reduces it.
pub(super) struct MemoryPlan {
    /// Memory needed during the entire run.
    held: Vec<Part>,
    /// Memory needed for sampling and for updates. The allocator keeps and reuses freed memory
    /// (docs/decisions/0017), so only the larger of the two counts.
    sampling: Vec<Part>,
    update: Vec<Part>,
    /// Activations of the rollout that the update uses again. They are limited to the memory that is
    /// left.
    kept: Part,
    /// Expected number of micro-batches per step.
    pub(super) micro_batches: f64,
}

struct Part {
    what: &'static str,
    bytes: u64,
    /// How to reduce this part.
    cure: &'static str,
}

fn part(what: &'static str, numbers: f64, cure: &'static str) -> Part {
    Part { what, bytes: (4.0 * numbers) as u64, cure }
}

/// Number of positions per page of the KV cache (`grpo_kernels::PAGE`).
const PAGE: f64 = 16.0;
/// The executable, its tables and its threads.
const PROGRAM: f64 = 40e6 / 4.0;

/// Returns whether a run keeps a copy of the reference.
fn keeps_reference(reference: &ReferenceSettings, adapted: bool) -> bool {
    !adapted || reference.from != ReferenceFrom::Base || reference.follows()
}

impl MemoryPlan {
    /// Estimates the memory of each of `ranks` processes of a run. `lengths` are measured on a trial batch. If they are missing,
    /// all completions are assumed to have the maximum length.
    pub(super) fn of(
        file: &TrainFile,
        policy: &Policy,
        longest_prompt: usize,
        lengths: Option<Lengths>,
        ranks: usize,
    ) -> Self {
        let GrpoConfig { train, sampling, reference, loss, eval, .. } = &file.grpo();
        let limit = sampling.max_new_tokens;
        let Lengths { mean, longest } =
            lengths.unwrap_or(Lengths { mean: limit as f64, longest: limit });
        let (model, _) = policy.parts();
        let of = Sizes { description: model.description() };
        let trained = policy.num_params() as f64;
        let all = policy.parameters() as f64;
        let adapted = matches!(policy, Policy::Adapted(_));
        let base = match file.settings.base_precision {
            WeightPrecision::F32 => all,
            WeightPrecision::Bf16 => all / 2.0,
            WeightPrecision::Q8 => all / 3.5,
            WeightPrecision::Q4 => all / 6.4,
        };

        // Sampling batches and micro-batches never exceed the completions of a step.
        let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
        let rows = completions.max(f64::from(eval.samples)).min(sampling.batch_size as f64);
        let prompt = longest_prompt as f64;
        let fills = file.source.as_ref().is_some_and(|source| source.fills_prompt());
        // When filling blanks, the text is processed once per group, and only the blanks are
        // scored.
        let own = if fills { 0.0 } else { 1.0 };
        let step_tokens = f64::from(train.prompts_per_step) * prompt + own * completions * mean;
        let alone = prompt + own * longest as f64;
        let tokens = step_tokens.min((train.micro_batch_tokens as f64).max(alone));
        let micro_batches = (step_tokens / tokens).ceil();

        let of_trained = if adapted { "lower lora.rank" } else { "train an adapter with [lora]" };
        let of_model = if adapted { "set base_precision" } else { "train an adapter with [lora]" };
        let reference = if keeps_reference(reference, adapted) { trained } else { 0.0 };
        let table = (of.description.vocabulary * of.description.width) as f64;
        let (copied, of_copied) = Sampler::new(file, fills).copies(of.description.head, all, table);
        let exact = loss.resolve().is_ok_and(|loss| loss.kl.estimator.is_exact());
        let scored = if fills { completions * mean * tokens / step_tokens } else { tokens };
        let logits = if exact { 6.0 * scored * of.description.vocabulary as f64 } else { 0.0 };
        // Hidden states of the blanks, once per completion, and their gradients.
        let repeated = if fills { 3.0 * scored * of.description.width as f64 } else { 0.0 };
        // With several micro-batches, the gradients of each are added to an accumulated copy.
        let gradients = trained * if micro_batches > 1.0 { 2.0 } else { 1.0 };
        let kept = of.kept(step_tokens / ranks as f64, file);
        let activations = of.activations(tokens, train.activation_checkpointing);
        Self {
            held: vec![
                part("program", PROGRAM, "it cannot be reduced"),
                part("weights", base, of_model),
                part("reference", reference, of_trained),
                part("optimizer", 2.0 * trained, of_trained),
            ],
            sampling: vec![
                part("snapshot", copied, of_copied),
                if fills { of.filling(prompt) } else { of.sampling(rows, prompt + mean) },
            ],
            update: vec![
                part("gradients", gradients, of_trained),
                part(
                    "activations",
                    activations + logits + repeated,
                    if train.activation_checkpointing {
                        "lower train.micro_batch_tokens"
                    } else {
                        "lower train.micro_batch_tokens, or set train.activation_checkpointing"
                    },
                ),
            ],
            kept: part("kept activations", kept, ""),
            micro_batches,
        }
    }

    /// Returns a note if the run uses settings that save memory at the expense of time, although it fits
    /// into half of `available` bytes without them.
    pub(super) fn spare(
        file: &TrainFile,
        policy: &Policy,
        longest_prompt: usize,
        lengths: Option<Lengths>,
        available: Option<u64>,
    ) -> Option<String> {
        let mut keys = Vec::new();
        if file.settings.base_precision != WeightPrecision::F32 {
            keys.push("base_precision");
        }
        if file.trainer.train.activation_checkpointing {
            keys.push("train.activation_checkpointing");
        }
        let mut fast = file.clone();
        fast.settings.base_precision = WeightPrecision::F32;
        fast.trainer.train.activation_checkpointing = false;
        let needed = Self::of(&fast, policy, longest_prompt, lengths, 1).needed();
        let fits = !keys.is_empty() && available.is_some_and(|available| needed < available / 2);
        fits.then(|| {
            format!(
                "note         {} save{} memory but cost{} time on a CPU; without {}, the run needs about {}",
                keys.join(" and "),
                if keys.len() == 1 { "s" } else { "" },
                if keys.len() == 1 { "s" } else { "" },
                if keys.len() == 1 { "it" } else { "them" },
                words(needed)
            )
        })
    }

    /// Limits the kept activations to what is left of `available` bytes, and returns the latter.
    pub(super) fn limit_kept(&mut self, available: u64) -> u64 {
        let left = available.saturating_sub(self.needed());
        self.kept.bytes = self.kept.bytes.min(left);
        left
    }

    /// Returns the parts that make up the peak.
    fn peak(&self) -> impl Iterator<Item = &Part> {
        let sum = |parts: &[Part]| parts.iter().map(|part| part.bytes).sum::<u64>();
        let phase =
            if sum(&self.sampling) > sum(&self.update) { &self.sampling } else { &self.update };
        self.held.iter().chain(phase)
    }

    /// Returns the estimated peak in bytes without the kept activations.
    fn needed(&self) -> u64 {
        self.peak().map(|part| part.bytes).sum()
    }

    /// Returns the estimated peak in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.needed() + self.kept.bytes
    }

    /// Formats the estimate for each of `ranks` processes.
    pub(super) fn line(&self, ranks: usize, available: Option<u64>) -> String {
        let there = available.map(|bytes| format!("; {} available", words(bytes)));
        let (need, there) = (words(self.bytes()), there.unwrap_or_default());
        let all = self.peak().chain([&self.kept]);
        let visible = all.filter(|part| 50 * part.bytes >= self.bytes());
        let parts = visible.map(|part| format!("{} {}", part.what, words(part.bytes)));
        let parts = parts.collect::<Vec<_>>().join(", ");
        let each = if ranks > 1 { " in each process" } else { "" };
        format!("memory       about {need} at peak{each} ({parts}){there}")
    }

    pub(super) fn refuse_above(&self, available: u64) -> anyhow::Result<()> {
        let most = self.peak().max_by_key(|part| part.bytes).expect("a memory plan is not empty");
        anyhow::ensure!(
            self.needed() <= available,
            "training needs about {} of memory, but only {} is available; most of it is for {} ({}): {}, or start anyway with --set preflight.ignore_memory=true",
            words(self.needed()),
            words(available),
            most.what,
            words(most.bytes),
            most.cure
        );
        Ok(())
    }
}

/// What decides how weights are copied for sampling.
#[derive(Clone, Copy)]
struct Sampler {
    /// Whether this process samples with a KV cache.
    samples_here: bool,
    /// Whether matrices in f32 are packed.
    packs: bool,
    products: ProductPrecision,
    weights: WeightPrecision,
    base: WeightPrecision,
}

impl Sampler {
    fn new(file: &TrainFile, fills: bool) -> Self {
        let samples_here = !fills && file.rollout.config().samples_here();
        Self {
            samples_here,
            packs: sampling_copies_weights() && samples_here,
            products: file.trainer.train.precision,
            weights: file.grpo().sampling.weights,
            base: file.settings.base_precision,
        }
    }

    /// Returns how many of `all` numbers are copied, and how to reduce that. `table` is the size of the
    /// embedding table.
    fn copies(self, head: HeadKind, all: f64, table: f64) -> (f64, &'static str) {
        let own_head = if head == HeadKind::Own { table } else { 0.0 };
        let blocks = all - table - own_head;
        // The output layer stays in f32. A tied one is the table.
        let head = match head {
            HeadKind::Own | HeadKind::Tied if self.packs => table,
            _ => 0.0,
        };
        match self.products {
            _ if !self.samples_here => {}
            ProductPrecision::F32 => {}
            ProductPrecision::Bf16 => return (blocks / 2.0 + head, "it cannot be reduced"),
            // In f32, once as they are and once packed.
            ProductPrecision::F16 if self.packs => {
                return (2.0 * blocks + head, "set train.precision = \"bf16\"");
            }
            ProductPrecision::F16 => return (blocks + head, "it cannot be reduced"),
        }
        match (self.weights, self.base) {
            (WeightPrecision::F32, WeightPrecision::F32) if self.packs => {
                (blocks + head, "set sampling.weights = \"bf16\"")
            }
            (WeightPrecision::F32, _) => (head, "it cannot be reduced"),
            _ if self.packs => (blocks / 2.0 + head, "set base_precision"),
            _ => (blocks / 2.0, "set sampling.weights = \"f32\""),
        }
    }
}

/// Tensor sizes in the forward and backward pass.
struct Sizes<'a> {
    description: &'a Description,
}

impl Sizes<'_> {
    /// Returns the size of the activations kept for `tokens` tokens, including temporary memory in
    /// the backward pass.
    fn activations(&self, tokens: f64, checkpointing: bool) -> f64 {
        let it = self.description;
        let (width, layers) = (it.width as f64, it.layers as f64);
        let heads = (it.heads * it.head_width) as f64;
        let kv = (2 * it.kv_heads * it.head_width) as f64;
        let middle = match it.activation {
            Activation::Gelu | Activation::GeluTanh => 2.0,
            Activation::SwiGlu => 3.0,
            // Its GELU is kept too, because it is not one operation with the product.
            Activation::GeGluTanh => 4.0,
        } * it.mlp_width as f64;
        let block = 6.0 * width + 2.0 * heads + kv + middle;
        let kept = if checkpointing { layers * width + 2.0 * block } else { layers * block };
        tokens * (kept + 2.0 * block + 4.0 * width)
    }

    /// Returns the size of the activations that are kept from a rollout of this number of tokens.
    fn kept(&self, tokens: f64, file: &TrainFile) -> f64 {
        // Those of tasks with their own prompt source and of episodes are not kept.
        let is_kept = file.rollout.config().samples_here() && !file.extensions.look_ahead();
        if file.source.is_some()
            || file.episode.is_some()
            || !is_kept
            || !file.grpo().keeps_activations()
        {
            return 0.0;
        }
        let it = self.description;
        let attention = (it.heads + 2 * it.kv_heads) * it.head_width;
        let mlp = match it.activation {
            Activation::Gelu | Activation::GeluTanh => it.mlp_width,
            Activation::SwiGlu | Activation::GeGluTanh => 2 * it.mlp_width,
        };
        let outputs = (it.layers * (attention + mlp + 2 * it.width)) as f64;
        let limit = MOST_KEPT_ACTIVATIONS as f64 / 4.0;
        // A quarter more was measured, for the allocator's blocks and what lies between them.
        1.25 * (tokens * outputs).min(limit)
    }

    /// Returns the size of keys, values and logits when sampling `rows` sequences of `tokens`
    /// tokens.
    fn sampling(&self, rows: f64, tokens: f64) -> Part {
        let it = self.description;
        let kv = (2 * it.layers * it.kv_heads * it.head_width) as f64;
        // The last page of a sequence is half full on average. The cache doubles its memory when it
        // grows, and the process keeps the old memory.
        let remembered = rows * (tokens + PAGE / 2.0);
        let numbers = 2.5 * remembered * kv + 4.0 * rows * it.vocabulary as f64;
        part("sampling", numbers, "lower sampling.batch_size")
    }

    /// Returns the memory for filling blanks, where each thread processes a text of `tokens`
    /// tokens.
    fn filling(&self, tokens: f64) -> Part {
        let tokens = rayon::current_num_threads() as f64 * tokens;
        part("sampling", self.activations(tokens, true), "lower passages.length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> MemoryPlan {
        MemoryPlan {
            micro_batches: 1.0,
            held: vec![part("weights", 1e9, "train an adapter with [lora]")],
            sampling: vec![part("sampling", 3e8, "lower sampling.batch_size")],
            update: vec![
                part("gradients", 1e9, "train an adapter with [lora]"),
                part("activations", 2e9, "lower train.micro_batch_tokens"),
            ],
            kept: part("kept activations", 0.0, ""),
        }
    }

    #[test]
    fn kept_activations_are_limited_to_the_memory_that_is_left() {
        let with_kept = || MemoryPlan { kept: part("kept activations", 1e9, ""), ..plan() };
        assert_eq!(with_kept().bytes(), 20_000_000_000);
        for (available, kept) in [(30_u64, 4), (20, 4), (18, 2), (16, 0), (10, 0)] {
            let mut plan = with_kept();
            let left = available.saturating_sub(16) * 1_000_000_000;
            assert_eq!(plan.limit_kept(available * 1_000_000_000), left);
            assert_eq!(plan.bytes(), (16 + kept) * 1_000_000_000);
        }
        assert!(with_kept().refuse_above(16_000_000_000).is_ok());
    }

    #[test]
    fn the_larger_phase_counts() {
        assert_eq!(plan().bytes(), 16_000_000_000);
        let sampled = MemoryPlan { sampling: vec![part("sampling", 4e9, "")], ..plan() };
        assert_eq!(sampled.bytes(), 20_000_000_000);
        assert_eq!(
            plan().line(1, Some(20_000_000_000)),
            "memory       about 16 GB at peak (weights 4.0 GB, gradients 4.0 GB, activations 8.0 GB); 20 GB available"
        );
        let unknown = plan().line(2, None);
        let expected = "memory       about 16 GB at peak in each process (";
        assert!(unknown.starts_with(expected), "{unknown}");
    }

    /// A model of 80 numbers in blocks and a table of 10.
    #[test]
    fn weights_that_are_copied_for_sampling() {
        use HeadKind::{None, Own, Tied};
        use WeightPrecision::{Bf16, F32, Q8};
        let f32 = ProductPrecision::F32;
        let usual =
            Sampler { samples_here: true, packs: true, products: f32, weights: F32, base: F32 };
        let in_bf16 = Sampler { products: ProductPrecision::Bf16, ..usual };
        let in_f16 = Sampler { products: ProductPrecision::F16, ..usual };
        let rounded = Sampler { weights: Bf16, ..usual };
        let unpacked = |of: Sampler| Sampler { packs: false, ..of };
        for (sampler, head, expected) in [
            (usual, Own, 90.0),
            (usual, Tied, 90.0),
            (usual, None, 80.0),
            (unpacked(usual), Tied, 0.0),
            (Sampler { base: Q8, ..usual }, Own, 10.0),
            (in_bf16, Own, 50.0),
            (in_bf16, Tied, 50.0),
            (unpacked(in_bf16), Own, 40.0),
            (in_f16, Own, 170.0),
            (unpacked(in_f16), Tied, 80.0),
            (rounded, Tied, 50.0),
            (unpacked(rounded), Own, 40.0),
            (Sampler { samples_here: false, packs: false, ..in_bf16 }, Own, 0.0),
        ] {
            let all = if head == Own { 100.0 } else { 90.0 };
            assert_eq!(sampler.copies(head, all, 10.0).0, expected, "{head:?}");
        }
    }

    #[test]
    fn what_cannot_fit_is_refused_with_its_largest_part() {
        assert!(plan().refuse_above(16_000_000_000).is_ok());
        assert_eq!(
            plan().refuse_above(15_000_000_000).unwrap_err().to_string(),
            "training needs about 16 GB of memory, but only 15 GB is available; most of it is for activations (8.0 GB): lower train.micro_batch_tokens, or start anyway with --set preflight.ignore_memory=true"
        );
    }
}

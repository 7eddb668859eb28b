//! Tests what the engine passes to the policy, using a model that records its inputs.

use std::sync::{Arc, Mutex};

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_data::{Group, Prompt, SampleKey};
use grpo_logprob::Head;
use grpo_model::{
    CacheSlot, Dropout, Frozen, KvCache, LanguageModel, TokenBatch, Transformer, WeightPrecision,
};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StopRule};
use serde_json::json;

use crate::support::{
    KEY, VOCABULARY, completions, distribution, forbidding, in_pool, other, prompt, shaken,
};

/// Input of one forward pass.
#[derive(Clone, Debug, Default)]
struct Pass {
    /// Number of tokens that continue a completion.
    completions: usize,
    /// Number of tokens in each prompt.
    prompts: Vec<usize>,
    /// Number of cache pages after the pass.
    pages: usize,
}

/// A model that records each pass.
#[derive(Module, Debug)]
struct Watched {
    model: Transformer,
    #[module(skip)]
    passes: Arc<Mutex<Vec<Pass>>>,
}

impl Watched {
    fn new(context: usize) -> Self {
        let config = other(json!({
            "vocab_size": VOCABULARY, "block_size": context, "n_layer": 1, "n_head": 1, "n_embd": 8,
        }));
        let model = shaken(config, 2.0, 0.4, WeightPrecision::F32);
        Self { model, passes: Arc::default() }
    }
}

impl LanguageModel for Watched {
    fn hidden(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2> {
        self.model.hidden(tokens, dropout)
    }

    fn extend(&self, tokens: &TokenBatch, cache: &mut KvCache, slots: &[CacheSlot]) -> Tensor<2> {
        let mut pass = Pass::default();
        for (i, &slot) in slots.iter().enumerate() {
            match (cache.length(slot), tokens.rows(i).len()) {
                (0, length) => pass.prompts.push(length),
                (_, length) => pass.completions += length,
            }
        }
        let hidden = self.model.extend(tokens, cache, slots);
        pass.pages = cache.pages();
        self.passes.lock().unwrap().push(pass);
        hidden
    }

    fn head(&self) -> Head {
        self.model.head()
    }

    fn vocabulary_size(&self) -> usize {
        self.model.vocabulary_size()
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }
}

/// Creates `count` different prompts of `length` tokens.
fn prompts_of(count: u32, length: u32) -> Vec<Prompt> {
    let id = |index: u32, t: u32| (index * 5 + t * t + 1) % VOCABULARY as u32;
    (0..count)
        .map(|index| prompt(index, &(0..length).map(|t| id(index, t)).collect::<Vec<u32>>()))
        .collect()
}

/// Creates settings in which completions only end at the length limit.
fn endless(group_size: usize, max_new_tokens: usize, batch_size: usize) -> RolloutSettings {
    let distribution = distribution(&forbidding(&[]));
    RolloutSettings { group_size, max_new_tokens, end_ids: vec![], distribution, batch_size }
}

/// Samples with one thread, and therefore one engine. Also returns the recorded passes.
fn watch(settings: RolloutSettings, prompts: &[Prompt], context: usize) -> (Vec<Group>, Vec<Pass>) {
    watch_by(settings, prompts, context, |rollout| rollout)
}

fn watch_by(
    settings: RolloutSettings,
    prompts: &[Prompt],
    context: usize,
    with: impl FnOnce(Autoregressive) -> Autoregressive + Send,
) -> (Vec<Group>, Vec<Pass>) {
    let model = Watched::new(context);
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap();
    let rollout = with(Autoregressive::new(settings, &model, longest).unwrap());
    let frozen = Frozen::snapshot(&model);
    let groups = in_pool(1, || rollout.sample(&frozen, prompts, KEY)).unwrap();
    let passes = model.passes.lock().unwrap().clone();
    (groups, passes)
}

/// "Shared prompts of 200 tokens with k = 8: prefill cost of one", measured in tokens passed to the
/// model.
#[test]
fn a_prompt_is_read_once_for_its_group() {
    let prompts = prompts_of(4, 200);
    for batch_size in [1, 3, 7, 64] {
        let (groups, passes) = watch(endless(8, 5, batch_size), &prompts, 256);
        let read: Vec<usize> = passes.iter().flat_map(|pass| pass.prompts.clone()).collect();
        assert_eq!(read, [200; 4], "batches of {batch_size}");
        // The last token of a completion is sampled but never passed to the model.
        let tokens: usize = passes.iter().map(|pass| pass.completions).sum();
        assert_eq!(tokens, completions(&groups).count() * 4, "batches of {batch_size}");
    }
    // With one token per completion, only prompts are passed to the model.
    let (_, passes) = watch(endless(8, 1, 64), &prompts, 256);
    assert_eq!(passes.len(), 1);
    assert_eq!((passes[0].prompts.len(), passes[0].completions), (4, 0));
}

/// When a completion ends, the next one starts immediately. The number of passes is therefore the
/// minimum possible.
#[test]
fn passes_are_full_while_anything_waits() {
    struct Ragged;
    impl StopRule for Ragged {
        fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
            completion.len() as u32 == 2 + (key.sample * 7 + key.prompt) % 9
        }
    }
    let prompts = prompts_of(6, 3);
    for batch_size in [1, 2, 5, 16] {
        let (groups, passes) =
            watch_by(endless(9, 12, batch_size), &prompts, 32, |rollout| rollout.stopping(Ragged));
        for (group, prompt) in groups.iter().zip(&prompts) {
            assert_eq!(&group.prompt, prompt);
            for (completion, sample) in group.completions().zip(0..) {
                let key = completion.key();
                assert_eq!((key.prompt, key.sample), (prompt.index, sample));
                assert_eq!(completion.actions() as u32, 2 + (sample * 7 + prompt.index) % 9);
            }
            assert_eq!(group.samples.len(), 9);
        }
        assert!(passes.iter().all(|pass| pass.completions <= batch_size));
        // A prompt is prefilled only when at least one completion of its group can start.
        for pass in passes.iter().filter(|pass| !pass.prompts.is_empty()) {
            assert!(pass.completions + 9 * (pass.prompts.len() - 1) < batch_size, "{pass:?}");
        }
        // Passes must be full from the first one with completions to the one that prefills the last
        // prompt. A pass with a prompt may be smaller, because its completions start later.
        let last = passes.iter().rposition(|pass| !pass.prompts.is_empty()).unwrap();
        let short = |pass: &&Pass| pass.completions < batch_size && pass.prompts.is_empty();
        assert_eq!(passes[..last].iter().filter(short).count(), 0, "{passes:?}");
    }
}

/// A pass contains at most 4,096 prompt tokens, and the longest prompts come first.
#[test]
fn prompts_are_read_in_passes_of_bounded_size() {
    let mut prompts = prompts_of(70, 100);
    prompts[40] = prompt(40, &vec![3; 150]);
    prompts[69] = prompt(69, &[3, 1]);
    let (groups, passes) = watch(endless(1, 2, 128), &prompts, 256);
    let read: Vec<Vec<usize>> =
        passes.iter().map(|pass| pass.prompts.clone()).filter(|read| !read.is_empty()).collect();
    // 150 + 39 · 100 ≤ 4096, but another prompt would exceed the limit.
    assert_eq!(read[0].len(), 40);
    assert_eq!(read[0][0], 150);
    assert_eq!(read[1].len(), 30);
    assert_eq!(*read[1].last().unwrap(), 2);
    assert_eq!(read.len(), 2);
    let order: Vec<u32> = groups.iter().map(|group| group.prompt.index).collect();
    assert!(order.is_sorted() && order.len() == 70);
    for completion in completions(&groups) {
        let alone = std::slice::from_ref(&prompts[completion.key().prompt as usize]);
        let (alone, _) = watch(endless(1, 2, 1), alone, 256);
        assert_eq!(completion, &alone[0].samples[0].completion);
    }
}

#[test]
fn a_pass_of_prompts_can_be_filled_to_its_last_token() {
    let of = |lengths: &[usize]| {
        let prompts: Vec<Prompt> =
            lengths.iter().zip(0..).map(|(&n, index)| prompt(index, &vec![2; n])).collect();
        let (_, passes) = watch(endless(1, 1, 8), &prompts, 2100);
        passes.iter().map(|pass| pass.prompts.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(&[2048, 2047, 1]), [[2048, 2047, 1]]);
    assert_eq!(of(&[2048, 2047, 2]), [[2048, 2047].as_slice(), &[2]]);
}

/// Multiple engines share the batch size.
#[test]
fn engines_share_the_capacity_of_a_batch() {
    for (threads, batch_size, most) in
        [(1, 64, 64), (2, 64, 32), (3, 64, 22), (3, 17, 9), (3, 15, 15)]
    {
        let model = Watched::new(16);
        let rollout = Autoregressive::new(endless(8, 6, batch_size), &model, 2).unwrap();
        let frozen = Frozen::snapshot(&model);
        let prompts = prompts_of(40, 2);
        let groups = in_pool(threads, || rollout.sample(&frozen, &prompts, KEY)).unwrap();
        assert_eq!(completions(&groups).count(), 320);
        let passes = model.passes.lock().unwrap();
        let found = passes.iter().map(|pass| pass.completions).max().unwrap();
        assert_eq!(found, most, "{threads} threads, batches of {batch_size}");
    }
}

/// Work is distributed between engines even if a single batch can hold all completions.
#[test]
fn engines_share_what_there_is_to_sample() {
    for (count, group_size, most) in [(4, 8, 8), (2, 32, 32), (1, 32, 32)] {
        let model = Watched::new(16);
        let rollout = Autoregressive::new(endless(group_size, 6, 256), &model, 2).unwrap();
        let frozen = Frozen::snapshot(&model);
        let prompts = prompts_of(count, 2);
        let groups = in_pool(4, || rollout.sample(&frozen, &prompts, KEY)).unwrap();
        let passes = model.passes.lock().unwrap().clone();
        let found = passes.iter().map(|pass| pass.completions).max().unwrap();
        assert_eq!(found, most, "{count} groups of {group_size}");
        let (alone, _) = watch(endless(group_size, 6, 256), &prompts, 16);
        assert_eq!(groups, alone);
    }
}

#[test]
fn a_prompt_of_more_than_a_pass_is_read_alone() {
    let mut prompts = prompts_of(3, 20);
    prompts[1] = prompt(1, &(0..4100).map(|t| t * t % 11).collect::<Vec<u32>>());
    let (together, passes) = watch(endless(2, 3, 64), &prompts, 4128);
    let read: Vec<&[usize]> = passes.iter().map(|pass| pass.prompts.as_slice()).collect();
    assert_eq!(read[..2], [[4100].as_slice(), &[20, 20]]);
    let (alone, _) = watch(endless(2, 3, 1), &prompts, 4128);
    assert_eq!(together, alone);
}

/// The number of pages depends on concurrent completions, not on the total number.
#[test]
fn memory_does_not_grow_with_what_was_sampled() {
    for (max_new_tokens, batch_size) in [(6, 2), (1, 2), (1, 1), (14, 3)] {
        let most = |prompts: u32| {
            let (groups, passes) =
                watch(endless(4, max_new_tokens, batch_size), &prompts_of(prompts, 20), 64);
            assert_eq!(completions(&groups).count(), 4 * prompts as usize);
            passes.iter().map(|pass| pass.pages).max().unwrap()
        };
        let pages = most(60);
        // Every completion and every waiting prompt has at most three pages. There are at most as
        // many waiting prompts as running completions, plus the one being prefilled.
        assert!(pages <= 3 * (2 * batch_size + 1), "{max_new_tokens} in {batch_size}: {pages}");
        assert_eq!(pages, most(8), "{max_new_tokens} tokens in batches of {batch_size}");
    }
}

/// Prompts with the same index use the same random numbers. If they are also equal, their groups
/// are identical.
#[test]
fn the_index_of_a_prompt_is_no_place() {
    let ids: [&[u32]; 4] = [&[1, 2, 3, 4], &[5, 6], &[1, 2, 3, 4], &[5, 6]];
    let prompts: Vec<Prompt> =
        ids.iter().zip([4, 4, 4, 9]).map(|(ids, index)| prompt(index, ids)).collect();
    let (groups, passes) = watch(endless(5, 6, 7), &prompts, 16);
    assert_eq!(passes.iter().map(|pass| pass.prompts.len()).sum::<usize>(), 4);
    assert_eq!(groups[0], groups[2]);
    assert_ne!(groups[1].samples, groups[3].samples);
    for (group, prompt) in groups.iter().zip(&prompts) {
        let (alone, _) = watch(endless(5, 6, 1), std::slice::from_ref(prompt), 16);
        assert_eq!(group, &alone[0]);
    }
}

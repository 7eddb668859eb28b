//! Criterion benchmarks for the parts of a training step: rewards, a text encoder, shared prompts,
//! and completions of different lengths.
//!
//! Some of these take minutes. Use `-- FILTER` to select a subset.

use std::path::Path;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use grpo_bench::models::{Model, Size};
use grpo_bench::work::{Repetition, Shape, Work, grpo_config, rollout, sampling, timed_sampling};
use grpo_data::{
    Completion, CompletionParts, CounterRng, Finish, Group, Outcome, Prompt, Purpose, SampleKey,
    SampledUnder, Scored,
};
use grpo_model::ProductPrecision::F32;
use grpo_model::{Frozen, ModelConfig, SentenceEncoder, TokenBatch, Transformer};
use grpo_molecules::{MoleculeReader, Molecules, ReadOptions};
use grpo_replies::{Replies, read_pairs};
use grpo_rewards::{RewardInput, RewardRegistry, RewardRunner};
use grpo_rollout::StopRule;
use grpo_task::task::Task;
use grpo_train::Learner;
use rayon::prelude::*;
use serde_json::{Value, json};

/// The same allocator as in `grpo`.
#[global_allocator]
static ALLOCATOR: grpo_runtime::Allocator = grpo_runtime::Allocator;

const fn small(context: usize) -> Model {
    Model { size: Size::Small, context }
}

/// Measures work that reports its own duration, per unit of work.
fn bench(
    criterion: &mut Criterion,
    group: &str,
    name: &str,
    prepare: impl Fn() -> anyhow::Result<Work>,
) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).throughput(Throughput::Elements(1));
    // Only create the work if it is selected by the filter.
    let mut built: Option<Work> = None;
    group.bench_function(name, |bencher| {
        let work = built.get_or_insert_with(|| prepare().expect("it can be built"));
        let mut one = || {
            let Repetition { seconds, work, .. } = work().expect("it can be measured");
            Duration::from_secs_f64(seconds / work)
        };
        bencher.iter_custom(|times| (0..times).map(|_| one()).sum());
    });
    group.finish();
}

fn functions(c: &mut Criterion) {
    bench(c, "rewards", "molecules", molecules);
    bench(c, "rewards", "replies", replies);
    bench(c, "rewards", "python", python);
    bench(c, "encoder", "texts", || encoder(256, 24));
    for (name, group) in [("alone", 1), ("shared", 8)] {
        // Sampling a single token measures the prefill of a prompt with 200 tokens.
        let shape = Shape { prompts: 4, prompt_tokens: 200, group, tokens: 1 };
        bench(c, "prefill", name, move || sampling(small(256), shape, F32));
    }
    for lengths in [Lengths::Equal, Lengths::Ragged] {
        let name = format!("{lengths:?}").to_lowercase();
        bench(c, "sampling", &name, move || sampling_of(lengths));
        bench(c, "learning", &name, move || learning_of(lengths));
    }
}

/// Scores molecules from the bundled data set.
fn molecules() -> anyhow::Result<Work> {
    rewards(molecule_samples()?, json!({"type": "molecule", "qed": 0.7, "sa": 0.3}))
}

fn molecule_samples() -> anyhow::Result<Vec<RewardInput>> {
    let reader =
        MoleculeReader::open(&data("molecules/molecules.smi.gz"), &ReadOptions::default())?;
    let samples = reader.map(|record| record.map(|record| record.smiles.as_str().into()));
    Ok(samples.collect::<Result<_, _>>()?)
}

/// Scores bundled replies with the heuristic reward, without an embedding model.
fn replies() -> anyhow::Result<Work> {
    let pairs = read_pairs(&data("replies/replies.jsonl"))?.pairs.into_iter();
    let samples = pairs.map(|pair| RewardInput {
        text: pair.reply,
        fields: [("tweet".to_owned(), Value::from(pair.tweet))].into_iter().collect(),
        ..RewardInput::default()
    });
    rewards(samples.collect(), json!({"type": "heuristic", "embedder": {"type": "hashed_ngrams"}}))
}

/// Scores molecules with a Python function that does nothing, one request per batch.
fn python() -> anyhow::Result<Work> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/zero_reward.py");
    let reward = json!({"type": "python", "file": file, "batch_size": 256});
    rewards(molecule_samples()?, reward)
}

/// Scores eight batches of 256 completions on a separate thread, as in training.
fn rewards(samples: Vec<RewardInput>, reward: Value) -> anyhow::Result<Work> {
    const BATCH: usize = 256;
    const BATCHES: usize = 8;
    let kinds = Molecules.rewards().into_iter().chain(Replies.rewards());
    let registry = RewardRegistry::default().with(kinds);
    let reward = registry.parse(serde_json::from_value(reward)?)?;
    let runner = RewardRunner::new(reward.build(&Device::flex())?, Duration::from_secs(600));
    let mut next = 0;
    Ok(Box::new(move || {
        let of_batch = |batch: usize| {
            samples.iter().cycle().skip(next + batch * BATCH).take(BATCH).cloned().collect()
        };
        let batches: Vec<Vec<RewardInput>> = (0..BATCHES).map(of_batch).collect();
        next = (next + BATCH * BATCHES) % samples.len();
        let started = Instant::now();
        let outcomes: Vec<Outcome> =
            batches.into_iter().flat_map(|batch| runner.score(batch)).collect();
        let repetition = Repetition::since(started, outcomes.len() as f64, None);
        match outcomes.iter().find_map(|outcome| outcome.failure()) {
            None => Ok(repetition),
            Some(reason) => anyhow::bail!("a reward failed: {reason}"),
        }
    }))
}

/// Returns the path of a bundled data file.
fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

/// Embeds texts with a random encoder that has the size of all-MiniLM-L6-v2. Texts are encoded
/// individually on all threads, as they are for a reward.
fn encoder(texts: usize, tokens: usize) -> anyhow::Result<Work> {
    const VOCABULARY: usize = 30_522;
    let config = json!({
        "model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 384,
        "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
        "max_position_embeddings": 512,
    });
    let config = ModelConfig::from_json(&config.to_string()).map_err(anyhow::Error::msg)?;
    let encoder = SentenceEncoder::new(Transformer::random(&config, 1, &Device::flex())?)?;
    let id = |text: usize, place: usize| ((text * 7919 + place * 104_729) % VOCABULARY) as u32;
    let text = |text: usize| -> Vec<u32> { (0..tokens).map(|place| id(text, place)).collect() };
    let texts: Vec<Vec<u32>> = (0..texts).map(text).collect();
    Ok(Box::new(move || {
        let started = Instant::now();
        let vector =
            |text: &Vec<u32>| encoder.unit(&TokenBatch::from_iter([text.as_slice()])).into_data();
        let vectors: Vec<_> = texts.par_iter().map(vector).collect();
        Ok(Repetition::since(started, vectors.len() as f64, None))
    }))
}

/// Distribution of completion lengths.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// Uniformly distributed between 8 and 256.
    Ragged,
    /// The same total length, distributed equally.
    Equal,
}

const LONGEST: usize = 256;

impl Lengths {
    fn of(self, completions: usize) -> Vec<usize> {
        let rng = CounterRng::new(3, Purpose::EVALUATION);
        let drawn = |i: usize| 8 + rng.below([i as u32, 0, 0, 0], 249) as usize;
        let ragged: Vec<usize> = (0..completions).map(drawn).collect();
        let total: usize = ragged.iter().sum();
        let equal = |i: usize| total / completions + usize::from(i < total % completions);
        match self {
            Self::Ragged => ragged,
            Self::Equal => (0..completions).map(equal).collect(),
        }
    }
}

/// Ends each completion at a fixed length.
struct OfLengths(Vec<usize>);

impl StopRule for OfLengths {
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
        completion.len() == self.0[8 * key.prompt as usize + key.sample as usize]
    }
}

/// Samples 128 completions in groups of 8, with a batch size of 64.
fn sampling_of(lengths: Lengths) -> anyhow::Result<Work> {
    let (lengths, shape) = (lengths.of(128), Shape::groups(16, LONGEST));
    let (policy, tokens) = (small(LONGEST).build()?, lengths.iter().sum());
    let rollout = rollout(&policy, shape, 64)?.stopping(OfLengths(lengths));
    Ok(timed_sampling(&policy, rollout, shape.prompts(small(LONGEST)), tokens, 0.0))
}

/// Runs `Learner::learn` on 8 groups of 8 random completions. Rewards alternate between 0 and 1.
fn learning_of(lengths: Lengths) -> anyhow::Result<Work> {
    let (model, shape) = (small(LONGEST), Shape::groups(8, LONGEST));
    let policy = model.build()?;
    let reference = Frozen::snapshot(&policy);
    let mut config = grpo_config(shape, F32)?;
    // The log-probabilities were not computed by a sampler, so disable this check.
    config.sampler_check.tolerance = f64::MAX;
    let lengths = lengths.of(shape.completions());
    let groups = shape.prompts(model).into_iter().zip(lengths.chunks(shape.group));
    let mut groups: Vec<Group> =
        groups.map(|(prompt, lengths)| group_of(model, prompt, lengths)).collect();
    let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
    for (sample, reward) in samples.zip([0.0, 1.0].into_iter().cycle()) {
        sample.outcome = Some(Outcome::Scored(Scored::new(vec![(1.0, reward)], vec![])));
    }
    let tokens = lengths.iter().sum::<usize>() as f64;
    let mut learner = Learner::new(policy, reference, &config)?;
    Ok(Box::new(move || {
        let started = Instant::now();
        learner.learn(&mut groups, 1e-6)?;
        Ok(Repetition::since(started, tokens, None))
    }))
}

fn group_of(model: Model, prompt: Prompt, lengths: &[usize]) -> Group {
    let rng = CounterRng::new(4, Purpose::EVALUATION);
    let vocabulary = model.size.vocabulary();
    let completion = |(sample, &length): (usize, &usize)| {
        let sample = sample as u32;
        let id = |t: usize| rng.below([t as u32, sample, prompt.index, 0], vocabulary as u64);
        let ids = prompt.ids.iter().copied().chain((0..length).map(|t| id(t) as u32)).collect();
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids,
            action_mask: (0..prompt.ids.len() + length).map(|t| t >= prompt.ids.len()).collect(),
            sampling_logprobs: Some(vec![-(vocabulary as f32).ln(); length]),
            finish: Finish::Length,
            key: SampleKey { seed: 4, step: 0, prompt: prompt.index, sample },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let completions: Vec<Completion> = lengths.iter().enumerate().map(completion).collect();
    Group::new(prompt, completions)
}

criterion_group!(benches, functions);
criterion_main!(benches);

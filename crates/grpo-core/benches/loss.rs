//! Benchmarks for advantages and for the forward and backward passes of the loss, at the size of a
//! large step. Scoring of logits is covered by the grpo-logprob benchmarks.
//!
//! Prints a table of peak memory allocations, followed by the Criterion results.

use std::hint::black_box;

use burn::tensor::{Device, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use grpo_core::{
    AdvantageConfig, Aggregation, BatchTotals, LossInputs, LossTerms, Preset, TokenStatistics,
    grpo_loss, weighted_group_advantages,
};
use mimalloc::MiMalloc;
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: &PeakMemAlloc<MiMalloc> = {
    static COUNTING: PeakMemAlloc<MiMalloc> = PeakMemAlloc::new(MiMalloc);
    &COUNTING
};

const GROUPS: usize = 1024;
const GROUP_SIZE: usize = 16;
const FUNCTIONS: usize = 3;
const ROWS: usize = 256;
const TOKENS: usize = 1024;

/// Returns a deterministic pseudo-random number between −1 and 1.
fn number(i: usize) -> f64 {
    ((i * 7919) % 1013) as f64 / 506.0 - 1.0
}

fn numbers(count: usize, scale: f64, shift: f64) -> Vec<f64> {
    (0..count).map(|i| number(i + count) * scale + shift).collect()
}

struct Rewards(Vec<Vec<Vec<Option<f64>>>>);

impl Rewards {
    fn new() -> Self {
        let scores = |i: usize| (0..FUNCTIONS).map(|k| Some(number(i * FUNCTIONS + k))).collect();
        let group = |g: usize| (0..GROUP_SIZE).map(|i| scores(g * GROUP_SIZE + i)).collect();
        Self((0..GROUPS).map(group).collect())
    }

    fn run(&self, aggregation: Aggregation) {
        let config = AdvantageConfig { aggregation, ..AdvantageConfig::default() };
        black_box(weighted_group_advantages(&self.0, &[0.5, 0.3, 0.2], &config)).expect("finite");
    }
}

/// Inputs for an update after the first, with a reference model, so that every loss term is
/// computed.
struct Step {
    logprobs: Vec<f64>,
    old: Vec<f64>,
    advantages: Vec<f64>,
    rows: Vec<usize>,
}

impl Step {
    fn new() -> Self {
        let length = |b: usize| TOKENS / 2 + b;
        let rows: Vec<usize> = (0..ROWS).flat_map(|b| vec![b; length(b)]).collect();
        let logprobs = numbers(rows.len(), 1.0, -2.0);
        let old = logprobs.iter().enumerate().map(|(i, l)| l + 0.3 * number(i + 5)).collect();
        Self { logprobs, old, advantages: numbers(ROWS, 1.5, 0.0), rows }
    }

    fn loss(&self, preset: Preset) -> LossTerms {
        let device = Device::flex().autodiff();
        let values: Vec<f32> = self.logprobs.iter().map(|&value| value as f32).collect();
        let logprobs = Tensor::<1>::from_data(&values[..], &device).require_grad();
        let tokens = self.rows.len();
        let inputs = LossInputs {
            old_logprobs: Some(&self.old),
            ref_logprobs: Some(&self.old),
            sampling_logprobs: Some(&self.old),
            ..LossInputs::on_policy(logprobs.clone(), &self.rows, &self.advantages)
        };
        let mut config = preset.config();
        config.kl.coef = 0.05;
        let totals = BatchTotals {
            sequences: ROWS,
            tokens,
            max_completion_length: TOKENS,
            high_entropy: None,
        };
        let output = grpo_loss(&inputs, &config, &totals);
        black_box(logprobs.grad(&output.loss.backward()));
        output.terms
    }
}

fn statistics(terms: &LossTerms) {
    let mut statistics = TokenStatistics::default();
    statistics.add(terms);
    black_box(statistics.metrics());
}

/// Calls `visit` with the name and closure of each operation.
fn each(mut visit: impl FnMut(&str, &dyn Fn())) {
    let (rewards, step) = (Rewards::new(), Step::new());
    let name = format!("advantages of {GROUPS} groups of {GROUP_SIZE}, {FUNCTIONS} functions");
    visit(&format!("{name}, sum then normalize"), &|| rewards.run(Aggregation::SumThenNormalize));
    visit(&format!("{name}, normalize then sum"), &|| rewards.run(Aggregation::NormalizeThenSum));
    for preset in Preset::ALL {
        let name = format!("loss and gradient of {ROWS} × {TOKENS} tokens, {preset}");
        visit(&name, &|| drop(step.loss(preset)));
    }
    let terms = step.loss(Preset::Grpo);
    visit(&format!("statistics of {ROWS} × {TOKENS} tokens"), &|| statistics(&terms));
}

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]
fn table(_: &mut Criterion) {
    println!("peak, MB");
    each(|name, run| {
        ALLOCATOR.reset_peak_memory();
        run();
        println!("{:>8.1}  {name}", ALLOCATOR.get_peak_memory() as f64 / 1e6);
    });
}

fn times(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    group.sample_size(20);
    each(|name, run| {
        group.bench_function(name, |bencher| bencher.iter(run));
    });
    group.finish();
}

criterion_group!(benches, table, times);
criterion_main!(benches);

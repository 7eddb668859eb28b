//! Benchmarks `score`, which works on hidden states, against scoring from logits. Runs the forward
//! and backward passes for 2,048 tokens, with a frozen head (LoRA) and a trainable head.
//!
//! First prints a table with the median times of interleaved runs and the peak memory allocations,
//! excluding the gradient of the head. The Criterion results follow.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{BenchmarkId, Criterion, SamplingMode, criterion_group, criterion_main};
use grpo_logprob::{Head, Scores, Targets, score, score_logits};
use mimalloc::MiMalloc;
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: &PeakMemAlloc<MiMalloc> = {
    static COUNTING: PeakMemAlloc<MiMalloc> = PeakMemAlloc::new(MiMalloc);
    &COUNTING
};

const TOKENS: usize = 2048;
/// Vocabulary size and width, similar to the bundled molecule model, Llama 2 and Qwen 3 (0.6 B).
const SIZES: [(usize, usize); 3] = [(100, 128), (32_000, 1024), (151_936, 1024)];

struct Case {
    hidden: Tensor<2>,
    weight: Tensor<2>,
    targets: Targets,
    upstream: Tensor<1>,
    trained: bool,
}

impl Case {
    fn new((vocabulary, width): (usize, usize), trained: bool) -> Self {
        let device = Device::flex().autodiff();
        let tensor = |shape: [usize; 2], scale: f32| {
            let values = (0..shape[0] * shape[1]).map(|i| ((i * 7919) % 1013) as f32 / 506.0 - 1.0);
            let values: Vec<f32> = values.map(|value| value * scale).collect();
            Tensor::<2>::from_data(TensorData::new(values, shape), &device)
        };
        let weight = tensor([width, vocabulary], 0.05);
        let ids = (0..TOKENS).map(|i| ((i * 7919) % vocabulary) as u32).collect();
        Self {
            hidden: tensor([TOKENS, width], 1.0).require_grad(),
            weight: if trained { weight.require_grad() } else { weight },
            targets: Targets::new(ids, vocabulary),
            upstream: tensor([1, TOKENS], 1.0).squeeze_dim(0),
            trained,
        }
    }

    fn run(&self, fused: bool) {
        let head = Head::new(self.weight.clone());
        let Scores { logprobs, entropies } = if fused {
            score(self.hidden.clone(), &head, &self.targets)
        } else {
            score_logits(head.logits(self.hidden.clone()), &self.targets)
        };
        // Read the entropies, as is done for metrics.
        black_box(entropies.into_data());
        let gradients = (logprobs * self.upstream.clone()).sum().backward();
        black_box(self.hidden.grad(&gradients));
        black_box(self.weight.grad(&gradients));
    }

    /// Returns the elapsed time and the peak memory increase in bytes.
    fn measure(&self, fused: bool) -> (Duration, f64) {
        ALLOCATOR.reset_peak_memory();
        let start = Instant::now();
        self.run(fused);
        let time = start.elapsed();
        let gradient = if self.trained { 4 * self.weight.shape().num_elements() } else { 0 };
        (time, ALLOCATOR.get_peak_memory() as f64 - gradient as f64)
    }
}

fn name(trained: bool) -> &'static str {
    if trained { "trained head" } else { "frozen head" }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]
fn table(_: &mut Criterion) {
    const ROUNDS: usize = 5;
    println!("vocabulary  head          path    time, ms  peak, MB  time and peak, fused / logits");
    for size in SIZES {
        for trained in [false, true] {
            let case = Case::new(size, trained);
            let mut measured = [vec![], vec![]];
            for _ in 0..ROUNDS {
                for (path, fused) in [true, false].into_iter().enumerate() {
                    measured[path].push(case.measure(fused));
                }
            }
            let medians = measured.map(|mut runs| {
                runs.sort_by_key(|run| run.0);
                let peak = runs.iter().map(|run| run.1).fold(0.0, f64::max);
                (runs[ROUNDS / 2].0.as_secs_f64() * 1e3, peak / 1e6)
            });
            let [(time, peak), (logits_time, logits_peak)] = medians;
            let head = name(trained);
            println!(
                "{:>10}  {head:<12}  fused  {time:>9.1} {peak:>9.1}  {:.2} and {:.3}",
                size.0,
                time / logits_time,
                peak / logits_peak
            );
            println!("{:>10}  {head:<12}  logits {logits_time:>9.1} {logits_peak:>9.1}", size.0);
        }
    }
}

fn paths(criterion: &mut Criterion) {
    for size in SIZES {
        for trained in [false, true] {
            let case = Case::new(size, trained);
            let mut group = criterion.benchmark_group(format!("score, {}", name(trained)));
            group.sample_size(10).sampling_mode(SamplingMode::Flat);
            group.warm_up_time(Duration::from_millis(1));
            for (path, fused) in [("fused", true), ("logits", false)] {
                let id = BenchmarkId::new(path, size.0);
                group.bench_function(id, |bencher| bencher.iter(|| case.run(fused)));
            }
            group.finish();
        }
    }
}

criterion_group!(benches, table, paths);
criterion_main!(benches);

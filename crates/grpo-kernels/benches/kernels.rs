//! Fused operations against their plain versions, forward and backward, at the shapes of the bundled model
//! (64 sequences of 48 tokens, 4 heads, width 128).

use std::hint::black_box;

use burn::tensor::{Device, Tensor, TensorData};
use criterion::{Criterion, criterion_group, criterion_main};
use grpo_kernels::{causal_softmax, gelu, layer_norm, plain};

const ROWS: usize = 64 * 48;

fn input<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1000) as f32 * 0.004 - 2.0).collect();
    let device = Device::flex().autodiff();
    Tensor::<D>::from_data(TensorData::new(values, shape), &device).require_grad()
}

fn step<const D: usize>(x: &Tensor<D>, operation: impl Fn(Tensor<D>) -> Tensor<D>) {
    let gradients = operation(x.clone()).sum().backward();
    black_box(x.grad(&gradients));
}

fn compare(criterion: &mut Criterion) {
    let wide = input([ROWS, 512]);
    let mut group = criterion.benchmark_group("gelu");
    group.bench_function("fused", |b| b.iter(|| step(&wide, gelu)));
    group.bench_function("plain", |b| b.iter(|| step(&wide, plain::gelu)));
    group.finish();

    let scores = input([64, 4, 48, 48]);
    let mut group = criterion.benchmark_group("causal_softmax");
    group.bench_function("fused", |b| b.iter(|| step(&scores, |x| causal_softmax(x, 0.18))));
    group.bench_function("plain", |b| b.iter(|| step(&scores, |x| plain::causal_softmax(x, 0.18))));
    group.finish();

    let (rows, gamma, beta) = (input([ROWS, 128]), input([128]), input([128]));
    let norm = |x| layer_norm(x, gamma.clone(), beta.clone(), 1e-5);
    let plain_norm = |x| plain::layer_norm(x, gamma.clone(), beta.clone(), 1e-5);
    let mut group = criterion.benchmark_group("layer_norm");
    group.bench_function("fused", |b| b.iter(|| step(&rows, norm)));
    group.bench_function("plain", |b| b.iter(|| step(&rows, plain_norm)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = compare
}
criterion_main!(benches);

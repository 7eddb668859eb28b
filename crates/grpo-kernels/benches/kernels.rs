//! Compares the fused operations with their plain versions, forward and backward, using the shapes
//! of the bundled model (64 sequences of 48 tokens, 4 heads, width 128).

use std::hint::black_box;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use criterion::{Criterion, criterion_group, criterion_main};
use grpo_kernels::{
    AdamW, Heads, KvPages, PAGE, Packing, PagePlan, RotaryTables, Sequence, Visible, adamw_step,
    add, attention_softmax, batch_invariant_linear, gather_rows, gelu, gelu_tanh, indices,
    joint_attention, layer_norm, matmul, padded_attention, plain, rms_norm, rotary, squared_norm,
    swiglu,
};

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

    let mut group = criterion.benchmark_group("gelu_tanh");
    group.bench_function("fused", |b| b.iter(|| step(&wide, gelu_tanh)));
    group.bench_function("plain", |b| b.iter(|| step(&wide, plain::gelu_tanh)));
    group.finish();

    let up = input([ROWS, 512]);
    let mut group = criterion.benchmark_group("swiglu");
    group.bench_function("fused", |b| b.iter(|| step(&wide, |gate| swiglu(gate, up.clone()))));
    group.bench_function("plain", |b| {
        b.iter(|| step(&wide, |gate| plain::swiglu(gate, up.clone())))
    });
    group.finish();

    compare_attention(criterion);
    compare_shared_prompts(criterion);
    compare_pages(criterion);
    compare_linear(criterion);
    compare_products_and_sums(criterion);
    compare_gather(criterion);
    compare_optimizer(criterion);
    compare_softmax(criterion);
    compare_norms(criterion);
    compare_rotary(criterion);
}

fn compare_softmax(criterion: &mut Criterion) {
    let scores = input([64, 4, 48, 48]);
    let lengths: Vec<_> = (0..64).map(|row| row / 4..48).collect();
    for (name, visible) in [
        ("causal_softmax", Visible::causal()),
        ("padded_softmax", Visible::causal().within(lengths)),
        ("encoder_softmax", Visible::all()),
    ] {
        let fused = |x| attention_softmax(x, 0.18, &visible);
        let plain = |x| plain::attention_softmax(x, 0.18, &visible);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("fused", |b| b.iter(|| step(&scores, fused)));
        group.bench_function("plain", |b| b.iter(|| step(&scores, plain)));
        group.finish();
    }
}

fn compare_norms(criterion: &mut Criterion) {
    for [rows, features] in [[ROWS, 128], [512, 1024]] {
        let (x, gamma, beta) = (input([rows, features]), input([features]), input([features]));
        let norm = |x| layer_norm(x, gamma.clone(), beta.clone(), 1e-5);
        let plain_norm = |x| plain::layer_norm(x, gamma.clone(), beta.clone(), 1e-5);
        let mut group = criterion.benchmark_group(format!("layer_norm, {rows} × {features}"));
        group.bench_function("fused", |b| b.iter(|| step(&x, norm)));
        group.bench_function("plain", |b| b.iter(|| step(&x, plain_norm)));
        group.finish();

        let frozen = gamma.clone().detach();
        let mut group = criterion.benchmark_group(format!("rms_norm, {rows} × {features}"));
        group
            .bench_function("fused", |b| b.iter(|| step(&x, |x| rms_norm(x, gamma.clone(), 1e-5))));
        group.bench_function("fused, γ frozen", |b| {
            b.iter(|| step(&x, |x| rms_norm(x, frozen.clone(), 1e-5)))
        });
        group.bench_function("plain", |b| {
            b.iter(|| step(&x, |x| plain::rms_norm(x, gamma.clone(), 1e-5)))
        });
        group.finish();
    }
}

fn compare_rotary(criterion: &mut Criterion) {
    let (x, table) = (input([ROWS, 128]), || input([ROWS, 16]).inner());
    let tables = RotaryTables { cos: table(), sin: table() };
    let mut group = criterion.benchmark_group("rotary");
    group.bench_function("fused", |b| b.iter(|| step(&x, |x| rotary(x, &tables))));
    group.bench_function("plain", |b| b.iter(|| step(&x, |x| plain::rotary(x, &tables))));
    group.finish();
}

/// Sequences of equal length, with queries, keys and values in one matrix.
fn compare_attention(criterion: &mut Criterion) {
    for (sequences, length, heads, width) in [(64, 48, 4, 32), (16, 256, 8, 64), (1, 2048, 8, 64)] {
        let packing = Packing::of_lengths(vec![length; sequences], true);
        let heads = Heads { heads, kv_heads: heads, width };
        let (scale, columns) = ((width as f64).powf(-0.5), heads.query_columns());
        let inputs = input([sequences * length, 3 * columns]);
        let plain = |x: Tensor<2>| {
            let [query, keys, values] =
                [0, 1, 2].map(|part| x.clone().narrow(1, part * columns, columns));
            padded_attention(query, keys, values, heads, scale, &packing, |weights| weights)
        };
        let fused = |x: Tensor<2>| joint_attention(x, heads, scale, &packing);
        let name = format!("attention, {sequences} × {length}, {} × {width}", heads.heads);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("fused", |b| b.iter(|| step(&inputs, fused)));
        group.bench_function("plain", |b| b.iter(|| step(&inputs, plain)));
        let untracked = inputs.clone().inner();
        group.bench_function("fused forward", |b| b.iter(|| black_box(fused(untracked.clone()))));
        group.bench_function("plain forward", |b| b.iter(|| black_box(plain(untracked.clone()))));
        group.finish();
    }
}

/// Groups whose completions share one copy of the prompt, compared with a copy for each completion.
fn compare_shared_prompts(criterion: &mut Criterion) {
    for (groups, group, prompt, completion, heads, width) in
        [(8, 8, 32, 16, 4, 32), (2, 8, 512, 128, 8, 64)]
    {
        let heads = Heads { heads, kv_heads: heads, width };
        let mut sequences = Vec::new();
        let mut rows = 0;
        for _ in 0..groups {
            let first = sequences.len();
            sequences.push(Sequence { rows: rows..rows + prompt, behind: None });
            rows += prompt;
            for _ in 0..group {
                sequences.push(Sequence { rows: rows..rows + completion, behind: Some(first) });
                rows += completion;
            }
        }
        let shared = Packing::new(sequences, true);
        let repeated = Packing::of_lengths(vec![prompt + completion; groups * group], true);
        let name = format!("prompts, {groups} × {group} × ({prompt} + {completion})");
        let mut benches = criterion.benchmark_group(name);
        for (name, packing) in [("shared", shared), ("repeated", repeated)] {
            let inputs = input([packing.rows(), 3 * heads.query_columns()]);
            let scale = (width as f64).powf(-0.5);
            let attend = |x| joint_attention(x, heads, scale, &packing);
            benches.bench_function(name, |b| b.iter(|| step(&inputs, attend)));
        }
        benches.finish();
    }
}

/// One token for each of 64 sequences over 48 positions.
fn compare_pages(criterion: &mut Criterion) {
    let (rows, positions) = (64, 48);
    let heads = Heads { heads: 8, kv_heads: 8, width: 32 };
    let pages = positions / PAGE;
    let all: Vec<u32> = (0..).take(rows * pages).collect();
    let [mut write, mut read] = [(); 2].map(|()| PagePlan::new());
    for pages in all.chunks(pages) {
        write.push(pages, 0..positions);
        read.push(pages, positions - 1..positions);
    }
    let query = input([rows, heads.query_columns()]).inner();
    let of_all = || input([rows * positions, heads.key_columns()]).inner();
    let device = query.device();
    let mut group = criterion.benchmark_group(format!("pages, {rows} × {positions}, 8 × 32"));
    for (name, mut of) in
        [("fused", KvPages::new(heads, &device)), ("plain", KvPages::plain(heads, &device))]
    {
        of.grow_to(rows * pages);
        of.write(of_all(), of_all(), &write);
        group.bench_function(name, |b| b.iter(|| black_box(of.attend(query.clone(), &read, 0.18))));
    }
    group.finish();
}

/// Sampling steps for a single sequence and for many sequences.
fn compare_linear(criterion: &mut Criterion) {
    for [inner, columns] in [[256, 1024], [512, 2048]] {
        let weight = input([inner, columns]).inner();
        let bias = input([columns]).inner();
        for (name, weight) in [("f32", weight.clone()), ("bf16", weight.cast(FloatDType::BF16))] {
            for rows in [1, 16, 64] {
                let x = input([rows, inner]).inner();
                let run = |of: Linear| black_box(of(x.clone(), weight.clone(), Some(bias.clone())));
                let name = format!("linear, {rows} × {inner} × {columns}, {name}");
                let mut group = criterion.benchmark_group(name);
                group.bench_function("fused", |b| b.iter(|| run(batch_invariant_linear)));
                group.bench_function("plain", |b| b.iter(|| run(plain::batch_invariant_linear)));
                group.finish();
            }
        }
    }
}

type Linear = fn(Tensor<2>, Tensor<2>, Option<Tensor<1>>) -> Tensor<2>;

fn compare_products_and_sums(criterion: &mut Criterion) {
    let (x, weight) = (input([ROWS, 128]), input([128, 512]));
    let mut group = criterion.benchmark_group(format!("matmul, {ROWS} × 128 × 512"));
    group.bench_function("fused", |b| b.iter(|| step(&x, |x| matmul(x, weight.clone()))));
    group.bench_function("plain", |b| b.iter(|| step(&x, |x| plain::matmul(x, weight.clone()))));
    group.finish();

    let (wide, other) = (input([ROWS, 512]), input([ROWS, 512]));
    let mut group = criterion.benchmark_group(format!("add, {ROWS} × 512"));
    group.bench_function("fused", |b| b.iter(|| step(&wide, |x| add(x, other.clone()))));
    group.bench_function("plain", |b| b.iter(|| step(&wide, |x| plain::add(x, other.clone()))));
    group.finish();
}

/// The embedding table of the bundled model, a table for a larger vocabulary, and the selection of
/// relevant positions in a batch.
fn compare_gather(criterion: &mut Criterion) {
    for (rows, width, n) in [(40, 128, ROWS), (32_000, 512, 2048), (ROWS, 128, ROWS / 2)] {
        let table = input([rows, width]);
        let ids = indices((0..n).map(|i| i * 7919 % rows), &table.device());
        let mut group = criterion.benchmark_group(format!("gather_rows, {n} of {rows} × {width}"));
        group.bench_function("fused", |b| b.iter(|| step(&table, |x| gather_rows(x, ids.clone()))));
        group.bench_function("plain", |b| {
            b.iter(|| step(&table, |x| plain::gather_rows(x, ids.clone())))
        });
        group.finish();
    }
}

fn compare_optimizer(criterion: &mut Criterion) {
    let by = AdamW {
        learning_rate: 1e-3,
        betas: [0.9, 0.95],
        epsilon: 1e-8,
        weight_decay: 0.1,
        step: 3,
        gradient_scale: 0.5,
    };
    let tensor = || input([1024, 1024]).inner();
    let gradient = tensor();
    let mut group = criterion.benchmark_group("adamw, 2²⁰ numbers");
    for (name, operation) in
        [("fused", adamw_step as AdamWStep), ("plain", plain::adamw_step as AdamWStep)]
    {
        // Moved in and out, so that there are no other owners.
        let mut state = Some((tensor(), [tensor(), tensor().square()]));
        group.bench_function(name, |b| {
            b.iter(|| {
                let (parameter, moments) = state.take().unwrap();
                state = Some(operation(parameter, gradient.clone(), moments, &by));
            });
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("squared_norm, 2²⁰ numbers");
    group.bench_function("fused", |b| b.iter(|| squared_norm(gradient.clone())));
    group.bench_function("plain", |b| b.iter(|| plain::squared_norm(gradient.clone())));
    group.finish();
}

type AdamWStep = fn(Tensor<2>, Tensor<2>, [Tensor<2>; 2], &AdamW) -> (Tensor<2>, [Tensor<2>; 2]);

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = compare
}
criterion_main!(benches);

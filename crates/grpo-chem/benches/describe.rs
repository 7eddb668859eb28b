//! Measures molecules per second on a single core: `cargo bench -p grpo-chem`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use grpo_chem::genetic::{Size, crossover, mutate};
use grpo_chem::{Molecule, describe, qed_and_sa};

const MOLECULES: &str = include_str!("../tests/fixtures/molecules.smi");

fn benchmark(criterion: &mut Criterion) {
    let molecules: Vec<&str> =
        MOLECULES.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut group = criterion.benchmark_group("molecules");
    group.throughput(Throughput::Elements(molecules.len() as u64));
    let mut bench = |name: &str, run: fn(&str) -> bool| {
        group.bench_function(name, |bencher| {
            bencher.iter(|| molecules.iter().filter(|smiles| run(black_box(smiles))).count())
        });
    };
    bench("parse", |smiles| Molecule::parse(smiles).is_ok());
    bench("qed_and_sa", |smiles| qed_and_sa(smiles).is_ok());
    bench("describe", |smiles| describe(smiles).is_ok());
    group.finish();
}

/// Children of the drugs among the molecules. The parents are parsed in advance.
fn children(criterion: &mut Criterion) {
    let smiles = MOLECULES.lines().filter_map(|line| line.split(' ').next());
    let parents: Vec<Molecule> = smiles
        .filter(|smiles| smiles.len() > 30 && !smiles.contains('.'))
        .filter_map(|smiles| Molecule::parse(smiles).ok())
        .collect();
    let mut state = 1_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut group = criterion.benchmark_group("children");
    group.throughput(Throughput::Elements(parents.len() as u64)).sample_size(10);
    group.bench_function("mutate", |bencher| {
        bencher.iter(|| {
            let size = Size::default();
            parents.iter().filter(|parent| mutate(parent, &size, &mut random).is_some()).count()
        })
    });
    group.bench_function("crossover", |bencher| {
        bencher.iter(|| {
            let size = Size::default();
            let pairs = parents.iter().zip(parents.iter().rev());
            pairs.filter(|(a, b)| crossover(a, b, &size, &mut random).is_some()).count()
        })
    });
    group.finish();
}

criterion_group!(benches, benchmark, children);
criterion_main!(benches);

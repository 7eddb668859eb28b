//! Measures molecules per second on a single core: `cargo bench -p grpo-chem`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
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

criterion_group!(benches, benchmark);
criterion_main!(benches);

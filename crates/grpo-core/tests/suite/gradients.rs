//! Tests gradient accumulation for an entire module.

use burn::optim::GradientsParams;
use burn::tensor::{DType, Device};
use grpo_core::{Reduction, accumulate};

use crate::strategies::every_option;
use crate::support::{Uniform, close, largest, rounded, tensor};
use crate::toy::{Scene, Toy, flat};

/// Creates a module with two tensors (12 and 20 elements) and chosen gradients.
fn chosen() -> (Toy, GradientsParams, Vec<f64>) {
    let toy = Scene::new().toy(DType::F32);
    let mut uniform = Uniform(3);
    let values: Vec<f64> = (0..32).map(|_| rounded(uniform.draw() - 0.5)).collect();
    let mut gradients = GradientsParams::new();
    let device = Device::flex();
    gradients.register(toy.first.id, tensor(&values[..12], [3, 4], DType::F32, &device));
    gradients.register(toy.second.id, tensor(&values[12..], [4, 5], DType::F32, &device));
    (toy, gradients, values)
}

#[test]
fn accumulation_adds() {
    let (toy, first, values) = chosen();
    let sum = accumulate(&toy, None, first);
    assert_eq!(flat(&toy, &sum), values);
    // x + x is exact.
    let mut more = GradientsParams::new();
    more.register(toy.first.id, sum.get::<2>(toy.first.id).unwrap());
    let sum = accumulate(&toy, Some(sum), more);
    let doubled: Vec<f64> = values[..12].iter().map(|v| 2.0 * v).collect();
    assert_eq!(flat(&toy, &sum), [&doubled, &values[12..]].concat());

    let (mut only_first, mut only_second) = (GradientsParams::new(), GradientsParams::new());
    only_first.register(toy.first.id, sum.get::<2>(toy.first.id).unwrap());
    only_second.register(toy.second.id, sum.get::<2>(toy.second.id).unwrap());
    let joined = accumulate(&toy, Some(only_first), only_second);
    assert_eq!(flat(&toy, &joined), flat(&toy, &sum));
}

#[test]
fn accumulated_micro_batches_equal_the_whole_batch() {
    let scene = Scene::new();
    let toy = scene.toy(DType::F32);
    for config in every_option() {
        if config.reduction == Reduction::MicroBatchTokenMean {
            continue;
        }
        let whole = flat(&toy, &scene.gradients(&toy, 0..4, &config));
        for cuts in [[1, 2], [1, 3], [2, 3]] {
            let mut sum = None;
            for rows in [0..cuts[0], cuts[0]..cuts[1], cuts[1]..4] {
                sum = Some(accumulate(&toy, sum, scene.gradients(&toy, rows, &config)));
            }
            let tolerance = 1e-6 * largest(&whole);
            for (got, expected) in flat(&toy, &sum.unwrap()).iter().zip(&whole) {
                close(*got, *expected, tolerance, "gradient");
            }
        }
    }
}

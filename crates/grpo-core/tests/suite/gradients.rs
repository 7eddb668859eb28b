//! Gradients of a whole module: one norm, and adding up.

use burn::optim::GradientsParams;
use burn::tensor::{DType, Device};
use grpo_core::{Reduction, accumulate, clip_by_global_norm};

use crate::strategies::every_option;
use crate::support::{Uniform, close, largest, rounded, tensor};
use crate::toy::{Scene, Toy, flat};

/// Two tensors with gradients of our choice: 12 and 20 numbers.
fn chosen(scale: f64) -> (Toy, GradientsParams, Vec<f64>) {
    let toy = Scene::new().toy(DType::F32);
    let mut uniform = Uniform(3);
    let values: Vec<f64> = (0..32).map(|_| rounded(scale * (uniform.draw() - 0.5))).collect();
    let mut gradients = GradientsParams::new();
    let device = Device::flex();
    gradients.register(toy.first.id, tensor(&values[..12], [3, 4], DType::F32, &device));
    gradients.register(toy.second.id, tensor(&values[12..], [4, 5], DType::F32, &device));
    (toy, gradients, values)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn the_norm_is_of_all_gradients_together_and_the_direction_stays() {
    for scale in [1e-3, 5.0, 1e4] {
        let (toy, gradients, values) = chosen(scale);
        let limit = 0.25 * norm(&values);
        let (clipped, before) = clip_by_global_norm(&toy, gradients, limit);
        close(before, norm(&values), 4.0 * f64::EPSILON * before, "norm");
        let clipped = flat(&toy, &clipped);
        close(norm(&clipped), limit, 1e-7 * limit, "norm after");
        for (clipped, value) in clipped.iter().zip(&values) {
            let tolerance = 2.0 * f64::from(f32::EPSILON) * value.abs();
            close(*clipped, 0.25 * value, tolerance, "gradient");
        }
    }
}

#[test]
fn gradients_below_the_limit_are_untouched() {
    for factor in [1.0, 1.0 + 1e-9, 3.0, f64::INFINITY] {
        let (toy, gradients, values) = chosen(2.0);
        let exact = clip_by_global_norm(&toy, gradients, f64::INFINITY);
        let (clipped, before) = clip_by_global_norm(&toy, exact.0, factor * exact.1);
        assert_eq!(flat(&toy, &clipped), values);
        assert_eq!(before, exact.1);
    }
}

#[test]
fn a_parameter_without_a_gradient_stays_without() {
    let (toy, mut gradients, values) = chosen(2.0);
    gradients.remove::<2>(toy.second.id).unwrap();
    let (clipped, before) = clip_by_global_norm(&toy, gradients, 0.1);
    close(before, norm(&values[..12]), 4.0 * f64::EPSILON * before, "norm");
    assert_eq!(clipped.len(), 1);
    assert!(clipped.get::<2>(toy.first.id).is_some());
}

#[test]
fn accumulation_adds() {
    let (toy, first, values) = chosen(2.0);
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

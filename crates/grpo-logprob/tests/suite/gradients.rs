//! Derivatives of log-probabilities and entropies.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_logprob::{Head, Scores, score, score_logits};

use crate::oracle;
use crate::scene::{Numbers, Scene, Under, all_distributions, host};

/// What is tracked.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    hidden: bool,
    head: bool,
}

/// Gradients of hidden, weight and bias of `Σ g · logprob + h · entropy`.
fn gradients(
    scene: &Scene,
    dtype: DType,
    tied: bool,
    tracked: Tracked,
    weights: [&[f64]; 2],
    fused: bool,
) -> [Option<Vec<f64>>; 3] {
    let device = Device::flex().autodiff();
    let track = |tensor: Tensor<2>, on: bool| if on { tensor.require_grad() } else { tensor };
    let hidden = track(scene.hidden(&device, dtype), tracked.hidden);
    let Head { weight, bias } = scene.head(&device, dtype, tied);
    let weight = track(weight, tracked.head);
    let bias = bias.map(|bias| if tracked.head { bias.require_grad() } else { bias });
    let as_head = if tied { weight.clone().transpose() } else { weight.clone() };
    let head = Head { weight: as_head, bias: bias.clone() };
    let targets = scene.targets();
    let Scores { logprobs, entropies } = if fused {
        score(hidden.clone(), &head, &targets)
    } else {
        score_logits(head.logits(hidden.clone()), &targets)
    };
    let constant = |values: &[f64]| -> Tensor<1> {
        Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (&device, dtype))
    };
    let mut loss = (logprobs * constant(weights[0])).sum();
    if weights[1].iter().any(|&h| h != 0.0) {
        loss = loss + (entropies * constant(weights[1])).sum();
    }
    let tape = loss.backward();
    [
        hidden.grad(&tape).map(host),
        weight
            .grad(&tape)
            .map(|gradient| if tied { host(gradient.transpose()) } else { host(gradient) }),
        bias.and_then(|bias| bias.grad(&tape)).map(host),
    ]
}

#[track_caller]
fn close(got: &Option<Vec<f64>>, expected: &Option<Vec<f64>>, tolerance: f64) {
    assert_eq!(got.is_some(), expected.is_some());
    let (Some(got), Some(expected)) = (got, expected) else { return };
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, e| largest.max(e.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        assert!(difference <= tolerance * largest, "{i}: {got}, expected {expected} of {largest}");
    }
}

fn upstream(n: usize) -> [Vec<f64>; 2] {
    let mut numbers = Numbers(5);
    [(); 2].map(|()| (0..n).map(|_| numbers.next()).collect())
}

const WAYS: [Tracked; 3] = [
    Tracked { hidden: true, head: false },
    Tracked { hidden: false, head: true },
    Tracked { hidden: true, head: true },
];

#[test]
fn both_paths_have_the_same_gradients() {
    for under in all_distributions() {
        for (tied, bias) in [(false, true), (true, false)] {
            let scene = Scene::new([7, 5, 37], under, bias);
            let [g, h] = upstream(7);
            for tracked in WAYS {
                for h in [&h, &vec![0.0; 7]] {
                    for (dtype, tolerance) in [(DType::F32, 3e-6), (DType::F64, 1e-12)] {
                        let run =
                            |dtype, fused| gradients(&scene, dtype, tied, tracked, [&g, h], fused);
                        let expected = run(DType::F64, false);
                        let got = run(dtype, true);
                        got.iter().zip(&expected).for_each(|(got, e)| close(got, e, tolerance));
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for under in all_distributions() {
        let scene = Scene::new([3, 3, 11], under, true);
        let [g, h] = upstream(3);
        let value = |scene: &Scene| -> f64 {
            let terms = (0..3).map(|i| {
                let [logprob, entropy] = oracle::score(scene, i);
                g[i] * logprob + h[i] * entropy
            });
            terms.sum()
        };
        let difference = |parameter: fn(&mut Scene) -> &mut Vec<f64>| -> Option<Vec<f64>> {
            let count = parameter(&mut scene.clone()).len();
            let at = |i: usize, step: f64| {
                let mut moved = scene.clone();
                parameter(&mut moved)[i] += step;
                value(&moved)
            };
            let step = 1e-5;
            Some((0..count).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect())
        };
        let expected = [
            difference(|scene| &mut scene.hidden),
            difference(|scene| &mut scene.weight),
            difference(|scene| scene.bias.as_mut().expect("a bias")),
        ];
        let both = Tracked { hidden: true, head: true };
        let got = gradients(&scene, DType::F64, false, both, [&g, &h], true);
        got.iter().zip(&expected).for_each(|(got, e)| close(got, e, 1e-8));
    }
}

/// More positions and more ids than a tile holds.
#[test]
fn tiles_make_no_difference_to_gradients() {
    let under =
        Under { temperature: Some(0.9), forbidding: true, truncated: true, penalty: Some(1.2) };
    for (under, tied) in [(Under::default(), false), (under, true)] {
        let scene = Scene::new([2060, 4, 4200], under, !tied);
        let [g, h] = upstream(2060);
        for tracked in WAYS {
            let run = |fused| gradients(&scene, DType::F32, tied, tracked, [&g, &h], fused);
            let (got, expected) = (run(true), run(false));
            got.iter().zip(&expected).for_each(|(got, e)| close(got, e, 1e-5));
        }
        let zero = vec![0.0; 2060];
        let direct = |fused| gradients(&scene, DType::F32, tied, WAYS[0], [&g, &zero], fused);
        close(&direct(true)[0], &direct(false)[0], 1e-5);
    }
}

/// A column of the head whose id could not be drawn anywhere has a gradient of exactly 0.
#[test]
fn forbidden_ids_have_no_gradient() {
    let under = Under { forbidding: true, truncated: true, ..Under::default() };
    let scene = Scene::new([7, 5, 37], under, false);
    let [g, h] = upstream(7);
    let [_, weight, _] = gradients(&scene, DType::F32, false, WAYS[2], [&g, &h], true);
    let weight = weight.expect("a gradient");
    for row in weight.chunks(37) {
        scene.forbidden.iter().for_each(|&id| assert_eq!(row[id as usize], 0.0));
        assert!(row.iter().any(|&gradient| gradient != 0.0));
    }
}

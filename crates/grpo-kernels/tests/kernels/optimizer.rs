//! The AdamW update, and the norm used for gradient clipping.

use burn::tensor::Tensor;
use grpo_kernels::{AdamW, AdamWUpdates, SquaredNorm, adamw_step, is_cpu, plain, squared_norm};

use crate::support::{assert_each_close, device, host, tensor, values};

type Step<const D: usize> =
    fn(Tensor<D>, Tensor<D>, [Tensor<D>; 2], &AdamW) -> (Tensor<D>, [Tensor<D>; 2]);

fn settings(step: u32) -> AdamW {
    AdamW {
        learning_rate: 3e-2,
        betas: [0.9, 0.95],
        epsilon: 1e-3,
        weight_decay: 0.5,
        step,
        gradient_scale: 0.25,
    }
}

/// PyTorch's `_single_tensor_adamw` in f64, for a single element. Returns the parameter, the first
/// moment and the second moment.
fn torch([mut parameter, mut m, mut v]: [f64; 3], gradient: f64, by: &AdamW) -> [f64; 3] {
    let gradient = gradient * by.gradient_scale;
    let [beta_1, beta_2] = by.betas;
    parameter *= 1.0 - by.learning_rate * by.weight_decay;
    m += (1.0 - beta_1) * (gradient - m);
    v = v * beta_2 + (1.0 - beta_2) * gradient * gradient;
    let step = by.step as i32;
    let (correction_1, correction_2) = (1.0 - beta_1.powi(step), 1.0 - beta_2.powi(step));
    let denominator = v.sqrt() / correction_2.sqrt() + by.epsilon;
    parameter -= by.learning_rate / correction_1 * m / denominator;
    [parameter, m, v]
}

#[track_caller]
fn check<const D: usize>(shape: [usize; D]) {
    let n = shape.iter().product();
    let device = device();
    for operation in [adamw_step as Step<D>, plain::adamw_step as Step<D>] {
        let mut parameter = tensor(&values(n, 1), shape, &device);
        let mut moments = [Tensor::zeros(shape, &device), Tensor::zeros(shape, &device)];
        let mut expected: Vec<[f64; 3]> = values(n, 1).iter().map(|&x| [x, 0.0, 0.0]).collect();
        for step in 1..5 {
            let gradient = values(n, 10 + u64::from(step));
            let by = settings(step);
            (parameter, moments) =
                operation(parameter, tensor(&gradient, shape, &device), moments, &by);
            for (state, &gradient) in expected.iter_mut().zip(&gradient) {
                *state = torch(*state, gradient, &by);
            }
        }
        let [first, second] = moments;
        for (part, got) in [host(parameter), host(first), host(second)].iter().enumerate() {
            let expected: Vec<f64> = expected.iter().map(|state| state[part]).collect();
            assert_each_close(got, &expected, 4e-7);
        }
    }
}

#[test]
fn adamw_is_that_of_pytorch() {
    check([1]);
    check([3, 5]);
    check([2, 3, 7]);
    // More than one chunk.
    check([17, 1001]);
}

/// More parameters than a GPU updates in one launch, each with its own settings.
#[test]
fn parameters_are_updated_together_as_one_by_one() {
    let device = device();
    let mut updates = AdamWUpdates::default();
    let sizes: Vec<usize> = (0..70).map(|index| [1, 0, 300, 7, 64][index % 5] * index).collect();
    let parts = |index: usize| {
        let of = |seed| tensor(&values(sizes[index], seed), [sizes[index]], &device);
        let moments = [of(3), of(4).square()];
        let by = settings(1 + index as u32);
        (of(1), of(2), moments, AdamW { learning_rate: 1e-3 * index as f64, ..by })
    };
    let updated: Vec<(Tensor<1>, [Tensor<1>; 2])> = (0..sizes.len())
        .map(|index| {
            let (parameter, gradient, moments, by) = parts(index);
            updates.add(parameter, gradient, moments, &by)
        })
        .collect();
    updates.finish();
    for (index, (parameter, moments)) in updated.into_iter().enumerate() {
        let (alone, gradient, before, by) = parts(index);
        let (alone, before) = adamw_step(alone, gradient, before, &by);
        assert_eq!(host(parameter), host(alone), "{index}");
        assert_eq!(moments.map(host), before.map(host), "{index}");
    }
}

#[test]
fn a_norm_of_many_tensors() {
    let device = device();
    let mut norm = SquaredNorm::default();
    let mut expected = 0.0;
    for index in 0..70_usize {
        let size = [3, 0, 70, 500][index % 4] * index;
        let x = values(size, index as u64);
        expected += x.iter().map(|x| f64::from(*x as f32).powi(2)).sum::<f64>();
        norm.add(tensor::<1>(&x, [size], &device));
    }
    let mut nothing = SquaredNorm::default();
    nothing.add(tensor::<1>(&[], [0], &device));
    assert_eq!(nothing.total(), 0.0);
    let total = norm.total();
    assert!((total - expected).abs() < 1e-7 * expected, "{total}, expected {expected}");
}

/// For example, the gradient of a tied head is transposed.
#[test]
fn tensors_that_are_views() {
    let device = device();
    let cut = |seed| {
        let all: Tensor<2> = tensor(&values(63, seed), [7, 9], &device);
        all.transpose().narrow(0, 2, 5).narrow(1, 1, 4)
    };
    let dense = |x: Tensor<2>| tensor(&host(x), [5, 4], &device);
    let [parameter, gradient, m, v] = [1, 2, 3, 4].map(cut);
    let v = v.square();
    let views =
        adamw_step(parameter.clone(), gradient.clone(), [m.clone(), v.clone()], &settings(3));
    let copies =
        adamw_step(dense(parameter), dense(gradient.clone()), [dense(m), dense(v)], &settings(3));
    assert_eq!(host(views.0), host(copies.0));
    assert_eq!(views.1.map(host), copies.1.map(host));
    assert_eq!(squared_norm(gradient.clone()), squared_norm(dense(gradient)));
}

#[test]
fn a_squared_norm_keeps_small_squares() {
    for n in [0, 1, 15, 16, 33, 40_000] {
        let mut x = values(n, 3);
        if n > 2 {
            x[1] = 3e5;
            x[n - 1] = 1e-3;
        }
        let expected: f64 = x.iter().map(|x| f64::from(*x as f32).powi(2)).sum();
        let x: Tensor<1> = tensor(&x, [n], &device());
        for operation in [squared_norm, plain::squared_norm] {
            let got = operation(x.clone());
            // Each addition of a small number may lose 2⁻⁵³ of the large one. On a GPU, squares are
            // rounded to f32.
            let tolerance = if is_cpu(&device()) { 3e-14 } else { 6e-8 };
            assert!((got - expected).abs() <= tolerance * expected, "{got}, expected {expected}");
        }
    }
}

#[test]
fn what_is_not_finite_shows_in_the_norm() {
    for bad in [f64::NAN, f64::INFINITY] {
        let mut x = values(100, 4);
        x[57] = bad;
        assert!(!squared_norm(tensor(&x, [10, 10], &device())).is_finite());
    }
}

#[test]
#[should_panic(expected = "parameter and gradient shapes differ")]
fn a_gradient_of_another_shape() {
    let zeros = |shape: [usize; 2]| Tensor::<2>::zeros(shape, &device());
    adamw_step(zeros([2, 3]), zeros([3, 2]), [zeros([2, 3]), zeros([2, 3])], &settings(1));
}

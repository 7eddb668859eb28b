//! Properties that hold for all inputs.

use burn::tensor::{Tensor, TensorData};
use grpo_kernels::{
    Visible, attention_softmax, gelu, gelu_tanh, layer_norm, plain, rms_norm, swiglu,
};
use proptest::prelude::*;

use crate::softmax::oracle;
use crate::support::{assert_close, bits, device, host, tensor, values};

/// Generates the shape of scores along with visible ranges.
fn attention() -> impl Strategy<Value = ([usize; 4], Visible)> {
    let shape = (1..4_usize, 1..3_usize, 1..20_usize, 0..20_usize);
    let shape = shape.prop_map(|(b, h, queries, more)| [b, h, queries, queries + more]);
    (shape, any::<bool>(), any::<bool>(), any::<[prop::sample::Index; 6]>()).prop_map(
        |(shape, causal, padded, cuts)| {
            let visible = if causal { Visible::causal() } else { Visible::all() };
            let range = |row: usize| {
                let [a, b] = [0, 1].map(|i| cuts[2 * row + i].index(shape[3] + 1));
                a.min(b)..a.max(b)
            };
            let tokens: Vec<_> = (0..shape[0]).map(range).collect();
            (shape, if padded { visible.within(tokens) } else { visible })
        },
    )
}

proptest! {
    #[test]
    fn attention_is_a_distribution_over_what_is_visible(
        (shape, visible) in attention(), seed: u64, scale in 0.01..2.0,
    ) {
        let x = values(shape.iter().product(), seed);
        // Rounded to f32 like in the kernel.
        let scale = f64::from(scale as f32);
        let expected = oracle(&x, shape, scale, &visible);
        let scores = tensor(&x, shape, &device());
        for operation in [attention_softmax, plain::attention_softmax] {
            let got = host(operation(scores.clone(), scale, &visible));
            // The argument of the exponential is at most 12, so rounding it causes a relative error
            // of 12 · 2⁻²⁴.
            assert_close(&got, &expected, 1e-6);
            for row in got.chunks(shape[3]) {
                prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6);
            }
            for (got, expected) in got.iter().zip(&expected) {
                prop_assert_eq!(*got == 0.0, *expected == 0.0);
            }
        }
    }

    /// A range that covers all keys is equivalent to no range.
    #[test]
    fn padding_of_no_key_changes_no_bit((shape, visible) in attention(), seed: u64) {
        let scores = tensor(&values(shape.iter().product(), seed), shape, &device());
        let open = Visible { tokens: None, ..visible };
        let full = open.clone().within(vec![0..shape[3]; shape[0]]);
        prop_assert_eq!(
            bits(attention_softmax(scores.clone(), 0.3, &open)),
            bits(attention_softmax(scores, 0.3, &full))
        );
    }

    /// Powers of two are exact.
    #[test]
    fn rms_norm_without_epsilon_does_not_see_the_scale(
        rows in 1..5_usize, features in 1..70_usize, seed: u64, power in -20..20_i32,
    ) {
        let x = tensor(&values(rows * features, seed), [rows, features], &device());
        let gamma = tensor(&values(features, seed ^ 1), [features], &device());
        let scaled = x.clone() * 2_f32.powi(2 * power);
        prop_assert_eq!(bits(rms_norm(x, gamma.clone(), 0.0)), bits(rms_norm(scaled, gamma, 0.0)));
    }

    #[test]
    fn swiglu_is_linear_in_up(features in 1..70_usize, seed: u64, power in -20..20_i32) {
        let gate = tensor(&values(2 * features, seed), [2, features], &device());
        let up = tensor(&values(2 * features, seed ^ 1), [2, features], &device());
        let scale = 2_f32.powi(power);
        let scaled = swiglu(gate.clone(), up.clone() * scale);
        prop_assert_eq!(bits(swiglu(gate, up) * scale), bits(scaled));
    }

    /// `Φ(x) + Φ(−x) = 1` and `σ(u) + σ(−u) = 1` imply `f(x) − f(−x) = x`.
    #[test]
    fn both_gelus_differ_from_their_mirror_image_by_x(x in -30.0..30.0_f32) {
        let x = f64::from(x);
        let both = tensor(&[x, -x], [2], &device());
        for f in [gelu::<1>, gelu_tanh::<1>, plain::gelu_tanh::<1>] {
            let y = host(f(both.clone()));
            prop_assert!((y[0] - y[1] - x).abs() <= 2e-7 * x.abs().max(1.0));
        }
    }
}

/// Computes all outputs and gradients on inputs with several chunks.
fn everything() -> Vec<u32> {
    let device = device().autodiff();
    let input = |seed| tensor(&values(700 * 61, seed), [700, 61], &device).require_grad();
    let parameter = |seed| tensor(&values(61, seed), [61], &device).require_grad();
    let [x, up] = [1, 2].map(input);
    let [gamma, beta] = [3, 4].map(parameter);
    let visible = Visible::causal().within(vec![0..61; 70]);
    let scores = x.clone().reshape([70, 1, 10, 61]);
    let outputs = [
        gelu(x.clone()),
        gelu_tanh(x.clone()),
        swiglu(x.clone(), up.clone()),
        rms_norm(x.clone(), gamma.clone(), 1e-5),
        layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5),
        attention_softmax(scores, 0.3, &visible).reshape([700, 61]),
    ];
    let mut all = Vec::new();
    for output in outputs {
        let gradients = output.clone().square().sum().backward();
        all.extend(bits(output));
        for of in [x.grad(&gradients), up.grad(&gradients)].into_iter().flatten() {
            all.extend(bits(of));
        }
        for of in [gamma.grad(&gradients), beta.grad(&gradients)].into_iter().flatten() {
            all.extend(bits(of));
        }
    }
    all
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(everything)
    };
    let one = with(1);
    // Six outputs, seven input gradients and three parameter gradients.
    assert_eq!(one.len(), 13 * 700 * 61 + 3 * 61);
    assert!(one == with(3), "1 and 3 threads");
    assert!(one == with(8), "1 and 8 threads");
}

/// A row in a batch is bit for bit the same as on its own.
#[test]
fn results_do_not_depend_on_the_other_rows() {
    let device = device();
    let x: Tensor<2> = tensor(&values(300 * 61, 1), [300, 61], &device);
    let gamma: Tensor<1> = Tensor::from_data(TensorData::from([1.5_f32; 61]), &device);
    let operations: [&dyn Fn(Tensor<2>) -> Tensor<2>; 4] =
        [&gelu, &gelu_tanh, &|x| swiglu(x.clone(), x), &|x| rms_norm(x, gamma.clone(), 1e-5)];
    for operation in operations {
        let together = operation(x.clone());
        for row in [0, 127, 128, 299] {
            let alone = operation(x.clone().narrow(0, row, 1));
            assert_eq!(bits(alone), bits(together.clone().narrow(0, row, 1)));
        }
    }
}

//! Operations that share a launch on a GPU, against the same operations one by one.

use burn::tensor::{FloatDType, Tensor};
use grpo_kernels::{
    Half, HeadNorms, HeadPreparation, Heads, KvPages, PAGE, PackedWeight, PagePlan, RotaryTables,
    add, add_layer_norm, add_rms_norm, computes_in, gelu, gelu_tanh, is_cpu, layer_norm, rms_norm,
    rotary, swiglu,
};

use crate::support::{assert_close, bits, device, host, tensor, values};

/// Rows, inner dimension and columns, around the sizes of tiles.
const SHAPES: [[usize; 3]; 5] =
    [[1, 64, 32], [8, 4, 4], [13, 300, 80], [9, 64, 36], [33, 128, 200]];

fn matrix(shape: [usize; 2], seed: u64) -> Tensor<2> {
    tensor(&values(shape[0] * shape[1], seed), shape, &device())
}

fn vector(length: usize, seed: u64) -> Tensor<1> {
    tensor(&values(length, seed), [length], &device())
}

/// Returns a weight in every form that a GPU reads as it is.
fn forms(shape: [usize; 2], seed: u64) -> Vec<PackedWeight> {
    let weight = matrix(shape, seed);
    let across = matrix([shape[1], shape[0]], seed).transpose();
    let half = [FloatDType::BF16, FloatDType::F16];
    let halves = half.into_iter().filter(|&half| computes_in(&device(), half.into()));
    [weight.clone(), across]
        .into_iter()
        .chain(halves.map(|half| weight.clone().cast(half)).filter(|_| !is_cpu(&device())))
        .map(PackedWeight::new)
        .chain([Half::Bf16, Half::F16].map(|half| PackedWeight::rounded(weight.clone(), half)))
        .collect()
}

#[test]
fn layers_next_to_each_other() {
    for [rows, inner, columns] in SHAPES {
        let x = matrix([rows, inner], 1);
        // The layers have different widths.
        let widths = [columns, 4, 2 * columns];
        let weights = [2, 3, 4].map(|seed| forms([inner, widths[seed as usize - 2]], seed));
        let [first, second, third] = &weights;
        for weights in first.iter().zip(second).zip(third) {
            let ((first, second), third) = weights;
            for with_bias in [false, true] {
                let bias =
                    |layer: usize| with_bias.then(|| vector(widths[layer], 5 + layer as u64));
                let layers = [(first, bias(0)), (second, bias(1)), (third, bias(2))];
                let all = layers.clone().map(|(layer, bias)| layer.linear(x.clone(), bias));
                match PackedWeight::joined_linear(&x, layers) {
                    Some(joined) => assert_eq!(bits(joined), bits(Tensor::cat(all.to_vec(), 1))),
                    None => assert!(is_cpu(&device())),
                }
            }
        }
    }
}

#[test]
fn activations_of_layers() {
    for [rows, inner, columns] in SHAPES {
        let x = matrix([rows, inner], 1);
        let [gates, ups] = [2, 3].map(|seed| forms([inner, columns], seed));
        for (gate, up) in gates.iter().zip(&ups) {
            for bias in [None, Some(vector(columns, 4))] {
                let [of_gate, of_up] =
                    [gate, up].map(|layer| layer.linear(x.clone(), bias.clone()));
                let layers = [(gate, bias.clone()), (up, bias.clone())];
                let together = [
                    (PackedWeight::gated_linear(&x, layers), swiglu(of_gate, of_up.clone())),
                    (up.linear_gelu(&x, bias.clone(), false), gelu(of_up.clone())),
                    (up.linear_gelu(&x, bias.clone(), true), gelu_tanh(of_up)),
                ];
                for (got, expected) in together {
                    match got {
                        Some(got) => assert_eq!(bits(got), bits(expected)),
                        None => assert!(is_cpu(&device())),
                    }
                }
            }
        }
    }
}

/// Weights of different forms are computed one by one.
#[test]
fn layers_that_differ() {
    let (x, weight) = (matrix([3, 8], 1), matrix([8, 8], 2));
    let (rows, columns) =
        (PackedWeight::new(weight.clone()), PackedWeight::new(weight.clone().transpose()));
    let [bf16, f16] =
        [Half::Bf16, Half::F16].map(|half| PackedWeight::rounded(weight.clone(), half));
    for other in [&columns, &bf16, &f16] {
        assert!(
            PackedWeight::joined_linear(&x, [(&rows, None), (other, None), (&rows, None)])
                .is_none()
        );
        assert!(PackedWeight::gated_linear(&x, [(&rows, None), (other, None)]).is_none());
    }
    let with_bias = [(&rows, None), (&rows, Some(vector(8, 4)))];
    assert!(PackedWeight::gated_linear(&x, with_bias).is_none());
    let nothing = matrix([0, 8], 1);
    let layers = [(&rows, None), (&rows, None), (&rows, None)];
    assert!(PackedWeight::joined_linear(&nothing, layers).is_none());
}

#[test]
fn sums_and_their_norms() {
    for shape in [[1, 3], [4, 33], [3, 300], [300, 5]] {
        let (x, y) = (matrix(shape, 1), matrix(shape, 2));
        let (gamma, beta) = (vector(shape[1], 3), vector(shape[1], 4));
        let expected = add(x.clone(), y.clone());
        let [sum, normal] = add_layer_norm(x.clone(), y.clone(), gamma.clone(), beta.clone(), 1e-5);
        assert_eq!(bits(sum), bits(expected.clone()));
        assert_eq!(bits(normal), bits(layer_norm(expected.clone(), gamma.clone(), beta, 1e-5)));
        let [sum, normal] = add_rms_norm(x, y, gamma.clone(), 1e-6);
        assert_eq!(bits(sum), bits(expected.clone()));
        assert_eq!(bits(normal), bits(rms_norm(expected, gamma, 1e-6)));
    }
}

#[test]
fn gradients_pass_through_sums_and_norms() {
    let device = device().autodiff();
    let shape = [3, 5];
    let leaf = |seed| tensor(&values(15, seed), shape, &device).require_grad();
    let gamma = || tensor(&values(5, 3), [5], &device);
    let (x, y) = (leaf(1), leaf(2));
    let [sum, normal] = add_rms_norm(x.clone(), y.clone(), gamma(), 1e-6);
    let gradients = (sum + normal).sum().backward();
    let (a, b) = (leaf(1), leaf(2));
    let sum = add(a.clone(), b.clone());
    let expected = (sum.clone() + rms_norm(sum, gamma(), 1e-6)).sum().backward();
    for (got, by_one) in [(&x, &a), (&y, &b)] {
        assert_eq!(bits(got.grad(&gradients).unwrap()), bits(by_one.grad(&expected).unwrap()));
    }
}

/// Normalises and rotates the heads of a matrix one operation at a time.
fn prepared(
    x: Tensor<2>,
    scale: Option<&Tensor<1>>,
    of: &HeadPreparation,
    width: usize,
) -> Tensor<2> {
    let [rows, columns] = x.dims();
    let x = match (scale, &of.norms) {
        (Some(scale), Some(norms)) => {
            let by_head = x.reshape([rows * columns / width, width]);
            rms_norm(by_head, scale.clone(), norms.epsilon).reshape([rows, columns])
        }
        _ => x,
    };
    of.rotary.as_ref().map_or(x.clone(), |tables| rotary(x, tables))
}

#[test]
fn heads_are_prepared_and_written() {
    let device = device();
    for (heads, kv_heads, width) in [(4, 2, 8), (3, 3, 32), (2, 1, 128), (2, 1, 256)] {
        let heads = Heads { heads, kv_heads, width };
        let (queries, keys) = (heads.query_columns(), heads.key_columns());
        let rows = 5;
        let scales = [vector(width, 2), vector(width, 3)];
        let norms = HeadNorms { scales: scales.clone(), epsilon: 1e-6 };
        let [cos, sin] = [4, 5].map(|seed| matrix([rows, width / 2], seed));
        let tables = RotaryTables { cos, sin };
        for of in [
            HeadPreparation::default(),
            HeadPreparation { norms: Some(norms.clone()), rotary: None },
            HeadPreparation { norms: None, rotary: Some(tables.clone()) },
            HeadPreparation { norms: Some(norms), rotary: Some(tables) },
        ] {
            // A part of a matrix, whose rows are further apart.
            let all = matrix([rows, queries + 2 * keys + 7], 1).narrow(1, 7, queries + 2 * keys);
            let mut plan = PagePlan::new();
            plan.push(&[2, 0], PAGE - 2..PAGE + 3);
            let mut pages = [KvPages::new(heads, &device), KvPages::new(heads, &device)];
            pages.iter_mut().for_each(|pages| pages.grow_to(3));
            let part = |start, length| all.clone().narrow(1, start, length);
            let query = prepared(part(0, queries), Some(&scales[0]), &of, width);
            let key = prepared(part(queries, keys), Some(&scales[1]), &of, width);
            pages[0].write(key, part(queries + keys, keys), &plan);
            let Some(got) = pages[1].write_heads(&all, &of, &plan) else {
                assert!(is_cpu(&device));
                continue;
            };
            // The compiler may contract a rotation to multiply-adds in one kernel and not in another.
            assert_close(&host(got.clone()), &host(query.clone()), 2e-7);
            let mut seen = PagePlan::new();
            (1..=5).for_each(|n| seen.push(&[2, 0], PAGE - 3 + n..PAGE - 2 + n));
            let attended = [&pages[0], &pages[1]].map(|pages| {
                // Zero keys weigh all positions alike, so values can be compared by themselves.
                [query.clone(), query.zeros_like()].map(|query| pages.attend(query, &seen, 0.05))
            });
            for (got, expected) in attended[1].iter().zip(&attended[0]) {
                assert_close(&host(got.clone()), &host(expected.clone()), 1e-5);
            }
        }
    }
}

#[test]
#[should_panic(expected = "tables of rotary angles")]
fn angles_of_other_rows() {
    let heads = Heads { heads: 1, kv_heads: 1, width: 4 };
    let mut pages = KvPages::new(heads, &device());
    pages.grow_to(1);
    let mut plan = PagePlan::new();
    plan.push(&[0], 0..2);
    let tables = RotaryTables { cos: matrix([3, 2], 1), sin: matrix([3, 2], 1) };
    let of = HeadPreparation { norms: None, rotary: Some(tables) };
    pages.write_heads(&matrix([2, 12], 1), &of, &plan);
}

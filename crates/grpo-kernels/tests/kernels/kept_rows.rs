//! Rows that are kept from one pass to another, and linear layers whose output is known.

use burn::tensor::Tensor;
use grpo_kernels::{Half, KeptRows, half_linear, known_half_linear, known_linear, linear};
use proptest::prelude::*;

use crate::support::{bits, device, host, tensor, values};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Blocks of rows cross the limits of parts, and a cleared store begins again.
    #[test]
    fn gathered_rows_are_those_that_were_pushed(
        blocks in proptest::collection::vec((0_usize..2, 0_usize..700), 1..8),
        columns in 1_usize..20,
        picks in proptest::collection::vec(any::<u32>(), 1..40),
    ) {
        let device = device();
        let mut stores = [KeptRows::new(columns), KeptRows::new(columns)];
        for round in 0..2 {
            stores.iter_mut().for_each(KeptRows::clear);
            let mut all: [Vec<f64>; 2] = Default::default();
            for (seed, &(store, rows)) in blocks.iter().enumerate() {
                let block = values(rows * columns, (seed + 100 * round) as u64);
                stores[store].push(&tensor(&block, [rows, columns], &device));
                all[store].extend(block);
            }
            let sizes = all.each_ref().map(|rows| (rows.len() / columns) as u32);
            for (store, rows) in stores.iter().zip(&all) {
                prop_assert_eq!(store.bytes(), 4 * rows.len());
            }
            let place = |pick: &u32| {
                let store = pick % 2;
                let rows = sizes[store as usize];
                (rows > 0).then(|| [store, (pick / 2) % rows])
            };
            let places: Vec<[u32; 2]> = picks.iter().filter_map(place).collect();
            let expected = places.iter().flat_map(|[store, row]| {
                let first = *row as usize * columns;
                all[*store as usize][first..first + columns].iter().copied()
            });
            let expected: Vec<f64> = expected.collect();
            if places.is_empty() {
                continue;
            }
            let gathered = KeptRows::gather(&stores.each_ref(), &places, &device);
            prop_assert_eq!(gathered.dims(), [places.len(), columns]);
            prop_assert_eq!(host(gathered), expected);
        }
    }
}

fn layer(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    factors: Option<Half>,
) -> Tensor<2> {
    match factors {
        None => linear(x, weight, bias),
        Some(format) => half_linear(x, weight, bias, format),
    }
}

fn known_layer(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    factors: Option<Half>,
) -> Tensor<2> {
    match factors {
        None => known_linear(y, x, weight, bias),
        Some(format) => known_half_linear(y, x, weight, bias, format),
    }
}

const FACTORS: [Option<Half>; 3] = [None, Some(Half::Bf16), Some(Half::F16)];

/// Compares all bits of the output and the gradients.
#[track_caller]
fn check(factors: Option<Half>, [n, input, output]: [usize; 3], has_bias: bool) {
    let device = device().autodiff();
    let of = |count, seed, shape| tensor(&values(count, seed), shape, &device).require_grad();
    let x = of(n * input, 1, [n, input]);
    let weight = of(input * output, 2, [input, output]);
    let bias: Option<Tensor<1>> =
        has_bias.then(|| tensor(&values(output, 3), [output], &device).require_grad());
    let slopes = tensor(&values(n * output, 4), [n, output], &device);
    let run = |y: Tensor<2>| {
        let gradients = (y.clone() * slopes.clone()).sum().backward();
        let mut all = vec![bits(y), bits(x.grad(&gradients).unwrap())];
        all.push(bits(weight.grad(&gradients).unwrap()));
        all.extend(bias.as_ref().map(|bias| bits(bias.grad(&gradients).unwrap())));
        all
    };
    let computed = layer(x.clone(), weight.clone(), bias.clone(), factors);
    let y = computed.clone().inner();
    let from_known = known_layer(y, x.clone(), weight.clone(), bias.clone(), factors);
    assert_eq!(run(from_known), run(computed));
}

#[test]
fn a_layer_with_a_known_output_has_the_same_gradients() {
    for shape in [[1, 1, 1], [7, 5, 3], [40, 33, 70]] {
        for has_bias in [false, true] {
            for factors in FACTORS {
                check(factors, shape, has_bias);
            }
        }
    }
}

/// On the CPU, the product is not computed again: an output that is wrong is returned as it is.
#[cfg(feature = "flex")]
#[test]
fn the_known_output_is_not_computed() {
    let device = device();
    if !grpo_kernels::is_cpu(&device) {
        return;
    }
    let [y, x] = [1, 2].map(|seed| tensor(&values(12, seed), [3, 4], &device));
    let weight = tensor(&values(16, 3), [4, 4], &device);
    for factors in FACTORS {
        let found = known_layer(y.clone(), x.clone(), weight.clone(), None, factors);
        assert_eq!(bits(found), bits(y.clone()));
    }
}

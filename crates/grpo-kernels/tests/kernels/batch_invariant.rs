//! Products in which the rows don't affect each other.

use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, FloatDType, Tensor};
use grpo_kernels::{
    PackedWeight, batch_invariant_linear, is_cpu, is_packed, pack_four_bits, plain,
    unpack_four_bits,
};
use grpo_runtime::beside;
use proptest::prelude::*;

use crate::support::{assert_close, bits, device, host, tensor, transposed, values};

/// Computes `x · W + b` in f64.
fn oracle(x: &[f64], weight: &[f64], bias: Option<&[f64]>, inner: usize) -> Vec<f64> {
    let columns = weight.len() / inner;
    x.chunks(inner)
        .flat_map(|x| {
            (0..columns).map(move |j| {
                let sum: f64 = x.iter().enumerate().map(|(i, x)| x * weight[i * columns + j]).sum();
                sum + bias.map_or(0.0, |bias| bias[j])
            })
        })
        .collect()
}

/// Returns the weight in its regular layout and as a transposed view of another matrix.
fn layouts(weight: &[f64], [inner, columns]: [usize; 2]) -> [Tensor<2>; 2] {
    let device = device();
    let view = tensor(&transposed(weight, [inner, columns]), [columns, inner], &device).transpose();
    [tensor(weight, [inner, columns], &device), view]
}

#[track_caller]
fn check([rows, inner, columns]: [usize; 3]) {
    let (x, weight) = (values(rows * inner, 1), values(inner * columns, 2));
    let bias = values(columns, 3);
    let device = device();
    let input = || tensor(&x, [rows, inner], &device);
    for layout in layouts(&weight, [inner, columns]) {
        for bias in [None, Some(&bias)] {
            let given = bias.map(|bias| tensor(bias, [columns], &device));
            let got = host(batch_invariant_linear(input(), layout.clone(), given));
            let expected = oracle(&x, &weight, bias.map(Vec::as_slice), inner);
            // At most half an ulp per term, for sums of terms below 1.
            assert_close(&got, &expected, 6e-8 * (2.0 + inner as f64).sqrt());
        }
    }
}

#[test]
fn sizes_around_blocks_and_panels() {
    for rows in [1, 2, 3, 5, 6, 7, 13] {
        for columns in [1, 3, 4, 15, 16, 17, 63, 64, 65, 131] {
            check([rows, 9, columns]);
        }
    }
    for inner in [1, 15, 16, 17, 64, 500] {
        check([4, inner, 70]);
        check([14, inner, 70]);
    }
    check([1, 16, 1]);
}

/// Packed weights give the same bits, for every data type and layout, and any number of threads.
#[test]
fn packed_weights() {
    let device = device();
    for [rows, inner, columns] in
        // The last one has strips of several parts, with every width of vectors.
        [
            [1, 9, 1],
            [2, 128, 32],
            [8, 129, 96],
            [13, 300, 80],
            [32, 64, 1056],
            [8, 4100, 80],
        ]
    {
        let (x, bias) = (values(rows * inner, 1), values(columns, 3));
        let [in_rows, in_columns] = layouts(&values(inner * columns, 2), [inner, columns]);
        let fewer_bits = if columns % 32 == 0 { in_fewer_bits(&in_rows, 32) } else { Vec::new() };
        let shown = format!("{:?}", PackedWeight::new(in_rows.clone()));
        assert_eq!(shown.contains("strips"), is_cpu(&device) && PackedWeight::is_a_copy());
        for weight in [in_rows, in_columns].into_iter().chain(fewer_bits) {
            let packed = PackedWeight::new(weight.clone());
            for bias in [None, Some(tensor(&bias, [columns], &device))] {
                let x = || tensor(&x, [rows, inner], &device);
                let expected = bits(batch_invariant_linear(x(), weight.clone(), bias.clone()));
                assert_eq!(bits(packed.linear(x(), bias.clone())), expected);
                assert_eq!(bits(beside(7, || packed.linear(x(), bias.clone()))), expected);
            }
        }
    }
}

/// Weights of every data type, in their regular layout and as transposed views.
#[test]
fn the_plain_version_is_the_same_within_rounding() {
    let (rows, inner, columns) = (7, 64, 96);
    let device = device();
    let (weight, bias) = (values(inner * columns, 2), values(columns, 3));
    let [in_rows, in_columns] = layouts(&weight, [inner, columns]);
    let fewer_bits = in_fewer_bits(&in_rows, 32);
    for weight in [in_rows, in_columns].into_iter().chain(fewer_bits) {
        for bias in [None, Some(tensor(&bias, [columns], &device))] {
            let run = |operation: fn(Tensor<2>, Tensor<2>, Option<Tensor<1>>) -> Tensor<2>| {
                let x = tensor(&values(rows * inner, 1), [rows, inner], &device);
                host(operation(x, weight.clone(), bias.clone()))
            };
            // Each version deviates from the exact sum by at most half an ulp per term.
            let tolerance = 1.2e-7 * (2.0 + inner as f64).sqrt();
            assert_close(
                &run(plain::batch_invariant_linear),
                &run(batch_invariant_linear),
                tolerance,
            );
        }
    }
}

/// Numbers of an earlier product must not get into columns behind the last whole vector.
#[test]
fn an_earlier_product_is_forgotten() {
    let device = device();
    let nan = tensor(&[f64::NAN; 20 * 64], [20, 64], &device);
    let x = tensor(&values(8 * 20, 1), [8, 20], &device);
    batch_invariant_linear(x.clone(), nan, None);
    let numbers = values(20 * 19, 2);
    let got = batch_invariant_linear(x, tensor(&numbers, [20, 19], &device), None);
    assert_close(&host(got), &oracle(&values(8 * 20, 1), &numbers, None, 20), 1e-6);
}

#[test]
fn nothing_to_compute() {
    let device = device();
    let no_terms = Tensor::<2>::zeros([8, 0], &device);
    let weight = Tensor::<2>::zeros([0, 4], &device);
    assert_eq!(host(batch_invariant_linear(no_terms, weight, None)), [0.0; 32]);
    let x = Tensor::<2>::zeros([8, 3], &device);
    let no_columns = Tensor::<2>::zeros([3, 0], &device);
    assert_eq!(batch_invariant_linear(x, no_columns, None).dims(), [8, 0]);
    let weight = tensor(&values(12, 1), [3, 4], &device);
    let none = Tensor::<2>::zeros([0, 3], &device);
    assert_eq!(batch_invariant_linear(none.clone(), weight.clone(), None).dims(), [0, 4]);
    assert_eq!(PackedWeight::new(weight).linear(none, None).dims(), [0, 4]);
    let no_terms = PackedWeight::new(Tensor::zeros([0, 4], &device));
    assert_eq!(host(no_terms.linear(Tensor::zeros([8, 0], &device), None)), [0.0; 32]);
    let no_columns = PackedWeight::new(Tensor::zeros([3, 0], &device));
    assert_eq!(no_columns.linear(Tensor::zeros([8, 3], &device), None).dims(), [8, 0]);
}

/// Returns the weight in bf16, quantised in blocks of `block` numbers, and packed if possible. GPUs
/// convert such weights to f32, in formats that not all of them have.
fn in_fewer_bits(weight: &Tensor<2>, block: u8) -> Vec<Tensor<2>> {
    if !is_cpu(&weight.device()) {
        return Vec::new();
    }
    let quantized = [QuantValue::Q8S, QuantValue::Q4S].map(|value| {
        let scheme = QuantScheme::default().with_value(value).per_block([block], ScaleDtype::F32);
        weight.clone().quantize_dynamic(&scheme)
    });
    let mut all = [&[weight.clone().cast(FloatDType::BF16)], quantized.as_slice()].concat();
    if weight.dims()[1].is_multiple_of(32) {
        all.push(pack_four_bits(weight.clone()));
    }
    all
}

/// Converts a weight to f32.
fn in_f32(weight: &Tensor<2>) -> Tensor<2> {
    match weight.dtype() {
        _ if is_packed(weight) => unpack_four_bits(weight.clone()),
        DType::QFloat(_) => weight.clone().dequantize(),
        _ => weight.clone().cast(FloatDType::F32),
    }
}

#[test]
fn fewer_bits_are_their_numbers_in_f32() {
    let device = device();
    for (inner, columns, block) in [
        (20, 70, 10),
        (20, 96, 32),
        (150, 320, 32),
        (150, 320, 16),
        (7, 1152, 32),
        (1, 32, 32),
        (130, 64, 64),
        (16, 1, 1),
    ] {
        let weight = tensor(&values(inner * columns, 2), [inner, columns], &device);
        let bias = tensor(&values(columns, 3), [columns], &device);
        for weight in in_fewer_bits(&weight, block) {
            for rows in [1, 5, 6, 7, 40] {
                let product = |weight: Tensor<2>| {
                    let x = tensor(&values(rows * inner, 1), [rows, inner], &device);
                    bits(batch_invariant_linear(x, weight, Some(bias.clone())))
                };
                let name = format!("{:?}, [{rows}, {inner}, {columns}]", weight.dtype());
                assert_eq!(product(weight.clone()), product(in_f32(&weight)), "{name}");
            }
        }
    }
}

/// Views with an offset into their storage, and views that are not stored row by row.
#[test]
fn views_of_bf16_weights() {
    let device = device();
    if !is_cpu(&device) {
        return;
    }
    let all = tensor(&values(30 * 100, 2), [30, 100], &device).cast(FloatDType::BF16);
    let part = all.clone().slice([3..23, 7..77]);
    let x = || tensor(&values(5 * 20, 1), [5, 20], &device);
    let expected = bits(batch_invariant_linear(x(), in_f32(&part), None));
    assert_eq!(bits(batch_invariant_linear(x(), part, None)), expected);
    let columns = all.slice([0..30, 0..20]).transpose();
    let copy = in_f32(&columns).add_scalar(0.0);
    let expected = bits(batch_invariant_linear(x(), copy, None));
    assert_eq!(bits(batch_invariant_linear(x(), columns, None)), expected);
}

/// A weight that is part of another matrix, and one with an unsupported layout.
#[test]
fn views_of_other_matrices() {
    let device = device();
    let all = tensor(&values(30 * 100, 2), [30, 100], &device);
    let part = all.clone().slice([3..23, 7..77]);
    let copy: Vec<f64> = host(part.clone());
    let x = values(4 * 20, 1);
    let got = batch_invariant_linear(tensor(&x, [4, 20], &device), part, None);
    assert_close(&host(got), &oracle(&x, &copy, None, 20), 1e-6);
    let strange: Tensor<2> =
        all.reshape([30, 50, 2]).permute([1, 0, 2]).narrow(0, 0, 20).narrow(2, 1, 1).squeeze_dim(2);
    let copy: Vec<f64> = host(strange.clone());
    let got = batch_invariant_linear(tensor(&x, [4, 20], &device), strange, None);
    assert_close(&host(got), &oracle(&x, &copy, None, 20), 1e-6);
}

/// More columns than a task has.
#[test]
fn wide_weights() {
    let (rows, inner, columns) = (20, 130, 2100);
    let device = device();
    let (x, numbers) = (values(rows * inner, 1), values(inner * columns, 2));
    let weight = tensor(&numbers, [inner, columns], &device);
    let product = |x: &[f64]| {
        let x = tensor(x, [x.len() / inner, inner], &device);
        bits(batch_invariant_linear(x, weight.clone(), None))
    };
    let got: Vec<f64> =
        product(&x).into_iter().map(|bits| f64::from(f32::from_bits(bits))).collect();
    assert_close(&got, &oracle(&x, &numbers, None, inner), 6e-8 * (2.0 + inner as f64).sqrt());
    let one_by_one: Vec<u32> = x.chunks(inner).flat_map(product).collect();
    assert_eq!(product(&x), one_by_one);
    assert_eq!(beside(3, || product(&x)), one_by_one);
}

proptest! {
    /// Each row is bit for bit the same in any batch and with any number of threads.
    #[test]
    fn no_row_depends_on_the_others(
        rows in 1..40_usize, inner in 1..150_usize,
        columns in prop_oneof![1..200_usize, (1..7_usize).prop_map(|blocks| 32 * blocks)],
        threads in 1..4_usize,
    ) {
        let device = device();
        let (x, weight) = (values(rows * inner, 1), values(inner * columns, 2));
        let bias = tensor(&values(columns, 3), [columns], &device);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let [rows_first, columns_first] = layouts(&weight, [inner, columns]);
        let fewer_bits = in_fewer_bits(&rows_first, if columns % 32 == 0 { 32 } else { 1 });
        for layout in [rows_first, columns_first].into_iter().chain(fewer_bits) {
            let product = |x: &[f64]| {
                let x = tensor(x, [x.len() / inner, inner], &device);
                bits(batch_invariant_linear(x, layout.clone(), Some(bias.clone())))
            };
            let together = pool.install(|| product(&x));
            let in_one_task = pool.install(|| beside(3, || product(&x)));
            let one_by_one: Vec<u32> = x.chunks(inner).flat_map(product).collect();
            prop_assert_eq!(&together, &one_by_one);
            prop_assert_eq!(in_one_task, one_by_one);
        }
    }
}

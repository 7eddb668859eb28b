//! Products of factors in 16 bits, against sums in f64.
//!
//! bf16 and f16 take the same path. Mesa's Vulkan driver for CPUs emulates tensor cores for f16.

use burn::backend::Cube;
use burn::tensor::{FloatDType, Tensor};
use grpo_kernels::{
    PackedWeight, batch_invariant_linear, computes_in, has_tensor_cores, is_cpu, product,
    tensor_core_product,
};

use crate::support::{assert_close, bits, device, host, tensor, transposed, values};

/// Returns the 16-bit formats for which `supports` returns true.
fn formats(supports: impl Fn(FloatDType) -> bool) -> Vec<FloatDType> {
    [FloatDType::BF16, FloatDType::F16].into_iter().filter(|&format| supports(format)).collect()
}

fn on_cores() -> Vec<FloatDType> {
    formats(|format| has_tensor_cores(&device(), format.into()))
}

/// Computes `a · b` in f64.
fn oracle(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let sum = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(sum).collect()
}

/// CI sets the variable where it has installed a driver with tensor cores.
#[test]
fn the_driver_has_tensor_cores() {
    if std::env::var_os("GRPO_EXPECT_TENSOR_CORES").is_some() {
        assert!(!on_cores().is_empty(), "the tests of this file test nothing");
    }
}

#[test]
fn blocks_are_multiplied_on_tensor_cores() {
    let device = device();
    for format in on_cores() {
        let shapes = [
            [16, 16, 16],
            [64, 64, 64],
            [1, 1, 1],
            [5, 7, 3],
            [33, 50, 17],
            [70, 129, 66],
            [256, 96, 128],
        ];
        for [m, k, n] in shapes {
            let half = |values: Vec<f64>, shape| tensor(&values, shape, &device).cast(format);
            let (a, b) = (half(values(m * k, 1), [m, k]), half(values(k * n, 2), [k, n]));
            let expected = oracle(&host(a.clone()), &host(b.clone()), [m, k, n]);
            let columns = |x: &Tensor<2>| x.clone().transpose() + 0.0;
            for (a, b) in [
                (a.clone(), b.clone()),
                (columns(&a).transpose(), b.clone()),
                (a.clone(), columns(&b).transpose()),
                (columns(&a).transpose(), columns(&b).transpose()),
            ] {
                let [a, b] = [a, b].map(|x| x.try_into_primitive::<Cube>().unwrap());
                let y = tensor_core_product(&a, &b).expect("the device has tensor cores");
                let y: Tensor<2> = Tensor::from_primitive::<Cube>(y);
                assert_eq!(y.dtype(), burn::tensor::DType::F32);
                assert_close(&host(y), &expected, 1e-6 * (k as f64).sqrt());
            }
        }
    }
}

/// Products with few rows or columns, and those with a long inner dimension, are divided otherwise.
#[test]
fn products_of_any_shape() {
    let device = device();
    for format in formats(|format| computes_in(&device, format.into())) {
        for [m, k, n] in [[8, 128, 96], [128, 96, 8], [96, 1024, 80], [100, 60, 90]] {
            let (a, b) = (values(m * k, 1), transposed(&values(k * n, 2), [k, n]));
            let (a, b) = (tensor(&a, [m, k], &device), tensor(&b, [n, k], &device).transpose());
            let (a, b) = (a.cast(format), b.cast(format));
            let expected = oracle(&host(a.clone()), &host(b.clone()), [m, k, n]);
            let [a, b] = [a, b].map(|x| x.try_into_primitive::<Cube>().unwrap());
            let y: Tensor<2> = Tensor::from_primitive::<Cube>(product(&a, &b));
            assert_close(&host(y), &expected, 1e-6 * (k as f64).sqrt());
        }
    }
}

/// Input that is rounded for products in 16 bits is widened while it is read, too.
#[test]
fn input_is_read_as_it_is() {
    let device = device();
    for format in formats(|format| !is_cpu(&device) && computes_in(&device, format.into())) {
        for [rows, inner, columns] in [[1, 64, 32], [13, 300, 80], [33, 64, 36]] {
            let x = tensor(&values(rows * inner, 1), [rows, inner], &device).cast(format);
            let widened = x.clone().cast(FloatDType::F32);
            let weights = [2, 3, 4]
                .map(|seed| tensor(&values(inner * columns, seed), [inner, columns], &device));
            for weights in [weights.clone(), weights.map(|weight| weight.cast(format))] {
                let [a, b, c] = weights.clone().map(PackedWeight::new);
                let expected = [&a, &b, &c].map(|weight| weight.linear(widened.clone(), None));
                let got = [&a, &b, &c].map(|weight| weight.linear(x.clone(), None));
                assert_eq!(got.map(bits), expected.clone().map(bits));
                let layers = [(&a, None), (&b, None), (&c, None)];
                let joined = PackedWeight::joined_linear(&x, layers).unwrap();
                assert_eq!(bits(joined), bits(Tensor::cat(expected.to_vec(), 1)));
                let layers = || [(&a, None), (&b, None)];
                let gated = PackedWeight::gated_linear(&x, layers()).unwrap();
                let expected = PackedWeight::gated_linear(&widened, layers()).unwrap();
                assert_eq!(bits(gated), bits(expected));
            }
        }
    }
}

/// Weights are widened while they are read, so a product has the bits of one with a widened weight.
#[test]
fn weights_are_read_as_they_are() {
    let device = device();
    for format in formats(|format| computes_in(&device, format.into())) {
        for [rows, inner, columns] in [[1, 64, 32], [13, 300, 80], [9, 50, 7], [32, 64, 1056]] {
            let x = tensor(&values(rows * inner, 1), [rows, inner], &device);
            let bias = Some(tensor(&values(columns, 3), [columns], &device));
            let weight = values(inner * columns, 2);
            let in_rows = tensor(&weight, [inner, columns], &device);
            let in_columns =
                tensor(&transposed(&weight, [inner, columns]), [columns, inner], &device);
            for weight in [in_rows, in_columns.transpose()] {
                let weight = weight.cast(format);
                let widened = weight.clone().cast(FloatDType::F32);
                let expected = bits(batch_invariant_linear(x.clone(), widened, bias.clone()));
                let got = batch_invariant_linear(x.clone(), weight.clone(), bias.clone());
                assert_eq!(bits(got), expected);
                let packed = PackedWeight::new(weight).linear(x.clone(), bias.clone());
                assert_eq!(bits(packed), expected);
            }
        }
    }
}

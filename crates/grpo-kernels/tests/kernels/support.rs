//! Shared test helpers: inputs, comparisons and finite differences.

use burn::tensor::{Device, Tensor, TensorData};

/// Returns the device under test: the CPU, or the device that Burn's environment variable
/// `BURN_DEVICE` names.
pub(crate) fn device() -> Device {
    #[cfg(feature = "flex")]
    if std::env::var_os("BURN_DEVICE").is_none() {
        return Device::flex();
    }
    Device::default()
}

/// Returns deterministic pseudorandom values in −3..3.
pub(crate) fn values(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Rounded to f32, so that the reference and the kernel see the same numbers.
            f64::from(((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 6.0)
        })
        .collect()
}

pub(crate) fn tensor<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

pub(crate) fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// Returns the transpose of a matrix with these dimensions.
pub(crate) fn transposed(values: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
}

/// Returns the output of `f`, and the gradients of `Σ w · f(inputs)` computed with Burn's autodiff.
pub(crate) fn differentiate<const D: usize, const I: usize, const N: usize>(
    inputs: [Tensor<I>; N],
    w: &[f64],
    f: impl Fn([Tensor<I>; N]) -> Tensor<D>,
) -> (Vec<f64>, [Vec<f64>; N]) {
    let inputs = inputs.map(Tensor::require_grad);
    let output = f(inputs.clone());
    let weights = tensor(w, output.dims(), &output.device());
    let gradients = (output.clone() * weights).sum().backward();
    (host(output), inputs.map(|input| host(input.grad(&gradients).unwrap())))
}

/// Returns a factor of tolerances. The exponential of a GPU is accurate to `3 + 2 |x|` units in the
/// last place (WGSL, section 15.7.4.2), and ours on the CPU to one.
fn slack() -> f64 {
    if grpo_kernels::is_cpu(&device()) { 1.0 } else { 4.0 }
}

/// Compares values relative to the largest of `expected`, or to 1 if that is larger.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let scale = slack() * expected.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance * scale, "element {i}: {g}, expected {e}");
    }
}

/// Like [`assert_close`], but relative to each element.
#[track_caller]
pub(crate) fn assert_each_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let tolerance = slack() * tolerance * e.abs().max(1.0);
        assert!((g - e).abs() <= tolerance, "element {i}: {g}, expected {e}");
    }
}

/// Computes d(Σ w·f(x))/dx with central differences in f64. The error is about 1e-9.
pub(crate) fn finite_differences(x: &[f64], f: impl Fn(&[f64]) -> Vec<f64>, w: &[f64]) -> Vec<f64> {
    let h = 1e-5;
    let dot = |x: &[f64]| f(x).iter().zip(w).map(|(y, w)| y * w).sum::<f64>();
    (0..x.len())
        .map(|i| {
            let mut moved = x.to_vec();
            moved[i] = x[i] + h;
            let up = dot(&moved);
            moved[i] = x[i] - h;
            (up - dot(&moved)) / (2.0 * h)
        })
        .collect()
}

//! Inner loops that the compiler can vectorise.
//!
//! All functions are `inline(always)`, so they are compiled with the instruction set of the calling
//! `multiversion` function.

/// Number of accumulator lanes. It is fixed, so sums don't depend on the machine's vector width.
pub const LANES: usize = 16;

/// Number of elements per task in elementwise operations.
#[cfg(feature = "flex")]
pub(crate) const CHUNK: usize = 16 * 1024;

/// Number of rows per task in normalisation. Parameter gradients are summed within each task, and
/// then across tasks in order.
#[cfg(feature = "flex")]
pub(crate) const ROWS: usize = 128;

/// Computes `e^x` to within 2 ulp for `x` in −87..88. Inputs outside this range are clamped.
///
/// Uses the Cody–Waite range reduction `x = n·ln 2 + r`, `|r| ≤ ½ ln 2`, and the degree-6
/// polynomial for `e^r` from Cephes' `expf`.
#[inline(always)]
#[expect(clippy::excessive_precision, reason = "constants are written exactly as published")]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding 1.5 · 2²³ rounds to an integer, which ends up in the low bits.
    let shifted = x * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let r = x - n * 0.693_359_375 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5.000_000_1e-1;
    let e = p * (r * r) + r + 1.0;
    f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23)) * e
}

/// Computes `(σ(x), 1 − σ(x))`, where σ is the logistic function. Both are accurate to a few ulp,
/// down to e⁻⁸⁷.
#[cfg(feature = "flex")]
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> (f32, f32) {
    // Using −|x| avoids overflow, and cancellation near 1.
    let e = exp(-x.abs());
    let larger = 1.0 / (1.0 + e);
    let smaller = e * larger;
    if x < 0.0 { (smaller, larger) } else { (larger, smaller) }
}

/// Computes `tanh(x)` to within a few ulp, with the polynomial of Cephes' `tanhf` for small values.
#[cfg(feature = "flex")]
#[inline(always)]
#[expect(clippy::excessive_precision, reason = "constants are written exactly as published")]
pub(crate) fn tanh(x: f32) -> f32 {
    let z = x * x;
    let mut p = -5.704_988_727_45e-3;
    p = p * z + 2.063_908_879_54e-2;
    p = p * z - 5.373_971_555_31e-2;
    p = p * z + 1.333_144_220_36e-1;
    p = p * z - 3.333_328_194_22e-1;
    let near = p * z * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { near } else { far.copysign(x) }
}

/// Computes `cap · tanh(score / cap)`.
#[cfg(feature = "flex")]
#[inline(always)]
pub(crate) fn capped(score: f32, cap: f32) -> f32 {
    cap * tanh(score / cap)
}

/// Sums `f` over slices of equal length, using [`LANES`] accumulators in a fixed order.
#[cfg(feature = "flex")]
#[inline(always)]
pub(crate) fn sum<const N: usize>(of: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let n = of[0].len();
    let of = of.map(|slice| &slice[..n]);
    let chunks = of.map(|slice| slice.as_chunks::<LANES>().0);
    let mut lanes = [0.0f32; LANES];
    for chunk in 0..n / LANES {
        let chunks = chunks.map(|chunks| &chunks[chunk]);
        for (lane, value) in lanes.iter_mut().enumerate() {
            *value += f(chunks.map(|chunk| chunk[lane]));
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for i in n - n % LANES..n {
        total += f(of.map(|slice| slice[i]));
    }
    total
}

/// Returns the maximum of a slice, or `−∞` if it is empty.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.into_iter().chain(chunks.remainder().iter().copied()).fold(f32::NEG_INFINITY, f32::max)
}

#[cfg(test)]
mod tests {
    #[test]
    fn exp_is_within_two_ulp() {
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let expected = f64::from(x).exp();
            let ulp = f64::from(f32::EPSILON) * expected;
            let got = f64::from(super::exp(x));
            assert!((got - expected).abs() <= 2.0 * ulp, "exp({x}) = {got}, expected {expected}");
        }
    }

    #[test]
    #[cfg(feature = "flex")]
    fn sigmoid_and_its_complement_are_within_four_ulp() {
        for i in -8700..=8700 {
            let x = i as f32 * 1e-2;
            let (sigmoid, complement) = super::sigmoid(x);
            for (x, got) in [(x, sigmoid), (-x, complement)] {
                let expected = 1.0 / (1.0 + (-f64::from(x)).exp());
                let ulp = f64::from(f32::EPSILON) * expected;
                let error = (f64::from(got) - expected).abs();
                assert!(error <= 4.0 * ulp, "σ({x}) = {got}, expected {expected}");
            }
        }
    }

    #[test]
    #[cfg(feature = "flex")]
    fn tanh_is_within_three_ulp() {
        for i in -100_000..=100_000 {
            let x = i as f32 * 1e-4;
            let expected = f64::from(x).tanh();
            let ulp = f64::from(f32::EPSILON) * expected.abs();
            let got = f64::from(super::tanh(x));
            assert!((got - expected).abs() <= 3.0 * ulp, "tanh({x}) = {got}, expected {expected}");
        }
        assert_eq!([1e9, -1e9, 0.0].map(super::tanh), [1.0, -1.0, 0.0]);
    }

    #[test]
    #[cfg(feature = "flex")]
    fn sum_and_max_see_every_element() {
        for n in 0..70 {
            let values: Vec<f32> = (0..n).map(|i| i as f32 - 20.0).collect();
            let expected: f32 = values.iter().sum();
            assert_eq!(super::sum([&values], |[value]| value), expected);
            assert_eq!(super::sum([&values, &values], |[a, b]| 2.0 * a - b), expected);
            let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(super::max(&values), largest);
        }
    }
}

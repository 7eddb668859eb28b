//! Rounding to f16.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use multiversion::multiversion;
use rayon::prelude::*;

use super::map_chunks;
use crate::flex::primitive;
use crate::simd::CHUNK;

/// Rounds to f16 without autodiff.
pub(crate) fn rounded_to_f16(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_primitive::<Flex>(rounded(primitive(x), 1.0))
}

/// Multiplies by a power of two and rounds to f16.
pub(super) fn rounded(x: FlexTensor, scale: f32) -> FlexTensor {
    map_chunks([x], CHUNK, |_, [x], y| round_chunk(x, y, scale))
}

/// Returns `x · by`.
pub(super) fn scaled(x: FlexTensor, by: f32) -> FlexTensor {
    map_chunks([x], CHUNK, |_, [x], y| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * by);
    })
}

/// Returns the power of two that brings the largest magnitude to between 2¹⁴ and 2¹⁵, and its inverse.
/// Neither is subnormal.
pub(super) fn scale_of(x: &FlexTensor) -> [f32; 2] {
    let x = x.to_contiguous();
    let of_chunks: Vec<u32> = x.storage::<f32>().par_chunks(CHUNK).map(largest_exponent).collect();
    let exponent = of_chunks.into_iter().max().unwrap_or(0);
    let scale = (127 + 127 + 14 - exponent).min(253);
    [scale, 254 - scale].map(|exponent| f32::from_bits(exponent << 23))
}

/// Returns the largest biased exponent.
#[multiversion(targets = "simd")]
fn largest_exponent(x: &[f32]) -> u32 {
    x.iter().map(|x| x.to_bits() >> 23 & 0xff).max().unwrap_or(0)
}

#[multiversion(targets = "simd")]
fn round_chunk(x: &[f32], y: &mut [f32], scale: f32) {
    for (x, y) in x.iter().zip(y) {
        *y = nearest(x * scale);
    }
}

/// Rounds to the nearest f16, ties to even.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & !0x1fff;
    // The numbers from 0.5 to 1 are multiples of 2⁻²⁴, like those that are subnormal in f16.
    let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let rounded = match magnitude {
        ..0x3880_0000 => subnormal,
        // Including numbers that would be rounded up to 2¹⁶.
        0x3880_0000..0x477f_f000 => normal,
        0x477f_f000..=0x7f80_0000 => f32::INFINITY.to_bits(),
        _ => f32::NAN.to_bits(),
    };
    f32::from_bits(rounded | bits & 0x8000_0000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, f16};

    #[test]
    fn numbers_are_rounded_like_f16() {
        // All upper halves, with lower halves around the ties.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x8000, 0xffff] {
                let x = f32::from_bits(u32::from(upper) << 16 | lower);
                let (expected, got) = (f16::from_f32(x).to_f32(), nearest(x));
                if x.is_nan() {
                    assert!(got.is_nan(), "{x}");
                } else {
                    assert_eq!(got.to_bits(), expected.to_bits(), "{x:e}");
                }
            }
        }
    }

    #[test]
    fn the_largest_number_is_scaled_to_the_upper_end_of_the_range() {
        let scale = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [1, values.len()]);
            scale_of(&primitive(Tensor::<2>::from_data(data, &Device::flex())))
        };
        for (largest, expected) in [
            (1.0, 14),
            (-1.9, 14),
            (3e-9, 14 + 29),
            (65_504.0, -1),
            (f32::MAX, 14 - 127),
            // The scale has to be a number, and so does its inverse.
            (1e-38, 126),
            (f32::from_bits(1), 126),
            (0.0, 126),
            (f32::INFINITY, 14 - 128),
            (f32::NAN, 14 - 128),
        ] {
            let expected = 2_f32.powi(expected);
            assert_eq!(scale(&[0.0, largest, 1e-40]), [expected, 1.0 / expected], "{largest}");
        }
        assert_eq!(scale(&[]), [2_f32.powi(126), 2_f32.powi(-126)]);
    }
}

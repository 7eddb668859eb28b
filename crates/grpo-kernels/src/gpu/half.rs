//! Rounding to 16 bits.
//!
//! The result is in 16 bits if the device has tensor cores for the format. Otherwise it is in `f32`,
//! because not every device has these formats.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::block_product::{client_has_tensor_cores, element};
use super::matmul::transposed;
use super::reduce::{UNITS, max_of_units};
use super::{cube_each, elements, empty, empty_in, primitive, unit_each};
use crate::half::Half;

/// Rounds without autodiff.
pub(crate) fn rounded(x: Tensor<2>, format: Half) -> Tensor<2> {
    Tensor::from_primitive::<Cube>(round(primitive(x), format))
}

/// Rounds to nearest, ties to even. A transposed view remains transposed.
pub(super) fn round(x: CubeTensor, format: Half) -> CubeTensor {
    match x.meta.strides()[..] {
        [1, stride] if stride > 1 && stride == x.shape()[0] => {
            transposed(round_rows(transposed(x), format))
        }
        _ => round_rows(x, format),
    }
}

fn round_rows(x: CubeTensor, format: Half) -> CubeTensor {
    if x.dtype != DType::F32 {
        return x;
    }
    let x = into_contiguous(x);
    let y = empty_in(rounded_type(&x, format), &x, x.shape().to_vec());
    let (count, dim) = unit_each(&x.client, elements(&x));
    round_each::launch(
        &y.client,
        count,
        dim,
        x.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        format,
        element(y.dtype),
    );
    y
}

fn rounded_type(x: &CubeTensor, format: Half) -> DType {
    let is_stored = client_has_tensor_cores(&x.client, format.dtype());
    if is_stored { format.dtype() } else { DType::F32 }
}

/// Largest number of parts in which a maximum is computed.
const PARTS: usize = 512;
/// Smallest number of elements for each unit.
const PER_UNIT: usize = 16;

/// Multiplies by the power of two that brings the largest magnitude to between 2¹⁴ and 2¹⁵, and rounds.
/// Returns the inverse of that power too, `[1]`. Nothing is read back.
pub(super) fn round_scaled_to_f16(x: CubeTensor) -> (CubeTensor, CubeTensor) {
    let format = Half::F16;
    let x = into_contiguous(x);
    let count = elements(&x);
    let parts = count.div_ceil(UNITS * PER_UNIT).clamp(1, PARTS);
    let (exponents, unscale) = (empty(&x, [parts]), empty(&x, [1]));
    let (cubes, dim) = cube_each(&x.client, parts);
    largest_exponents::launch(
        &x.client,
        cubes,
        dim,
        x.clone().into_buffer_arg(),
        exponents.clone().into_buffer_arg(),
        count,
        parts,
    );
    let y = empty_in(rounded_type(&x, format), &x, x.shape().to_vec());
    let (cubes, dim) = cube_each(&x.client, count.div_ceil(UNITS * PER_UNIT).max(1));
    round_each_scaled::launch(
        &y.client,
        cubes,
        dim,
        x.into_buffer_arg(),
        exponents.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        unscale.clone().into_buffer_arg(),
        count,
        parts,
        element(y.dtype),
    );
    (y, unscale)
}

/// Multiplies by the only element of `by`, in place. Nothing else has the memory of `x`.
pub(super) fn scale(x: CubeTensor, by: &CubeTensor) -> CubeTensor {
    let count = elements(&x);
    let (cubes, dim) = unit_each(&x.client, count);
    let (client, by) = (x.client.clone(), by.clone().into_buffer_arg());
    scale_each::launch(&client, cubes, dim, x.clone().into_buffer_arg(), by, count);
    x
}

#[cube(launch)]
fn round_each<T: Float>(
    x: &[f32],
    y: &mut [T],
    #[comptime] format: Half,
    #[define(T)] _type: ElemType,
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    y[ABSOLUTE_POS] = T::cast_from(nearest(x[ABSOLUTE_POS], format));
}

/// Writes the largest biased exponent of each part, as a number.
#[cube(launch)]
fn largest_exponents(x: &[f32], exponents: &mut [f32], count: usize, parts: usize) {
    let part = CUBE_POS;
    if part >= parts {
        terminate!();
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime!(UNITS));
    let mut largest = 0u32;
    let mut at = part * UNITS + UNIT_POS as usize;
    while at < count {
        let exponent = (u32::reinterpret(x[at]) >> 23u32) & 0xffu32;
        largest = largest.max(exponent);
        at += parts * UNITS;
    }
    let of_part = max_of_units(f32::cast_from(largest), &mut shared);
    if UNIT_POS == 0 {
        exponents[part] = of_part;
    }
}

#[cube(launch)]
fn round_each_scaled<T: Float>(
    x: &[f32],
    exponents: &[f32],
    y: &mut [T],
    unscale: &mut [f32],
    count: usize,
    parts: usize,
    #[define(T)] _type: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(UNITS));
    let mut largest = 0.0f32;
    let mut part = UNIT_POS as usize;
    while part < parts {
        largest = largest.max(exponents[part]);
        part += UNITS;
    }
    let largest = max_of_units(largest, &mut shared);
    // As on the CPU: neither the scale nor its inverse is subnormal.
    let exponent = (268u32 - u32::cast_from(largest)).min(253u32);
    let scale = f32::reinterpret(exponent << 23u32);
    if ABSOLUTE_POS == 0 {
        unscale[0] = f32::reinterpret((254u32 - exponent) << 23u32);
    }
    let mut at = CUBE_POS * comptime!(UNITS * PER_UNIT) + UNIT_POS as usize;
    let end = (at + comptime!(UNITS * PER_UNIT)).min(count);
    while at < end {
        y[at] = T::cast_from(nearest(x[at] * scale, comptime!(Half::F16)));
        at += UNITS;
    }
}

#[cube(launch)]
fn scale_each(x: &mut [f32], by: &[f32], count: usize) {
    if ABSOLUTE_POS < count {
        x[ABSOLUTE_POS] *= by[0];
    }
}

/// Rounds to nearest, ties to even, with integers, because drivers may round in other ways. The result can
/// be converted to 16 bits exactly, but a driver may flush subnormal numbers of f16 then.
#[cube]
fn nearest(x: f32, #[comptime] format: Half) -> f32 {
    let bits = u32::reinterpret(x);
    let magnitude = bits & 0x7fff_ffffu32;
    let mut rounded = if comptime!(format == Half::Bf16) {
        nearest_bf16(magnitude)
    } else {
        nearest_f16(magnitude)
    };
    if magnitude > 0x7f80_0000u32 {
        // Rounding could turn NaN into infinity.
        rounded = 0x7fc0_0000u32;
    }
    f32::reinterpret(rounded | (bits & 0x8000_0000u32))
}

/// Rounds the bits of a positive number. Subnormal numbers become 0.
#[cube]
fn nearest_bf16(magnitude: u32) -> u32 {
    let mut rounded = (magnitude + 0x7fffu32 + ((magnitude >> 16u32) & 1u32)) & 0xffff_0000u32;
    if magnitude < 0x0080_0000u32 {
        rounded = 0u32;
    }
    rounded
}

/// Rounds the bits of a positive number.
#[cube]
fn nearest_f16(magnitude: u32) -> u32 {
    let mut rounded = (magnitude + 0xfffu32 + ((magnitude >> 13u32) & 1u32)) & 0xffff_e000u32;
    // Including numbers that would be rounded up to 2¹⁶.
    if magnitude >= 0x477f_f000u32 {
        rounded = 0x7f80_0000u32;
    }
    // Subnormal in f16: a multiple of 2⁻²⁴.
    if magnitude < 0x3880_0000u32 {
        let mantissa = (magnitude & 0x007f_ffffu32) | 0x0080_0000u32;
        let shift = (126u32 - (magnitude >> 23u32)).min(25u32);
        let odd = (mantissa >> shift) & 1u32;
        let multiple = (mantissa + (1u32 << (shift - 1u32)) - 1u32 + odd) >> shift;
        rounded = u32::reinterpret(f32::cast_from(multiple) * 5.960_464_5e-8f32);
    }
    rounded
}

//! Values of stored blocks as f32, in the arithmetic of ggml, so that they have the same bits.
//!
//! The layouts are those of `ggml-common.h`. Multi-byte numbers are little-endian. A nibble is half a
//! byte; the lower ones come first.

use half::bf16;

use crate::k_quants::{self, half_at};
use crate::tensor_type::TensorType;

/// Appends the values of whole blocks.
///
/// # Panics
/// Panics if `bytes` is not a whole number of blocks.
pub(crate) fn dequantize(kind: TensorType, bytes: &[u8], values: &mut Vec<f32>) {
    let size = kind.block_bytes();
    assert!(
        bytes.len().is_multiple_of(size),
        "{} bytes are not whole blocks of {size}",
        bytes.len()
    );
    let block: fn(&[u8], &mut Vec<f32>) = match kind {
        TensorType::F32 => |block, values| {
            values.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        },
        TensorType::F16 => |block, values| values.push(half_at(block, 0)),
        TensorType::BF16 => {
            |block, values| values.push(bf16::from_le_bytes([block[0], block[1]]).to_f32())
        }
        TensorType::Q4_0 => q4_0,
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q5_1 => q5_1,
        TensorType::Q8_0 => q8_0,
        TensorType::Q2_K => k_quants::q2_k,
        TensorType::Q3_K => k_quants::q3_k,
        TensorType::Q4_K => k_quants::q4_k,
        TensorType::Q5_K => k_quants::q5_k,
        TensorType::Q6_K => k_quants::q6_k,
        TensorType::Q8_K => k_quants::q8_k,
    };
    for bytes in bytes.chunks_exact(size) {
        block(bytes, values);
    }
}

/// The 32 nibbles of 16 bytes: the lower ones of all bytes, then the upper ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

/// Nibbles with a fifth bit each, from a mask of 32 bits.
fn five_bits<'a>(mask: &[u8], bytes: &'a [u8]) -> impl Iterator<Item = u8> + 'a {
    let mask = u32::from_le_bytes([mask[0], mask[1], mask[2], mask[3]]);
    nibbles(bytes).enumerate().map(move |(i, low)| low | (((mask >> i) & 1) as u8) << 4)
}

/// Scale, 16 bytes of nibbles that are 8 too large.
fn q4_0(block: &[u8], values: &mut Vec<f32>) {
    let scale = half_at(block, 0);
    values.extend(nibbles(&block[2..]).map(|q| scale * f32::from(q as i8 - 8)));
}

/// Scale, minimum, 16 bytes of nibbles.
fn q4_1(block: &[u8], values: &mut Vec<f32>) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    values.extend(nibbles(&block[4..]).map(|q| scale * f32::from(q) + least));
}

/// Scale, mask of fifth bits, 16 bytes of nibbles; 16 too large.
fn q5_0(block: &[u8], values: &mut Vec<f32>) {
    let scale = half_at(block, 0);
    values.extend(five_bits(&block[2..6], &block[6..]).map(|q| scale * f32::from(q as i8 - 16)));
}

/// Scale, minimum, mask of fifth bits, 16 bytes of nibbles.
fn q5_1(block: &[u8], values: &mut Vec<f32>) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    values.extend(five_bits(&block[4..8], &block[8..]).map(|q| scale * f32::from(q) + least));
}

/// Scale, 32 signed bytes.
fn q8_0(block: &[u8], values: &mut Vec<f32>) {
    let scale = half_at(block, 0);
    values.extend(block[2..].iter().map(|q| f32::from(*q as i8) * scale));
}

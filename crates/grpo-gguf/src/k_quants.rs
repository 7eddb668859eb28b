//! Blocks of 256 values with scales of their own for parts of 16 or 32 values ("K-quants").

use half::f16;

/// Returns the f16 number at byte `at`.
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 16 bytes of scales (lower nibble) and minima (upper nibble), 64 bytes of two bits, scale of the
/// scales, scale of the minima.
pub(crate) fn q2_k(block: &[u8], values: &mut Vec<f32>) {
    let (scale, least) = (half_at(block, 80), half_at(block, 82));
    let quants = &block[16..80];
    for (part, scales) in block[..16].iter().enumerate() {
        let (scale, least) = (scale * f32::from(scales & 15), least * f32::from(scales >> 4));
        for i in 0..16 {
            let q = two_bits(quants, part, i);
            values.push(scale * f32::from(q) - least);
        }
    }
}

/// Two bits of value `i` of a part of 16: 128 values take 32 bytes, 32 values each two bits of them.
fn two_bits(quants: &[u8], part: usize, i: usize) -> u8 {
    let (half, shift, byte) = (part / 8, part % 8 / 2, part % 2 * 16 + i);
    (quants[half * 32 + byte] >> (2 * shift)) & 3
}

/// 32 bytes of third bits, 64 bytes of two bits, 12 bytes of 16 scales with six bits, scale of the
/// scales.
pub(crate) fn q3_k(block: &[u8], values: &mut Vec<f32>) {
    let (mask, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for part in 0..16 {
        let low = if part < 8 { scales[part] & 15 } else { scales[part - 8] >> 4 };
        let high = (scales[8 + part % 4] >> (2 * (part / 4))) & 3;
        let scale = scale * f32::from((low | high << 4) as i8 - 32);
        for i in 0..16 {
            let bit = (mask[part % 2 * 16 + i] >> (part / 2)) & 1;
            // A third bit that is set means that nothing is subtracted.
            let q = two_bits(quants, part, i) as i8 - if bit == 1 { 0 } else { 4 };
            values.push(scale * f32::from(q));
        }
    }
}

/// Scale and minimum, six bits each, of the 8 parts that share 12 bytes.
fn scale_and_least(scales: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        return (scales[part] & 63, scales[part + 4] & 63);
    }
    let low = scales[part + 4];
    ((low & 15) | (scales[part - 4] >> 6) << 4, (low >> 4) | (scales[part] >> 6) << 4)
}

/// Scale of the scales, scale of the minima, 12 bytes of scales and minima, 128 bytes of nibbles.
pub(crate) fn q4_k(block: &[u8], values: &mut Vec<f32>) {
    k_with_least(block, &block[16..144], None, values);
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles.
pub(crate) fn q5_k(block: &[u8], values: &mut Vec<f32>) {
    k_with_least(block, &block[48..176], Some(&block[16..48]), values);
}

fn k_with_least(block: &[u8], quants: &[u8], fifth: Option<&[u8]>, values: &mut Vec<f32>) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    for part in 0..8 {
        let (of_scale, of_least) = scale_and_least(&block[4..16], part);
        let (scale, least) = (scale * f32::from(of_scale), least * f32::from(of_least));
        for i in 0..32 {
            let low = (quants[part / 2 * 32 + i] >> (part % 2 * 4)) & 15;
            let high = fifth.map_or(0, |fifth| (fifth[i] >> part) & 1);
            values.push(scale * f32::from(low | high << 4) - least);
        }
    }
}

/// 128 bytes of nibbles, 64 bytes of two upper bits, 16 signed scales, scale of the scales; 32 too
/// large.
pub(crate) fn q6_k(block: &[u8], values: &mut Vec<f32>) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for part in 0..8 {
        let (half, quarter) = (part / 4, part % 4);
        for i in 0..32 {
            let bits = low[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
            let upper = (high[half * 32 + i] >> (2 * quarter)) & 3;
            let scale = scale * f32::from(scales[part * 2 + i / 16] as i8);
            values.push(scale * f32::from((bits | upper << 4) as i8 - 32));
        }
    }
}

/// Scale in f32, 256 signed bytes, 16 sums that only products need.
pub(crate) fn q8_k(block: &[u8], values: &mut Vec<f32>) {
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    values.extend(block[4..260].iter().map(|q| scale * f32::from(*q as i8)));
}

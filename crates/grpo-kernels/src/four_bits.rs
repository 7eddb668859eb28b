//! Four-bit weights, packed two to a byte.
//!
//! Burn's CPU backend uses one byte per number for every integer format. A packed weight is
//! therefore a custom quantised tensor with half as many columns, and Burn's operations must not
//! see it. Only [`batch_invariant_linear`](crate::batch_invariant_linear) reads it directly;
//! everything else unpacks it first. `Q4F` marks such tensors, because nothing else creates this
//! format on the CPU.

use burn::tensor::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};

/// Number of adjacent weights in a row that share a scale.
pub(crate) const SHARED: usize = 32;
/// Number of bytes for [`SHARED`] weights. The low halves of the bytes are the first weights.
pub(crate) const BYTES: usize = SHARED / 2;
/// Largest integer; the smallest is its negative.
const LARGEST: f32 = 7.0;

/// Returns the scheme of packed tensors: one scale for [`BYTES`] bytes.
pub(crate) fn scheme() -> QuantScheme {
    QuantScheme::default()
        .with_value(QuantValue::Q4F)
        .with_store(QuantStore::Native)
        .per_block([BYTES as u8], ScaleDtype::F32)
}

/// Returns whether a weight was packed by [`pack_four_bits`].
pub fn is_packed<const D: usize>(weight: &Tensor<D>) -> bool {
    weight.dtype() == DType::QFloat(scheme())
}

/// Returns the unpacked shape of a weight, whether or not it is packed.
pub fn unpacked_shape<const D: usize>(weight: &Tensor<D>) -> [usize; D] {
    let mut shape = weight.dims();
    if is_packed(weight) {
        shape[D - 1] *= 2;
    }
    shape
}

/// Rounds each weight to the nearest of 15 multiples of a scale and packs two weights into each
/// byte. The scale is 1/7 of the largest magnitude among 32 adjacent weights in a row.
///
/// # Shapes
/// - weight: `[in, out]` in `f32` on the CPU, `out` a multiple of 32
/// - result: `[in, out / 2]`
///
/// # Panics
/// Panics if `out` is not a multiple of 32.
pub fn pack_four_bits(weight: Tensor<2>) -> Tensor<2> {
    let ([rows, columns], device) = (weight.dims(), weight.device());
    assert!(columns.is_multiple_of(SHARED), "{columns} columns are not a multiple of {SHARED}");
    let (mut bytes, mut scales) = (Vec::new(), Vec::new());
    crate::on_host(weight, |weights| {
        for block in weights.as_chunks::<SHARED>().0 {
            let largest = block.iter().fold(0.0_f32, |most, weight| most.max(weight.abs()));
            let scale = largest / LARGEST;
            let integer = |weight: f32| match largest {
                0.0 => 0,
                _ => (weight / scale).round().clamp(-LARGEST, LARGEST) as i8,
            };
            let (low, high) = block.split_at(BYTES);
            bytes.extend(low.iter().zip(high).map(|(&l, &h)| integer(l) & 15 | integer(h) << 4));
            scales.push(scale);
        }
    });
    let data = TensorData::quantized(bytes, [rows, columns / 2], scheme(), &scales, None);
    Tensor::from_data(data, &device)
}

/// Converts a weight in any supported format to `f32`: `bf16`, `f16`, quantised by Burn, or packed
/// by [`pack_four_bits`]. Weights in `f32` are returned unchanged.
pub fn dense<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    match weight.dtype() {
        DType::BF16 | DType::F16 => weight.cast(FloatDType::F32),
        DType::QFloat(_) if is_packed(&weight) => unpack_four_bits(weight),
        DType::QFloat(_) => weight.dequantize(),
        _ => weight,
    }
}

/// Unpacks a weight to `f32`, `[in, out]`.
///
/// # Panics
/// Panics if the weight is not packed.
pub fn unpack_four_bits<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    assert!(is_packed(&weight), "the weight is not packed");
    let (shape, device) = (unpacked_shape(&weight), weight.device());
    let data = weight.into_data();
    let bytes: &[i8] = bytemuck::cast_slice(data.as_bytes());
    // The bytes of the scales come last. They are copied because they may be unaligned.
    let (bytes, scales) = bytes.split_at(shape.iter().product::<usize>() / 2);
    let scales = scales.as_chunks::<4>().0;
    let mut numbers = Vec::with_capacity(2 * bytes.len());
    for (bytes, scale) in bytes.as_chunks::<BYTES>().0.iter().zip(scales) {
        let scale = f32::from_ne_bytes(scale.map(i8::cast_unsigned));
        numbers.extend(bytes.iter().map(|&byte| low(byte) * scale));
        numbers.extend(bytes.iter().map(|&byte| high(byte) * scale));
    }
    Tensor::from_data(TensorData::new(numbers, shape), &device)
}

/// Returns the integer in the low half of a byte.
#[inline(always)]
pub(crate) fn low(byte: i8) -> f32 {
    f32::from((byte << 4) >> 4)
}

/// Returns the integer in the high half of a byte.
#[inline(always)]
pub(crate) fn high(byte: i8) -> f32 {
    f32::from(byte >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn numbers_are_the_nearest_multiples() {
        let device = Device::flex();
        let weights: Vec<f32> = (0..3 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect();
        let weight = Tensor::<2>::from_data(TensorData::new(weights.clone(), [3, 64]), &device);
        let packed = pack_four_bits(weight);
        assert!(is_packed(&packed));
        assert_eq!((packed.dims(), unpacked_shape(&packed)), ([3, 32], [3, 64]));
        let unpacked = unpack_four_bits(packed);
        assert!(!is_packed(&unpacked));
        let got: Vec<f32> = unpacked.into_data().iter().collect();
        for (block, got) in weights.chunks(32).zip(got.chunks(32)) {
            let scale = block.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 7.0;
            for (x, got) in block.iter().zip(got) {
                // The nearest of the 15 values, found by trying all.
                let nearest = (-7..=7)
                    .map(|q| q as f32 * scale)
                    .min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs()));
                assert_eq!(Some(*got), nearest, "{x}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let zeros = Tensor::<2>::zeros([2, 32], &Device::flex());
        let back: Vec<f32> = unpack_four_bits(pack_four_bits(zeros)).into_data().iter().collect();
        assert_eq!(back, [0.0; 64]);
    }

    #[test]
    #[should_panic(expected = "not a multiple of 32")]
    fn other_rows_are_refused() {
        pack_four_bits(Tensor::<2>::zeros([2, 48], &Device::flex()));
    }
}

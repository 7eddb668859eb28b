//! Values as stored blocks.

use half::{bf16, f16};

use crate::error::{Result, unfit};
use crate::tensor_type::TensorType;

/// A type in which matrices of a written file are stored. Vectors and norms are stored in F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats with values up to 65504.
    F16,
    /// The upper half of 32-bit floats.
    Bf16,
    /// Blocks of 32 values with 8 bits and a scale.
    Q8_0,
}

impl StoredType {
    /// Returns the type with the name that `--gguf` takes.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => Self::F32,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "q8_0" => Self::Q8_0,
            _ => return None,
        })
    }

    /// Returns the number of `general.file_type`.
    pub(crate) fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Bf16 => 32,
        }
    }

    /// Returns how a tensor of this shape is stored, as llama.cpp's converter does: vectors and norms in
    /// F32, and rows that are not whole blocks in F16.
    pub(crate) fn of(self, name: &str, shape: &[usize]) -> TensorType {
        if shape.len() < 2 || name.ends_with("_norm.weight") {
            return TensorType::F32;
        }
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Bf16 => TensorType::BF16,
            Self::Q8_0 if shape[shape.len() - 1].is_multiple_of(32) => TensorType::Q8_0,
            Self::Q8_0 => TensorType::F16,
        }
    }
}

/// Returns the bytes of values in a type, with the rounding of ggml.
///
/// # Errors
/// Returns an error if the type cannot be written, if the values are not whole blocks, if one is not finite,
/// or if one is too large for the type.
pub fn quantized(kind: TensorType, values: &[f32]) -> Result<Vec<u8>> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return unfit(format!("it contains the value {value}"));
    }
    let size = kind.block_values();
    if !values.len().is_multiple_of(size) {
        return unfit(format!("{} values are not whole blocks of {size}", values.len()));
    }
    let mut bytes = Vec::with_capacity(values.len() / size * kind.block_bytes());
    match kind {
        TensorType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        TensorType::BF16 => {
            bytes.extend(values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()));
        }
        TensorType::F16 => {
            for value in values {
                bytes.extend(finite_half(*value)?.to_le_bytes());
            }
        }
        TensorType::Q8_0 => {
            for block in values.chunks_exact(size) {
                let largest = block.iter().fold(0f32, |most, value| most.max(value.abs()));
                let scale = largest / 127.0;
                let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
                bytes.extend(finite_half(scale)?.to_le_bytes());
                // `round` rounds halves away from zero, as C's roundf.
                bytes.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
            }
        }
        other => return unfit(format!("{} is not a type that can be written", other.name())),
    }
    Ok(bytes)
}

fn finite_half(value: f32) -> Result<f16> {
    let half = f16::from_f32(value);
    if half.is_finite() {
        return Ok(half);
    }
    unfit(format!("its value {value} is too large for a 16-bit float; store it as bf16 or f32"))
}

//! Formats in 16 bits.

use burn::tensor::DType;

/// A floating-point format with 16 bits, to which the factors of matrix products are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// bfloat16, with 8 bits of precision and the range of `f32`. Products take subnormal numbers for 0.
    Bf16,
    /// IEEE 754 binary16, with 11 bits of precision. Numbers of 65,520 or more become infinite, and
    /// numbers below 6.1e-5 lose precision.
    F16,
}

impl Half {
    /// Returns the type of tensors in this format.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

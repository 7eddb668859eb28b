//! Number formats of frozen weights.

use std::fmt;

use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

/// Format of the block matrices of a frozen base. Computation is always in f32: a matrix is
/// converted each time it is used, except bf16 in sampling on the CPU, which is read in place. Burn
/// keeps the converted copy for the backward pass, so training saves memory only with recomputed
/// blocks ([`crate::LanguageModel::checkpointed`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightPrecision {
    /// Four bytes per weight.
    #[default]
    F32,
    /// Two bytes per weight, with 8 bits of precision.
    Bf16,
    /// Integers from −127 to 127, with a scale per 32 weights.
    Q8,
    /// Integers from −7 to 7, with a scale per 32 weights. Burn's CPU backend stores each in a
    /// byte.
    Q4,
}

impl fmt::Display for WeightPrecision {
    /// Writes the name used in configurations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl WeightPrecision {
    /// Converts `weight`. A matrix whose rows cannot be divided into blocks of at least 8 weights
    /// does not change.
    pub(crate) fn hold(self, weight: Tensor<2>) -> Tensor<2> {
        let value = match self {
            Self::F32 => return weight,
            Self::Bf16 => return weight.cast(FloatDType::BF16),
            Self::Q8 => QuantValue::Q8S,
            Self::Q4 => QuantValue::Q4S,
        };
        let row = weight.dims()[1];
        match [32_u8, 16, 8].into_iter().find(|&block| row.is_multiple_of(block.into())) {
            Some(block) => {
                let scheme =
                    QuantScheme::default().with_value(value).per_block([block], ScaleDtype::F32);
                weight.quantize_dynamic(&scheme)
            }
            None => weight,
        }
    }
}

/// Returns a parameter for an operation with `x`: in f32, and a constant unless it has autodiff.
pub(crate) fn operand<const D: usize, const E: usize>(
    parameter: Tensor<D>,
    x: &Tensor<E>,
) -> Tensor<D> {
    let parameter = dense(parameter);
    let on_tape = x.is_autodiff() && !parameter.is_autodiff();
    if on_tape { Tensor::from_inner(parameter) } else { parameter }
}

/// Returns a parameter in f32.
pub(crate) fn dense<const D: usize>(parameter: Tensor<D>) -> Tensor<D> {
    match parameter.dtype() {
        DType::BF16 => parameter.cast(FloatDType::F32),
        DType::QFloat(_) => parameter.dequantize(),
        _ => parameter,
    }
}

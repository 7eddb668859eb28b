//! In which numbers frozen weights are held.

use std::fmt;

use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

/// How the matrices of a frozen base's blocks are held. Whatever it is, the computation is in f32: a matrix is turned
/// into f32 each time that it is used, but for bf16 in sampling on the CPU, which is read where it lies. Burn keeps that copy for the backward pass, so that training saves memory only
/// where blocks are computed once more ([`crate::LanguageModel::checkpointed`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightPrecision {
    /// Four bytes a weight.
    #[default]
    F32,
    /// Two bytes a weight, with 8 bits of precision.
    Bf16,
    /// Whole numbers of −127 to 127, with a scale for each 32 weights.
    Q8,
    /// Whole numbers of −7 to 7, with a scale for each 32 weights. Burn's CPU backend keeps each in a byte.
    Q4,
}

impl fmt::Display for WeightPrecision {
    /// As a configuration names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl WeightPrecision {
    /// `weight` as it is to be held. A matrix whose rows cannot be cut into blocks of 8 weights or more stays as it
    /// is.
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

/// A parameter as `x` needs it: in f32, and a constant of the tape where it is not on it.
pub(crate) fn operand<const D: usize, const E: usize>(
    parameter: Tensor<D>,
    x: &Tensor<E>,
) -> Tensor<D> {
    let parameter = dense(parameter);
    let on_tape = x.is_autodiff() && !parameter.is_autodiff();
    if on_tape { Tensor::from_inner(parameter) } else { parameter }
}

/// The numbers of a parameter in f32.
pub(crate) fn dense<const D: usize>(parameter: Tensor<D>) -> Tensor<D> {
    match parameter.dtype() {
        DType::BF16 => parameter.cast(FloatDType::F32),
        DType::QFloat(_) => parameter.dequantize(),
        _ => parameter,
    }
}

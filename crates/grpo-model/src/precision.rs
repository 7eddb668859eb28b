//! Number formats for frozen weights and for matrix products.

use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, Device, FloatDType, Tensor};
pub(crate) use grpo_kernels::dense;
use grpo_kernels::{Half, computes_in, is_cpu, pack_four_bits, unpacked_shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Number format for the block matrices of a frozen base model.
///
/// A matrix is converted to f32 every time it is used. During training, Burn keeps the converted copy
/// for the backward pass, so training needs less memory only if blocks are recomputed. A matrix in bf16 is
/// read as it is while sampling, and by products in bf16 on a GPU with tensor cores for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WeightPrecision {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 16-bit bfloat16 with 8 bits of precision.
    Bf16,
    /// Integers from −127 to 127, with one scale for every 32 weights.
    Q8,
    /// Integers from −7 to 7, with one scale for every 32 weights. On the CPU, two share a byte if
    /// the row length is a multiple of 32.
    Q4,
}

/// Precision of the factors of matrix products with the weights of the blocks, in sampling, scoring
/// and training. Sums, and everything else, are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProductPrecision {
    /// 32-bit floating point.
    #[default]
    F32,
    /// Factors, and the gradients of outputs, are rounded to bfloat16 (mixed precision;
    /// Micikevicius et al. 2018).
    Bf16,
    /// Same with IEEE 754 binary16, for GPUs that multiply it faster than bfloat16 or have no
    /// bfloat16. A weight or an activation of 65,520 or more becomes infinite.
    F16,
}

impl ProductPrecision {
    /// Returns whether this is the default.
    pub fn is_f32(&self) -> bool {
        *self == Self::F32
    }

    /// Returns the format that factors are rounded to.
    pub fn half(self) -> Option<Half> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Some(Half::Bf16),
            Self::F16 => Some(Half::F16),
        }
    }
}

impl fmt::Display for ProductPrecision {
    /// Formats the name used in configuration files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for WeightPrecision {
    /// Formats the name used in configuration files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl WeightPrecision {
    /// Checks that a device has this format.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub fn check_on(self, device: &Device) -> Result<(), ModelError> {
        match self == Self::Bf16 && !computes_in(device, DType::BF16) {
            true => Err(ModelError::Unfit(
                "weights cannot be stored in bf16: this device does not have it (see `grpo devices`); use \"f32\", or \"q8\" to save memory"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Converts `weight` to this format. Matrices with a row length that is not a multiple of 8
    /// cannot be quantised and are returned unchanged.
    pub(crate) fn hold(self, weight: Tensor<2>) -> Tensor<2> {
        let row = weight.dims()[1];
        let value = match self {
            Self::F32 => return weight,
            Self::Bf16 => return weight.cast(FloatDType::BF16),
            Self::Q8 => QuantValue::Q8S,
            Self::Q4 if is_cpu(&weight.device()) && row.is_multiple_of(32) => {
                return pack_four_bits(weight);
            }
            Self::Q4 => QuantValue::Q4S,
        };
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

/// Prepares a parameter for an operation with `x`. The result is in f32, and is a constant if `x`
/// has autodiff but the parameter does not.
pub(crate) fn operand<const D: usize, const E: usize>(
    parameter: Tensor<D>,
    x: &Tensor<E>,
) -> Tensor<D> {
    on_tape_of(x, dense(parameter))
}

/// Returns a constant if `x` has autodiff but the parameter does not.
pub(crate) fn on_tape_of<const D: usize, const E: usize>(
    x: &Tensor<E>,
    parameter: Tensor<D>,
) -> Tensor<D> {
    let on_tape = x.is_autodiff() && !parameter.is_autodiff();
    if on_tape { Tensor::from_inner(parameter) } else { parameter }
}

/// Returns the number of elements of all float parameters, whether they are packed or not.
pub(crate) fn parameter_count<M: Module>(module: &M) -> usize {
    struct Count(usize);
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 += unpacked_shape(&param.val()).iter().product::<usize>();
        }
    }
    let mut count = Count(0);
    module.visit(&mut count);
    count.0
}

/// Returns the tensor without autodiff. Tensors of frozen adapters have none.
pub(crate) fn off_tape<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.is_autodiff() { tensor.inner() } else { tensor }
}

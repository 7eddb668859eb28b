//! Types in which tensors are stored.

use crate::error::{GgufError, Result};

/// A type in which a tensor is stored that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "these are the names that llama.cpp and its users have")]
#[allow(missing_docs, reason = "the names say it: bits, and the version of the block")]
pub enum TensorType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
}

/// Number in the file, type, name, values per block, bytes per block.
const TYPES: [(u32, TensorType, &str, usize, usize); 14] = [
    (0, TensorType::F32, "F32", 1, 4),
    (1, TensorType::F16, "F16", 1, 2),
    (2, TensorType::Q4_0, "Q4_0", 32, 18),
    (3, TensorType::Q4_1, "Q4_1", 32, 20),
    (6, TensorType::Q5_0, "Q5_0", 32, 22),
    (7, TensorType::Q5_1, "Q5_1", 32, 24),
    (8, TensorType::Q8_0, "Q8_0", 32, 34),
    (10, TensorType::Q2_K, "Q2_K", 256, 84),
    (11, TensorType::Q3_K, "Q3_K", 256, 110),
    (12, TensorType::Q4_K, "Q4_K", 256, 144),
    (13, TensorType::Q5_K, "Q5_K", 256, 176),
    (14, TensorType::Q6_K, "Q6_K", 256, 210),
    (15, TensorType::Q8_K, "Q8_K", 256, 292),
    (30, TensorType::BF16, "BF16", 1, 2),
];

/// Types that are known but not read.
const OTHERS: [(u32, &str); 22] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl TensorType {
    /// Returns the type with this number.
    pub(crate) fn from_number(number: u32, tensor: &str) -> Result<Self> {
        if let Some(row) = TYPES.iter().find(|row| row.0 == number) {
            return Ok(row.1);
        }
        let supported =
            "supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q2_K to Q8_K";
        Err(match OTHERS.iter().find(|row| row.0 == number) {
            Some((_, name)) => GgufError::Unsupported(format!(
                "tensor `{tensor}` is stored as {name}, which is not supported; {supported}, so use another quantisation of the model, e.g. Q8_0"
            )),
            None => GgufError::Damaged(format!(
                "tensor `{tensor}` has the unknown type {number}; {supported}"
            )),
        })
    }

    fn row(self) -> &'static (u32, Self, &'static str, usize, usize) {
        TYPES.iter().find(|row| row.1 == self).expect("the table lists all types")
    }

    /// Returns the number of the type in a file.
    pub(crate) fn number(self) -> u32 {
        self.row().0
    }

    /// Returns the name, e.g. `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Returns how many values a block has. Rows consist of whole blocks.
    pub fn block_values(self) -> usize {
        self.row().3
    }

    /// Returns how many bytes a block has.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }
}

//! Tensors of a PyTorch file: views of storages.

use std::sync::Arc;

use burn::tensor::{bf16, f16};

use crate::stored_values::numbers;

/// Number format of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

/// A sequence of numbers in the file.
#[derive(Debug)]
pub(super) struct StorageRef {
    pub(super) key: Arc<str>,
    pub(super) element: Element,
    /// Number of elements.
    pub(super) len: usize,
}

/// A view of a storage.
#[derive(Debug)]
pub(super) struct TensorRef {
    pub(super) storage: Arc<StorageRef>,
    /// Index of the first element in the storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// Distances of neighbours along each axis, in elements.
    strides: Vec<usize>,
}

/// Maximum number of axes. PyTorch's own limit is 64.
const AXES: usize = 8;

impl Element {
    /// Returns the format of a storage class, given its name without `Storage`.
    pub(super) fn of_storage(name: &str) -> Option<Self> {
        Some(match name {
            "Double" => Self::F64,
            "Float" => Self::F32,
            "Half" => Self::F16,
            "BFloat16" => Self::Bf16,
            "Long" => Self::I64,
            "Int" => Self::I32,
            "Short" => Self::I16,
            "Char" => Self::I8,
            "Byte" => Self::U8,
            "Bool" => Self::Bool,
            _ => return None,
        })
    }

    /// Returns the size of an element in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Converts little-endian bytes to numbers.
    pub(super) fn numbers(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F64 => numbers(bytes, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => numbers(bytes, f32::from_le_bytes),
            Self::F16 => numbers(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => numbers(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Self::I64 => numbers(bytes, |b| i64::from_le_bytes(b) as f32),
            Self::I32 => numbers(bytes, |b| i32::from_le_bytes(b) as f32),
            Self::I16 => numbers(bytes, |b| f32::from(i16::from_le_bytes(b))),
            Self::I8 => numbers(bytes, |b| f32::from(i8::from_le_bytes(b))),
            Self::U8 => numbers(bytes, |b| f32::from(u8::from_le_bytes(b))),
            Self::Bool => numbers(bytes, |[b]: [u8; 1]| f32::from(u8::from(b != 0))),
        }
    }
}

impl TensorRef {
    /// Creates a view.
    ///
    /// # Errors
    /// Returns a description of the problem if the view exceeds its storage or repeats elements. A
    /// view without repetitions never needs more memory than the file has.
    pub(super) fn new(
        storage: Arc<StorageRef>,
        offset: usize,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> Result<Self, String> {
        if shape.len() > AXES || shape.len() != strides.len() {
            let axes = shape.len();
            return Err(format!(
                "it has a tensor with {axes} axes and {} strides; at most {AXES} axes are supported",
                strides.len()
            ));
        }
        let tensor = Self { storage, offset, shape, strides };
        match (tensor.checked_elements(), tensor.extent()) {
            (Some(elements), Some(_)) if elements <= tensor.storage.len => Ok(tensor),
            _ => Err(format!(
                "it has a tensor of shape {:?} that does not fit into its storage of {} elements",
                tensor.shape, tensor.storage.len
            )),
        }
    }

    /// Returns the number of elements.
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn checked_elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
    }

    /// Returns how many elements of the storage the view spans from its offset on, or `None` if
    /// they exceed the storage.
    fn extent(&self) -> Option<usize> {
        let mut last = 0usize;
        for (size, stride) in self.shape.iter().zip(&self.strides) {
            let Some(steps) = size.checked_sub(1) else { return Some(0) };
            last = last.checked_add(steps.checked_mul(*stride)?)?;
        }
        let extent = last.checked_add(1)?;
        (self.offset.checked_add(extent)? <= self.storage.len).then_some(extent)
    }

    /// Returns the range of bytes that the view spans in its storage.
    pub(super) fn bytes(&self) -> std::ops::Range<u64> {
        let size = self.storage.element.size() as u64;
        let start = self.offset as u64 * size;
        let extent = self.extent().expect("the constructor checks the extent") as u64;
        start..start + extent * size
    }

    /// Returns the elements in row-major order, given the bytes of [`Self::bytes`].
    pub(super) fn values(&self, bytes: &[u8]) -> Vec<f32> {
        let spanned = self.storage.element.numbers(bytes);
        let count = self.elements();
        if self.is_contiguous() {
            return spanned;
        }
        let mut values = Vec::with_capacity(count);
        let mut position = vec![0; self.shape.len()];
        let mut at = 0;
        for _ in 0..count {
            values.push(spanned[at]);
            for axis in (0..position.len()).rev() {
                position[axis] += 1;
                at += self.strides[axis];
                if position[axis] < self.shape[axis] {
                    break;
                }
                at -= self.strides[axis] * self.shape[axis];
                position[axis] = 0;
            }
        }
        values
    }

    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (size, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *size != 1 && *stride != expected {
                return false;
            }
            expected *= size;
        }
        true
    }
}

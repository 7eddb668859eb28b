//! Writes a file: the header, then one tensor after the other.

use std::collections::BTreeSet;
use std::io::Write;

use crate::error::{GgufError, Result, unfit};
use crate::gguf::{ALIGNMENT, MAGIC, VERSION};
use crate::metadata::{Metadata, write_text};
use crate::quantize::quantized;
use crate::tensor_type::TensorType;

/// Longest name of a tensor that ggml accepts, in bytes.
const LONGEST_NAME: usize = 63;

/// A tensor that is going to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlan {
    /// The name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// The shape in the order of PyTorch: rows first.
    pub shape: Vec<usize>,
    /// How values are stored.
    pub kind: TensorType,
}

impl TensorPlan {
    fn size(&self) -> u64 {
        let values: usize = self.shape.iter().product();
        (values / self.kind.block_values() * self.kind.block_bytes()) as u64
    }

    fn check(&self) -> Result<()> {
        let name = &self.name;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return unfit(format!(
                "tensor `{name}` has a name of {} bytes; at most {LONGEST_NAME} fit",
                name.len()
            ));
        }
        if !(1..=4).contains(&self.shape.len()) || self.shape.contains(&0) {
            return unfit(format!(
                "tensor `{name}` has shape {:?}; expected 1 to 4 sizes from 1",
                self.shape
            ));
        }
        if !self.shape[self.shape.len() - 1].is_multiple_of(self.kind.block_values()) {
            return unfit(format!(
                "tensor `{name}` of shape {:?} does not have rows of whole blocks of {}",
                self.shape,
                self.kind.name()
            ));
        }
        Ok(())
    }
}

/// A file that is being written.
///
/// Tensors are written in the order of the plan, so only one is in memory.
#[derive(Debug)]
pub struct GgufWriter<W> {
    writer: W,
    /// The tensors that have not been written yet, in reverse order.
    left: Vec<TensorPlan>,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Returns an error if the header cannot be written, if two tensors have the same name, if a name is longer
    /// than 63 bytes, or if a shape does not fit its type.
    pub fn new(mut writer: W, metadata: &Metadata, tensors: Vec<TensorPlan>) -> Result<Self> {
        let mut names = BTreeSet::new();
        for tensor in &tensors {
            tensor.check()?;
            if !names.insert(tensor.name.as_str()) {
                return unfit(format!("tensor `{}` occurs twice", tensor.name));
            }
        }
        if metadata.get("general.alignment").is_some() {
            return unfit("the metadata key `general.alignment` is not for the caller to set");
        }
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.entries().len() as u64).to_le_bytes());
        metadata.write(&mut header)?;
        let mut offset = 0u64;
        for tensor in &tensors {
            write_text(&mut header, &tensor.name)?;
            header.extend((tensor.shape.len() as u32).to_le_bytes());
            for size in tensor.shape.iter().rev() {
                header.extend((*size as u64).to_le_bytes());
            }
            header.extend(tensor.kind.number().to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset += tensor.size().next_multiple_of(ALIGNMENT);
        }
        pad(&mut header);
        writer.write_all(&header)?;
        let left = tensors.into_iter().rev().collect();
        Ok(Self { writer, left })
    }

    /// Writes the values of the next tensor.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, if `name` is not the next tensor of the plan, if it has
    /// another number of values, or if a value is not finite or does not fit the type.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let Some(tensor) = self.left.pop().filter(|tensor| tensor.name == name) else {
            return unfit(format!("tensor `{name}` is not the next one of the plan"));
        };
        if values.len() != tensor.shape.iter().product::<usize>() {
            return unfit(format!(
                "tensor `{name}` has {} values, which do not fill the shape {:?}",
                values.len(),
                tensor.shape
            ));
        }
        let bytes = quantized(tensor.kind, values).map_err(|error| match error {
            GgufError::Unfit(reason) => {
                GgufError::Unfit(format!("tensor `{name}` cannot be written: {reason}"))
            }
            other => other,
        });
        let mut bytes = bytes?;
        pad(&mut bytes);
        self.writer.write_all(&bytes)?;
        Ok(())
    }

    /// Ends the file and returns the writer.
    ///
    /// # Errors
    /// Returns an error if a tensor is missing or the file cannot be written.
    pub fn finish(mut self) -> Result<W> {
        if let Some(tensor) = self.left.last() {
            return unfit(format!("tensor `{}` has not been written", tensor.name));
        }
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// Adds zeros up to a multiple of the alignment.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
}

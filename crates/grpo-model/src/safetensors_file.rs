//! A safetensors file, of which only the header is read up front.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use burn::tensor::f16;
use grpo_data::{JsonEntries, json_reason, regular_file};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::IgnoredAny;

use crate::ModelError;
use crate::checkpoint_layout::layout_fault;
use crate::stored_values::{Stored, numbers};

/// Largest accepted header size in bytes. Real headers have at most a few megabytes, so a larger
/// value means that the file is damaged.
const LARGEST_HEADER: u64 = 100_000_000;

/// An open safetensors file.
#[derive(Debug)]
pub(crate) struct SafetensorsFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// Offset of the tensor data in the file.
    start: u64,
}

impl SafetensorsFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is truncated.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let broken = |message: String| {
            ModelError::file(path, format!(" is not a complete safetensors file: {message}"))
        };
        let mut file = regular_file::open(path).map_err(read_error(path))?;
        let length = file.metadata().map_err(read_error(path))?.len();
        let mut size = [0; 8];
        let read = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => broken(format!("the file has only {length} bytes")),
            _ => read_error(path)(error),
        };
        file.read_exact(&mut size).map_err(read)?;
        let size = u64::from_le_bytes(size);
        if size > LARGEST_HEADER || size > length {
            return Err(broken(format!(
                "the header size is {size} bytes, but the file has only {length}"
            )));
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(read)?;
        let JsonEntries::<IgnoredAny> { duplicate, .. } =
            serde_json::from_slice(&header).map_err(|error| broken(json_reason(&error)))?;
        if let Some(name) = duplicate {
            return Err(broken(format!("the header lists tensor '{name}' twice")));
        }
        let header: Metadata = serde_json::from_slice(&header).map_err(|error| {
            broken(layout_fault(&header).unwrap_or_else(|| json_reason(&error)))
        })?;
        let (start, data) = (8 + size, header.data_len() as u64);
        if start.checked_add(data) != Some(length) {
            return Err(broken(format!(
                "the header declares {data} bytes of tensor data, but the file has {}",
                length - start
            )));
        }
        Ok(Self { path: path.to_owned(), file, header, start })
    }

    /// Returns the names of all tensors.
    pub(crate) fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Looks up a metadata value.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the data type, shape and position of a tensor.
    ///
    /// # Panics
    /// Panics if there is no such tensor.
    pub(crate) fn info(&self, name: &str) -> &TensorInfo {
        self.header.info(name).expect("the header contains the tensor")
    }

    /// Returns the number of bytes of a tensor.
    pub(crate) fn size_of(&self, name: &str) -> u64 {
        let (begin, end) = self.info(name).data_offsets;
        (end - begin) as u64
    }

    /// Fills `buffer` with the bytes of a tensor from byte `offset` on.
    pub(crate) fn read_bytes(
        &mut self,
        name: &str,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), ModelError> {
        let begin = self.start + self.info(name).data_offsets.0 as u64 + offset;
        self.file
            .seek(SeekFrom::Start(begin))
            .and_then(|_| self.file.read_exact(buffer))
            .map_err(read_error(&self.path))
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// Returns an error if the tensor has an unsupported data type or contains non-finite values.
    pub(crate) fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        let mut bytes = vec![0; self.size_of(name) as usize];
        self.read_bytes(name, 0, &mut bytes)?;
        let info = self.info(name);
        let refused = |holds: String| {
            ModelError::in_file(&self.path, format!("tensor '{name}' holds {holds}"))
        };
        let values: Vec<f32> = match info.dtype {
            Dtype::F32 => numbers(&bytes, |[a, b, c, d]| f32::from_le_bytes([a, b, c, d])),
            // A bf16 number is the upper half of an f32.
            Dtype::BF16 => numbers(&bytes, |[a, b]| f32::from_le_bytes([0, 0, a, b])),
            Dtype::F16 => numbers(&bytes, |half: [u8; 2]| f16::from_le_bytes(half).to_f32()),
            other => {
                return Err(refused(format!(
                    "{other:?} values; supported: F32, BF16, F16; use the model's weights in one of these"
                )));
            }
        };
        if values.iter().any(|value| !value.is_finite()) {
            return Err(refused("a non-finite value".to_owned()));
        }
        Ok(Stored { shape: info.shape.clone(), values })
    }
}

fn read_error(path: &Path) -> impl Fn(std::io::Error) -> ModelError {
    let path = path.to_owned();
    move |source| ModelError::Read { path: path.clone(), source }
}

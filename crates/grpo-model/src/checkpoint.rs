//! Reads safetensors checkpoints, either from a single file or from several shards.
//!
//! Only the headers are read up front. Tensors are read one at a time, so loading a large model
//! never needs a whole file in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use burn::tensor::f16;
use grpo_data::{JsonEntries, json_reason, parse_model_json, regular_file};
use safetensors::tensor::{Dtype, Metadata};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::ModelError;
use crate::checkpoint_layout::layout_fault;
use crate::stored_values::{Stored, numbers};

/// File name of unsharded weights.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// File name of the index that lists the shards of sharded weights.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// Largest accepted header size in bytes. Real headers have at most a few megabytes, so a larger
/// value means that the file is damaged.
const LARGEST_HEADER: u64 = 100_000_000;

/// The tensors of a foreign checkpoint, converted to the names and layouts of a model family
/// ([`crate::Transformer::from_converted`]).
pub trait ConvertedWeights: std::fmt::Debug {
    /// Returns the path of the file, for messages.
    fn path(&self) -> &Path;

    /// Returns the names of all tensors.
    fn names(&self) -> Vec<String>;

    /// Reads a tensor.
    ///
    /// # Errors
    /// Returns an error if there is no such tensor, if it does not fit, or if it contains non-finite
    /// values.
    fn read(&mut self, name: &str) -> Result<Stored, ModelError>;
}

/// The tensors of a checkpoint, which consists of one or more safetensors files, or of a PyTorch
/// file that is being converted.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Path of the file or index, used in error messages.
    path: PathBuf,
    files: Vec<Opened>,
    /// Converted weights. If present, `files` is empty.
    converted: Option<Box<dyn ConvertedWeights>>,
    /// Maps each tensor name to an index into `files`.
    places: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// Offset of the tensor data in the file.
    start: u64,
}

impl Checkpoint {
    /// Opens the weights in a model directory: either `model.safetensors`, or the shards listed in
    /// `model.safetensors.index.json`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is truncated, if two files contain the same
    /// tensor, or if a tensor is missing from the file listed in the index.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, ModelError> {
        let (single, index) = (folder.join(WEIGHTS_FILE), folder.join(INDEX_FILE));
        if single.exists() {
            return Self::of_file(&single);
        }
        if !index.exists() {
            let problem = " has neither model.safetensors nor model.safetensors.index.json; convert other formats with transformers' save_pretrained";
            return Err(ModelError::file(folder, problem));
        }
        let broken = |message: String| ModelError::in_file(&index, message);
        let text = regular_file::read_to_string(&index).map_err(read_error(&index))?;
        let list: Index = parse_model_json(&text).map_err(broken)?;
        let names: BTreeSet<&String> = list.weight_map.values().collect();
        let mut files = Vec::new();
        let mut places = BTreeMap::new();
        for name in names {
            // The index is untrusted input. It may only name files in its own directory.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(broken(format!("'{name}' is not a file name in the same folder")));
            }
            let opened = Opened::open(&folder.join(name))?;
            for tensor in opened.header.offset_keys() {
                if places.insert(tensor.clone(), files.len()).is_some() {
                    return Err(broken(format!(
                        "tensor '{tensor}' is listed in more than one file"
                    )));
                }
            }
            files.push(opened);
        }
        let absent = |tensor: &&String| {
            let found = places.get(*tensor).map(|&file: &usize| files[file].path.file_name());
            found != Some(Some(list.weight_map[*tensor].as_ref()))
        };
        if let Some(tensor) = list.weight_map.keys().find(absent) {
            let file = &list.weight_map[tensor];
            return Err(broken(format!(
                "tensor '{tensor}' is listed in {file} but missing from it"
            )));
        }
        Ok(Self { path: index, files, converted: None, places })
    }

    /// Opens a single safetensors file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is truncated.
    pub(crate) fn of_file(path: &Path) -> Result<Self, ModelError> {
        let opened = Opened::open(path)?;
        let places = opened.header.offset_keys().into_iter().map(|name| (name, 0)).collect();
        let (path, files) = (path.to_owned(), vec![opened]);
        Ok(Self { path, files, converted: None, places })
    }

    /// Returns tensors under their converted names.
    pub(crate) fn of_converted(weights: Box<dyn ConvertedWeights>) -> Self {
        let places = weights.names().into_iter().map(|name| (name, 0)).collect();
        let path = weights.path().to_owned();
        Self { path, files: Vec::new(), converted: Some(weights), places }
    }

    /// Returns the path of the file or index.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the tensors that have not been taken yet.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Looks up a metadata value.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        let texts = self.files.iter().filter_map(|file| file.header.metadata().as_ref());
        texts.filter_map(|text| text.get(key)).map(String::as_str).next()
    }

    /// Returns whether the tensor exists and has not been taken yet.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Returns whether two tensors have the same shape and values.
    ///
    /// # Errors
    /// Returns an error if a tensor cannot be read, or if the tensors have different data types and
    /// [`Self::take`] fails for one of them.
    ///
    /// # Panics
    /// Panics if one of the tensors does not exist or has been taken.
    pub(crate) fn are_equal(&mut self, one: &str, other: &str) -> Result<bool, ModelError> {
        let places = [one, other].map(|name| (name, self.places[name]));
        if self.converted.is_none() {
            let of = |(name, place): (&str, usize)| {
                let info =
                    self.files[place].header.info(name).expect("the header contains the tensor");
                (info.dtype, info.shape.clone())
            };
            let [(type_of_one, shape), (type_of_other, other_shape)] = places.map(of);
            if shape != other_shape {
                return Ok(false);
            }
            if type_of_one == type_of_other {
                return self.have_equal_bytes(places);
            }
        }
        let mut read = |(name, place): (&str, usize)| match &mut self.converted {
            Some(weights) => weights.read(name),
            None => self.files[place].read(name),
        };
        let [one, other] = places;
        let (one, other) = (read(one)?, read(other)?);
        Ok(one.shape == other.shape && one.values == other.values)
    }

    /// Compares the bytes of two tensors of the same size without reading either as a whole.
    fn have_equal_bytes(&mut self, places: [(&str, usize); 2]) -> Result<bool, ModelError> {
        const BLOCK: u64 = 1 << 20;
        let size = self.files[places[0].1].size_of(places[0].0);
        let mut buffers = [Vec::new(), Vec::new()];
        for begin in (0..size).step_by(BLOCK as usize) {
            for ((name, place), buffer) in places.into_iter().zip(&mut buffers) {
                buffer.resize(BLOCK.min(size - begin) as usize, 0);
                self.files[place].read_bytes(name, begin, buffer)?;
            }
            if buffers[0] != buffers[1] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a tensor and removes it from the list of remaining tensors.
    ///
    /// # Errors
    /// Returns an error if the tensor does not exist, has an unsupported data type, or contains
    /// non-finite values.
    pub(crate) fn take(&mut self, name: &str) -> Result<Stored, ModelError> {
        let Some(place) = self.places.remove(name) else {
            return Err(ModelError::missing_tensor(&self.path, name));
        };
        match &mut self.converted {
            Some(weights) => weights.read(name),
            None => self.files[place].read(name),
        }
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Opened {
    fn open(path: &Path) -> Result<Self, ModelError> {
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

    /// Returns the number of bytes of a tensor.
    fn size_of(&self, name: &str) -> u64 {
        let (begin, end) =
            self.header.info(name).expect("the header contains the tensor").data_offsets;
        (end - begin) as u64
    }

    /// Fills `buffer` with the bytes of a tensor from byte `offset` on.
    fn read_bytes(&mut self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<(), ModelError> {
        let info = self.header.info(name).expect("the header contains the tensor");
        let begin = self.start + info.data_offsets.0 as u64 + offset;
        self.file
            .seek(SeekFrom::Start(begin))
            .and_then(|_| self.file.read_exact(buffer))
            .map_err(read_error(&self.path))
    }

    fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        let mut bytes = vec![0; self.size_of(name) as usize];
        self.read_bytes(name, 0, &mut bytes)?;
        let info = self.header.info(name).expect("the header contains the tensor");
        let refused = |holds: String| {
            ModelError::in_file(&self.path, format!("tensor '{name}' holds {holds}"))
        };
        let values: Vec<f32> = match info.dtype {
            Dtype::F32 => numbers(&bytes, |[a, b, c, d]| f32::from_le_bytes([a, b, c, d])),
            // A bf16 number is the upper half of an f32.
            Dtype::BF16 => numbers(&bytes, |[a, b]| f32::from_le_bytes([0, 0, a, b])),
            Dtype::F16 => numbers(&bytes, |half: [u8; 2]| f16::from_le_bytes(half).to_f32()),
            other => {
                return Err(refused(format!("{other:?} values; supported: F32, BF16, F16")));
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

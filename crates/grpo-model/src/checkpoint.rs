//! Reads checkpoints: safetensors or PyTorch files, as a single file or as several shards, and weights that
//! are converted.
//!
//! Only the descriptions of the tensors are read up front. Tensors are read one at a time, so loading a
//! large model never needs a whole file in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use grpo_data::{parse_model_json, regular_file};
use serde::Deserialize;

use crate::quantised::refuse_quantised;
use crate::safetensors_file::SafetensorsFile;
use crate::stored_values::Stored;
use crate::{ModelError, TorchFile};

/// File name of unsharded weights.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// File name of the index that lists the shards of sharded weights.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// Files that the weights of a model are in. The first that exists is read, as in transformers.
const WEIGHTS: [&str; 4] =
    [WEIGHTS_FILE, INDEX_FILE, "pytorch_model.bin", "pytorch_model.bin.index.json"];
/// The extension of PyTorch files.
const TORCH: &str = "bin";

/// Returns the file in a model directory that contains or lists its weights, if there is one.
pub fn weights_file(folder: &Path) -> Option<PathBuf> {
    WEIGHTS.iter().map(|name| folder.join(name)).find(|path| path.exists())
}

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

/// The tensors of a checkpoint, which consists of one or more files.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Path of the file or index, used in error messages.
    path: PathBuf,
    files: Vec<Weights>,
    /// Maps each tensor name to an index into `files`.
    places: BTreeMap<String, usize>,
}

/// An open file.
#[derive(Debug)]
enum Weights {
    Safetensors(SafetensorsFile),
    Torch(TorchFile),
    Converted(Box<dyn ConvertedWeights>),
}

impl Checkpoint {
    /// Opens the weights in a model directory: either one file, or the shards that an index lists.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is truncated, if two files contain the same
    /// tensor, if a tensor is missing from the file listed in the index, or if the weights are
    /// quantised.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, ModelError> {
        let Some(path) = weights_file(folder) else {
            let problem = " has neither model.safetensors nor model.safetensors.index.json nor pytorch_model.bin; convert other formats with transformers' save_pretrained";
            return Err(ModelError::file(folder, problem));
        };
        let is_index = path.extension().is_some_and(|extension| extension == "json");
        let found = if is_index { Self::of_index(path, folder)? } else { Self::of_file(&path)? };
        refuse_quantised(found.names())
            .map_err(|fault| ModelError::in_file(found.path(), fault))?;
        Ok(found)
    }

    /// Opens the shards that an index lists.
    fn of_index(index: PathBuf, folder: &Path) -> Result<Self, ModelError> {
        let broken = |message: String| ModelError::in_file(&index, message);
        let text = regular_file::read_to_string(&index)
            .map_err(|source| ModelError::Read { path: index.clone(), source })?;
        let list: Index = parse_model_json(&text).map_err(broken)?;
        let names: BTreeSet<&String> = list.weight_map.values().collect();
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        let mut places = BTreeMap::new();
        for name in names {
            // The index is untrusted input. It may only name files in its own directory.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(broken(format!("'{name}' is not a file name in the same folder")));
            }
            let opened = Weights::open(&folder.join(name))?;
            for tensor in opened.names() {
                if places.contains_key(&tensor) {
                    return Err(broken(format!(
                        "tensor '{tensor}' is listed in more than one file"
                    )));
                }
                places.insert(tensor, files.len());
            }
            files.push(opened);
            paths.push(name);
        }
        let absent = |(tensor, file): &(&String, &String)| {
            places.get(*tensor).map(|&f| paths[f]) != Some(*file)
        };
        if let Some((tensor, file)) = list.weight_map.iter().find(absent) {
            return Err(broken(format!(
                "tensor '{tensor}' is listed in {file} but missing from it"
            )));
        }
        Ok(Self { path: index, files, places })
    }

    /// Opens a single safetensors file, or a PyTorch file if its name ends with `.bin`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is truncated.
    pub(crate) fn of_file(path: &Path) -> Result<Self, ModelError> {
        Ok(Self::of_opened(path, Weights::open(path)?))
    }

    /// Returns tensors under their converted names.
    pub(crate) fn of_converted(weights: Box<dyn ConvertedWeights>) -> Self {
        let path = weights.path().to_owned();
        Self::of_opened(&path, Weights::Converted(weights))
    }

    fn of_opened(path: &Path, weights: Weights) -> Self {
        let places = weights.names().into_iter().map(|name| (name, 0)).collect();
        Self { path: path.to_owned(), files: vec![weights], places }
    }

    /// Returns the path of the file or index.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the tensors that have not been taken yet.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Looks up a metadata value, which only safetensors files have.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.files.iter().find_map(|file| file.safetensors()?.metadata(key))
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
        let of = |(name, place): (&str, usize)| Some(self.files[place].safetensors()?.info(name));
        if let [Some(one), Some(other)] = places.map(of) {
            if one.shape != other.shape {
                return Ok(false);
            }
            if one.dtype == other.dtype {
                return self.have_equal_bytes(places);
            }
        }
        let [one, other] = places.map(|(name, place)| self.files[place].read(name));
        let (one, other) = (one?, other?);
        Ok(one.shape == other.shape && one.values == other.values)
    }

    /// Compares the bytes of two tensors of the same size in safetensors files without reading either
    /// as a whole.
    fn have_equal_bytes(&mut self, places: [(&str, usize); 2]) -> Result<bool, ModelError> {
        const BLOCK: u64 = 1 << 20;
        let mut buffers = [Vec::new(), Vec::new()];
        for begin in (0..).step_by(BLOCK as usize) {
            for ((name, place), buffer) in places.into_iter().zip(&mut buffers) {
                let Weights::Safetensors(file) = &mut self.files[place] else { return Ok(false) };
                buffer.resize(BLOCK.min(file.size_of(name).saturating_sub(begin)) as usize, 0);
                file.read_bytes(name, begin, buffer)?;
            }
            if buffers[0] != buffers[1] {
                return Ok(false);
            }
            if buffers[0].is_empty() {
                break;
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
        self.files[place].read(name)
    }
}

impl Weights {
    fn open(path: &Path) -> Result<Self, ModelError> {
        match path.extension().is_some_and(|extension| extension == TORCH) {
            true => TorchFile::open(path).map(Self::Torch),
            false => SafetensorsFile::open(path).map(Self::Safetensors),
        }
    }

    fn safetensors(&self) -> Option<&SafetensorsFile> {
        match self {
            Self::Safetensors(file) => Some(file),
            Self::Torch(_) | Self::Converted(_) => None,
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Safetensors(file) => file.names(),
            Self::Torch(file) => file.shapes().map(|(name, _)| name.to_owned()).collect(),
            Self::Converted(weights) => weights.names(),
        }
    }

    fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        match self {
            Self::Safetensors(file) => file.read(name),
            Self::Torch(file) => file.read(name),
            Self::Converted(weights) => weights.read(name),
        }
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

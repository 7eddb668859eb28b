//! Reads tensors from files written by `torch.save`, without Python and without running code.
//!
//! State dicts, and dictionaries that contain one, are supported. Since PyTorch 1.6, a file is a
//! zip archive that contains a pickle, which describes the tensors, and one entry per storage.
//! Older files consist of several pickles followed by the storages. Tensors are read one at a time.

mod pickle;
mod tensor;
#[cfg(test)]
mod tests;
mod zip;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_data::regular_file;

use self::pickle::{Pickle, Value};
use self::tensor::TensorRef;
use crate::ModelError;
use crate::stored_values::Stored;

/// Maximum size of a pickle in bytes. The pickle of a model with 10,000 tensors has 2 MB.
const LARGEST_PICKLE: u64 = 4 << 20;
/// How often a file may be read, all tensors together. Slices of matrices that are stored as one need a few.
const MOST_READS: u64 = 16;
/// First value of a file that is not a zip archive.
const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;
/// Keys under which training scripts store the state dict.
const STATE_DICTS: [&str; 4] = ["state_dict", "model_state_dict", "model", "net"];

/// The state dict of a file written by `torch.save`.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    file: File,
    contents: Contents,
}

/// Where the tensors of a file are.
#[derive(Debug)]
struct Contents {
    tensors: BTreeMap<String, Arc<TensorRef>>,
    /// Position of each storage in the file.
    storages: BTreeMap<String, Range<u64>>,
}

impl TorchFile {
    /// Opens a file and reads the descriptions of its tensors.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, was not written by `torch.save`, refers to a
    /// Python object that is not part of a state dict, or describes tensors that it does not
    /// contain.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let read_error = |source| ModelError::Read { path: path.to_owned(), source };
        let mut file = regular_file::open(path).map_err(read_error)?;
        let length = file.metadata().map_err(read_error)?.len();
        let fault = |message: String| ModelError::in_file(path, message);
        let contents = contents(&mut file, length).map_err(fault)?;
        Ok(Self { path: path.to_owned(), file, contents })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names and shapes of all tensors.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.contents.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice()))
    }

    /// Returns the shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.contents.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// Returns an error if the tensor does not exist or contains non-finite values.
    pub fn read(&mut self, name: &str) -> Result<Stored, ModelError> {
        let Some(tensor) = self.contents.tensors.get(name) else {
            return Err(ModelError::missing_tensor(&self.path, name));
        };
        let values = self.contents.read(&mut self.file, tensor);
        let values = values.map_err(|message| ModelError::in_file(&self.path, message))?;
        if values.iter().any(|value| !value.is_finite()) {
            let problem = format!("tensor '{name}' holds a non-finite value");
            return Err(ModelError::in_file(&self.path, problem));
        }
        Ok(Stored { shape: tensor.shape.clone(), values })
    }
}

impl Contents {
    fn read(&self, file: &mut (impl Read + Seek), tensor: &TensorRef) -> Result<Vec<f32>, String> {
        let within = tensor.bytes();
        let start = self.storages[&*tensor.storage.key].start + within.start;
        let bytes = zip::read(file, start, (within.end - within.start) as usize)?;
        Ok(tensor.values(&bytes))
    }
}

fn contents(file: &mut (impl Read + Seek), length: u64) -> Result<Contents, String> {
    let begin = zip::read(file, 0, length.min(4) as usize)?;
    let contents = match begin.as_slice() {
        b"PK\x03\x04" => archive(file, length)?,
        [0x80, ..] => sequence(file, length)?,
        _ => return Err("it is not a file written by torch.save".to_owned()),
    };
    let (mut elements, mut spanned) = (0u64, 0u64);
    for (name, tensor) in &contents.tensors {
        let bytes =
            contents.storages.get(&*tensor.storage.key).map(|range| range.end - range.start);
        let expected = tensor.storage.len as u128 * tensor.storage.element.size() as u128;
        if bytes.is_none_or(|bytes| u128::from(bytes) < expected) {
            return Err(format!("it is truncated: the values of tensor '{name}' are missing"));
        }
        elements = elements.saturating_add(tensor.elements() as u64);
        let range = tensor.bytes();
        spanned = spanned.saturating_add(range.end - range.start);
    }
    // Tensors may share a storage, so a small file can describe an arbitrary number of values.
    if elements > length {
        return Err(format!(
            "its tensors have {elements} values, but the file has only {length} bytes; save a state dict whose tensors do not share memory"
        ));
    }
    // A view of few values can span its whole storage, and all that is read.
    if spanned > length.saturating_mul(MOST_READS) {
        return Err(format!(
            "its tensors are views that span {spanned} bytes, but the file has only {length}; save a state dict of contiguous tensors"
        ));
    }
    Ok(contents)
}

/// Reads a zip archive.
fn archive(file: &mut (impl Read + Seek), length: u64) -> Result<Contents, String> {
    let entries = zip::entries(file, length)?;
    let mut pickles = entries.keys().filter_map(|name| name.strip_suffix("data.pkl"));
    let folder = match (pickles.next(), pickles.next()) {
        (Some(folder), None) if folder.is_empty() || folder.ends_with('/') => folder.to_owned(),
        _ => return Err("it is a zip archive, but not one written by torch.save".to_owned()),
    };
    let mut entry = |name: &str, most: u64| -> Result<Option<Vec<u8>>, String> {
        let Some(range) = entries.get(&format!("{folder}{name}")) else { return Ok(None) };
        let size = range.end - range.start;
        if size > most {
            return Err(format!(
                "its entry '{name}' has {size} bytes; at most {most} are supported"
            ));
        }
        zip::read(file, range.start, size as usize).map(Some)
    };
    let order = entry("byteorder", 16)?.unwrap_or_else(|| b"little".to_vec());
    if order != b"little" {
        return Err("it was written on a big-endian machine, which is not supported".to_owned());
    }
    let bytes = entry("data.pkl", LARGEST_PICKLE)?.unwrap_or_default();
    let mut pickle = Pickle::default();
    let (root, _) = pickle.run(&bytes)?;
    let data = format!("{folder}data/");
    let storages = entries.iter().filter_map(|(name, range)| {
        let key = name.strip_prefix(&data)?;
        Some((key.to_owned(), range.clone()))
    });
    Ok(Contents { tensors: state_dict(&pickle, &root)?, storages: storages.collect() })
}

/// Reads a file of PyTorch before 1.6: pickles of a magic number, the version, properties of the
/// machine, the state dict and the order of the storages, then the storages. Each storage begins
/// with its number of elements.
fn sequence(file: &mut (impl Read + Seek), length: u64) -> Result<Contents, String> {
    let bytes = zip::read(file, 0, length.min(LARGEST_PICKLE) as usize)?;
    let mut pickle = Pickle::default();
    let mut at = 0;
    let mut next = |pickle: &mut Pickle| -> Result<Value, String> {
        let (value, size) = pickle.run(&bytes[at..])?;
        at += size;
        Ok(value)
    };
    let magic = next(&mut pickle)?;
    if !matches!(magic, Value::Int(MAGIC)) {
        return Err("it is a pickle, but not one written by torch.save".to_owned());
    }
    let (_version, machine) = (next(&mut pickle)?, next(&mut pickle)?);
    let is_big = |(key, value): &(&str, &Value)| {
        *key == "little_endian" && matches!(value, Value::Bool(false))
    };
    if pickle.entries(&machine).unwrap_or_default().iter().any(is_big) {
        return Err("it was written on a big-endian machine, which is not supported".to_owned());
    }
    let (root, keys) = (next(&mut pickle)?, next(&mut pickle)?);
    let tensors = state_dict(&pickle, &root)?;
    let mut at = at as u64;
    let mut storages = BTreeMap::new();
    for key in pickle.items(&keys).unwrap_or_default() {
        let Value::Text(key) = key else { return Err("its list of storages is damaged".into()) };
        let truncated = || format!("it is truncated: storage '{key}' is missing");
        let start = at.checked_add(8).filter(|start| *start <= length).ok_or_else(truncated)?;
        let count = zip::read(file, at, 8)?.try_into().expect("a count has eight bytes");
        let size = pickle.element_size(key).ok_or_else(truncated)?;
        let bytes = u64::from_le_bytes(count).checked_mul(size as u64);
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        at = end.filter(|end| *end <= length).ok_or_else(truncated)?;
        storages.insert(key.to_string(), start..at);
    }
    Ok(Contents { tensors, storages })
}

/// Returns the tensors of a state dict, or of one inside a dictionary.
fn state_dict(pickle: &Pickle, root: &Value) -> Result<BTreeMap<String, Arc<TensorRef>>, String> {
    let found = tensors(pickle, root);
    if !found.is_empty() {
        return Ok(found);
    }
    let entries = pickle.entries(root).unwrap_or_default();
    let inner = STATE_DICTS.iter().filter_map(|name| {
        let (_, value) = entries.iter().find(|(key, _)| key == name)?;
        Some(tensors(pickle, value)).filter(|tensors| !tensors.is_empty())
    });
    inner.into_iter().next().ok_or_else(|| {
        "it contains no state dict; save one with torch.save(model.state_dict(), ...)".to_owned()
    })
}

/// Returns the tensors of a dictionary, without the prefix that wrappers for several GPUs add.
fn tensors(pickle: &Pickle, dict: &Value) -> BTreeMap<String, Arc<TensorRef>> {
    let entries = pickle.entries(dict).unwrap_or_default();
    let tensors = entries.into_iter().filter_map(|(name, value)| match value {
        Value::Tensor(tensor) => Some((name, tensor.clone())),
        _ => None,
    });
    let tensors: Vec<_> = tensors.collect();
    let is_wrapped = tensors.iter().all(|(name, _)| name.starts_with("module."));
    let bare =
        |name: &str| if is_wrapped { name["module.".len()..].to_owned() } else { name.to_owned() };
    tensors.into_iter().map(|(name, tensor)| (bare(name), tensor)).collect()
}

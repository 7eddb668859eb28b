//! Writes safetensors files with the tensor names and layouts of a model family.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

use burn::module::{Module, ParamId};
use burn::tensor::{Tensor, TensorData, bf16};
use safetensors::tensor::{Dtype, View};

use crate::names::Names;
use crate::{Frozen, LanguageModel, ModelError, Parameter, Transformer, parameters};

/// A set of named tensors. Values are read from the model lazily, one tensor at a time.
pub struct StoredTensors(BTreeMap<String, Entry>);

/// Number format used in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredAs {
    /// 32-bit floating point.
    #[default]
    F32,
    /// bfloat16, rounded to nearest with ties to even.
    Bf16,
}

struct Entry {
    shape: Vec<usize>,
    read: Box<dyn Fn() -> TensorData>,
}

impl StoredTensors {
    /// Collects all parameters of a model under the names used by its family.
    pub fn of(model: &Transformer) -> Self {
        let names = model.names();
        let of_parameter = |parameter: Parameter| {
            let name = names.parameter(&parameter.path);
            (name, Entry::of(parameter, names))
        };
        Self(parameters(model).into_iter().map(of_parameter).collect())
    }

    /// Collects the given matrices without changing their names or layouts.
    pub(crate) fn from_matrices(tensors: impl IntoIterator<Item = (String, Tensor<2>)>) -> Self {
        Self(tensors.into_iter().map(|(name, tensor)| (name, Entry::new(tensor))).collect())
    }

    /// Adds a tensor without changing its name or layout.
    pub(crate) fn add<const D: usize>(&mut self, name: String, tensor: Tensor<D>) {
        self.0.insert(name, Entry::new(tensor));
    }

    /// Collects all parameters of a module, named by their paths and in their original shapes.
    pub(crate) fn of_parameters<M: Module>(module: &M) -> Self {
        let entry = |parameter: Parameter| {
            let (name, shape) = (parameter.path.clone(), parameter.shape.clone());
            (name, Entry { shape, read: Box::new(move || parameter.value().into_data()) })
        };
        Self(parameters(module).into_iter().map(entry).collect())
    }

    /// Collects tensors under names chosen by the caller.
    pub fn named(tensors: impl IntoIterator<Item = (String, Tensor<1>)>) -> Self {
        Self(tensors.into_iter().map(|(name, tensor)| (name, Entry::new(tensor))).collect())
    }

    /// Returns the names and shapes of all tensors.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry.shape.as_slice()))
    }

    /// Reads one tensor into memory.
    pub fn values(&self, name: &str) -> Option<Vec<f32>> {
        self.0.get(name).map(|entry| (entry.read)().iter::<f32>().collect())
    }

    /// Reads all tensors into memory.
    pub fn read(&self) -> BTreeMap<String, TensorData> {
        let data = |entry: &Entry| {
            TensorData::new((entry.read)().iter::<f32>().collect::<Vec<_>>(), entry.shape.clone())
        };
        self.0.iter().map(|(name, entry)| (name.clone(), data(entry))).collect()
    }

    /// Writes a safetensors file. At most one tensor is held in memory at a time.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or if a tensor has a value that is not finite
    /// in the stored format. No file is left behind then, because no command could read it.
    pub fn write(
        &self,
        path: &Path,
        stored_as: StoredAs,
        note: Option<(&str, String)>,
    ) -> Result<(), ModelError> {
        // `safetensors` writes to a temporary file with owner-only permissions and then renames it,
        // so restore the default permissions.
        let permissions = File::create(path)
            .and_then(|file| file.metadata())
            .map_err(|error| ModelError::write(path, &error))?
            .permissions();
        let overflow = OnceLock::new();
        safetensors::serialize_to_file(self.views(stored_as, &overflow), metadata(note), path)
            .map_err(|error| ModelError::write(path, &error))?;
        if let Some(name) = overflow.get() {
            std::fs::remove_file(path).map_err(|error| ModelError::write(path, &error))?;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            return Err(ModelError::Unfit(format!(
                "{file} is not written: tensor '{name}' has values that are not finite"
            )));
        }
        std::fs::set_permissions(path, permissions).map_err(|error| ModelError::write(path, &error))
    }

    /// Returns the tensors in the stored format. Once they have been read, `overflow` contains the
    /// name of the first one with a value that is not finite.
    fn views<'a>(
        &'a self,
        stored_as: StoredAs,
        overflow: &'a OnceLock<String>,
    ) -> impl Iterator<Item = (&'a String, Lazy<'a>)> {
        self.0.iter().map(move |(name, entry)| (name, Lazy { name, entry, stored_as, overflow }))
    }
}

/// Returns metadata with a single key: the note, or otherwise the `format` key that transformers
/// requires. Several keys would be written in random `HashMap` order, but equal models must produce
/// identical files.
fn metadata(note: Option<(&str, String)>) -> Option<HashMap<String, String>> {
    let (key, value) = note.unwrap_or_else(|| ("format", "pt".to_owned()));
    Some(HashMap::from([(key.to_owned(), value)]))
}

impl Entry {
    fn new<const D: usize>(value: Tensor<D>) -> Self {
        Self { shape: value.dims().to_vec(), read: Box::new(move || value.clone().into_data()) }
    }

    /// Creates an entry in the layout used by the family.
    fn of(parameter: Parameter, names: &Names) -> Self {
        let mut shape = parameter.shape.clone();
        let is_swapped = parameter.is_linear_weight() && names.is_swapped(&parameter.path);
        if is_swapped {
            shape.reverse();
        }
        if names.is_led(&parameter.path) {
            shape.insert(0, 1);
        }
        let read = move || match (is_swapped, parameter.shape.as_slice()) {
            (true, &[rows, columns]) => {
                parameter.value().reshape([rows, columns]).swap_dims(0, 1).into_data()
            }
            _ => parameter.value().into_data(),
        };
        Self { shape, read: Box::new(read) }
    }
}

struct Lazy<'a> {
    name: &'a str,
    entry: &'a Entry,
    stored_as: StoredAs,
    overflow: &'a OnceLock<String>,
}

impl View for Lazy<'_> {
    fn dtype(&self) -> Dtype {
        match self.stored_as {
            StoredAs::F32 => Dtype::F32,
            StoredAs::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.entry.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = (self.entry.read)();
        // Rounding to bf16 can make a large value infinite.
        let is_finite = |x: f32| match self.stored_as {
            StoredAs::F32 => x.is_finite(),
            StoredAs::Bf16 => bf16::from_f32(x).is_finite(),
        };
        if !data.iter::<f32>().all(is_finite) {
            self.overflow.get_or_init(|| self.name.to_owned());
        }
        Cow::Owned(match self.stored_as {
            StoredAs::F32 => data.iter::<f32>().flat_map(f32::to_le_bytes).collect(),
            StoredAs::Bf16 => {
                data.iter::<f32>().flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect()
            }
        })
    }

    fn data_len(&self) -> usize {
        self.entry.shape.iter().product::<usize>() * self.dtype().bitsize() / 8
    }
}

impl<M: LanguageModel> Frozen<M> {
    /// Returns the parameters by path, ready to be written.
    pub fn stored(&self) -> StoredTensors {
        let found = parameters(self.model()).into_iter();
        StoredTensors::named(found.map(|parameter| (parameter.path.clone(), parameter.value())))
    }
}

/// Returns the weight matrices of linear layers and adapters. These are the parameters to which
/// weight decay applies.
pub fn linear_weights<M: Module>(model: &M) -> Vec<ParamId> {
    let is_matrix = |parameter: &Parameter| {
        let is_of_adapter = match parameter.owner.as_str() {
            // The lengths of DoRA are vectors.
            "Struct:LoraPair" => parameter.shape.len() == 2,
            "Struct:SavedMatrix" => !parameter.path.split('.').any(|part| part == "tables"),
            _ => false,
        };
        is_of_adapter || parameter.is_linear_weight()
    };
    parameters(model).into_iter().filter(is_matrix).map(|parameter| parameter.id).collect()
}

//! Weights in and out: safetensors with PyTorch's names and layouts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::ModelError;

/// Name of the weights file in a model folder.
pub const WEIGHTS_FILE: &str = "model.safetensors";

/// Where the parameters of a new model come from: the generator, or a file.
#[derive(Debug)]
pub struct Parameters {
    source: Source,
    device: Device,
}

#[derive(Debug)]
enum Source {
    Random { rng: CounterRng, tensors: u32 },
    File { path: PathBuf, tensors: BTreeMap<String, Stored> },
}

#[derive(Debug)]
struct Stored {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// Standard deviation of first weights (GPT-2's, which MolGPT keeps).
const INITIAL_DEVIATION: f64 = 0.02;

impl Parameters {
    /// First values from the generator. Equal seeds give equal models.
    pub fn random(seed: u64, device: &Device) -> Self {
        let rng = CounterRng::new(seed, Purpose::Initialisation);
        Self { source: Source::Random { rng, tensors: 0 }, device: device.clone() }
    }

    /// Values from a safetensors file, which is read and checked whole.
    ///
    /// # Errors
    /// A file that cannot be read or is not whole; a tensor that is not `F32` or not finite.
    pub fn from_file(path: &Path, device: &Device) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path)
            .map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|source| ModelError::Safetensors { path: path.to_owned(), source })?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let stored = read_tensor(path, &name, &view)?;
            tensors.insert(name, stored);
        }
        let source = Source::File { path: path.to_owned(), tensors };
        Ok(Self { source, device: device.clone() })
    }

    /// Says that the model is complete.
    ///
    /// # Errors
    /// A tensor of the file that nothing asked for and that `ignored` does not name.
    pub fn finish(self, ignored: impl Fn(&str) -> bool) -> Result<(), ModelError> {
        let Source::File { path, tensors } = self.source else { return Ok(()) };
        match tensors.into_keys().find(|name| !ignored(name)) {
            Some(name) => Err(ModelError::UnknownTensor { path, name }),
            None => Ok(()),
        }
    }

    pub(crate) fn normal<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(name, shape, |rng, tensor, i| {
            (INITIAL_DEVIATION * rng.normal([i as u32, (i >> 32) as u32, tensor, 0])) as f32
        })
    }

    pub(crate) fn zeros<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(name, shape, |_, _, _| 0.0)
    }

    pub(crate) fn ones<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(name, shape, |_, _, _| 1.0)
    }

    /// A normal weight of shape `[input, output]` that is stored `[output, input]`.
    pub(crate) fn transposed(
        &mut self,
        name: &str,
        [input, output]: [usize; 2],
    ) -> Result<Param<Tensor<2>>, ModelError> {
        let stored = self.normal(name, [output, input])?;
        // Copied into its own layout: every product with it reads rows.
        let data = stored.val().transpose().into_data();
        Ok(Param::from_tensor(Tensor::from_data(data, &self.device)))
    }

    fn take<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
        first_value: impl Fn(&CounterRng, u32, u64) -> f32,
    ) -> Result<Param<Tensor<D>>, ModelError> {
        let values = match &mut self.source {
            Source::Random { rng, tensors } => {
                *tensors += 1;
                let n = shape.iter().product::<usize>() as u64;
                (0..n).map(|i| first_value(rng, *tensors, i)).collect()
            }
            Source::File { path, tensors } => {
                let stored = tensors.remove(name).ok_or_else(|| ModelError::MissingTensor {
                    path: path.clone(),
                    name: name.to_owned(),
                })?;
                if stored.shape != shape {
                    return Err(ModelError::Shape {
                        path: path.clone(),
                        name: name.to_owned(),
                        expected: shape.to_vec(),
                        found: stored.shape,
                    });
                }
                stored.values
            }
        };
        let tensor = Tensor::from_data(TensorData::new(values, shape), &self.device);
        Ok(Param::from_tensor(tensor))
    }
}

fn read_tensor(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Stored, ModelError> {
    if view.dtype() != Dtype::F32 {
        let found = format!("{:?}", view.dtype());
        return Err(ModelError::DType { path: path.to_owned(), name: name.to_owned(), found });
    }
    let values: Vec<f32> = view
        .data()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    if values.iter().any(|value| !value.is_finite()) {
        return Err(ModelError::NotFinite { path: path.to_owned(), name: name.to_owned() });
    }
    Ok(Stored { shape: view.shape().to_vec(), values })
}

/// Every parameter of a model under its stored name, in its stored layout, in the order of names.
pub fn named_tensors<M: Module>(model: &M) -> BTreeMap<String, TensorData> {
    let mut visitor = Collector { path: Vec::new(), tensors: BTreeMap::new() };
    model.visit(&mut visitor);
    visitor.tensors
}

/// The free text beside the tensors of a safetensors file.
///
/// # Errors
/// A file that cannot be read or is not whole.
pub(crate) fn read_metadata(path: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    let bytes =
        std::fs::read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes)
        .map_err(|source| ModelError::Safetensors { path: path.to_owned(), source })?;
    Ok(metadata.metadata().clone().unwrap_or_default().into_iter().collect())
}

/// The bytes of a safetensors file with all parameters of `model`, and free text beside them.
pub fn to_safetensors<M: Module>(model: &M, metadata: BTreeMap<&str, String>) -> Vec<u8> {
    let tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = named_tensors(model)
        .into_iter()
        .map(|(name, data)| {
            let bytes = data.iter::<f32>().flat_map(f32::to_le_bytes).collect();
            (name, (data.shape().to_vec(), bytes))
        })
        .collect();
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name, view.expect("four bytes for each element"))
    });
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    safetensors::serialize(views, Some(metadata)).expect("names are unique and sizes agree")
}

/// The matrices of linear layers, which weight decay is for.
pub fn linear_weights<M: Module>(model: &M) -> Vec<ParamId> {
    let mut visitor = LinearWeights { path: Vec::new(), ids: Vec::new() };
    model.visit(&mut visitor);
    visitor.ids
}

/// Names and kinds of the modules on the way to a parameter.
type ModulePath = Vec<(String, String)>;

fn is_linear_weight(path: &ModulePath) -> bool {
    path.last().is_some_and(|(name, kind)| name == "weight" && kind == "Struct:Linear")
}

struct LinearWeights {
    path: ModulePath,
    ids: Vec<ParamId>,
}

impl ModuleVisitor for LinearWeights {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if is_linear_weight(&self.path) {
            self.ids.push(param.id);
        }
    }
}

struct Collector {
    path: ModulePath,
    tensors: BTreeMap<String, TensorData>,
}

impl ModuleVisitor for Collector {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = stored_name(self.path.iter().map(|(name, _)| name.as_str()));
        let mut value = param.val().inner();
        if is_linear_weight(&self.path) {
            value = value.swap_dims(0, 1);
        }
        self.tensors.insert(name, value.into_data());
    }
}

fn stored_name<'a>(path: impl Iterator<Item = &'a str>) -> String {
    let name = path.collect::<Vec<_>>().join(".");
    name.replace(".mlp.up.", ".mlp.0.").replace(".mlp.down.", ".mlp.2.")
}

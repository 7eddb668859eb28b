//! Access to module parameters by path.
//!
//! Paths are stable between processes, so they are used to store optimizer moments and other values
//! per parameter.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};
use grpo_kernels::unpacked_shape;

use crate::checkpoint::Checkpoint;
use crate::precision::dense;
use crate::{Frozen, LanguageModel, ModelError};

/// A float parameter of a module.
pub struct Parameter {
    /// Burn's parameter ID. It is different in every process.
    pub id: ParamId,
    /// Parameter path, e.g. `blocks.0.attention.query.weight`. It is stable between processes.
    pub path: String,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Whether the parameter is tracked by autodiff.
    pub is_on_tape: bool,
    /// Burn's name for the module that owns the parameter, e.g. `Struct:Linear`.
    pub(crate) owner: String,
    value: Box<dyn Fn() -> Tensor<1>>,
}

impl Parameter {
    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the elements in row-major order as f32, detached from autodiff. The tensor is
    /// computed on demand, and shares its memory if the parameter is already contiguous f32 data.
    pub fn value(&self) -> Tensor<1> {
        (self.value)()
    }

    /// Returns whether this is the weight matrix of a linear layer.
    pub(crate) fn is_linear_weight(&self) -> bool {
        self.owner == "Struct:Linear" && self.path.rsplit('.').next() == Some("weight")
    }
}

/// Returns all float parameters that `module` exposes to a visitor, in visiting order.
pub fn parameters<M: Module>(module: &M) -> Vec<Parameter> {
    let mut visitor = Parameters { around: Vec::new(), found: Vec::new() };
    module.visit(&mut visitor);
    visitor.found
}

/// Collects parameters. Burn passes the path one segment at a time.
struct Parameters {
    /// Names and types of the enclosing modules.
    around: Vec<(String, String)>,
    found: Vec<Parameter>,
}

impl ModuleVisitor for Parameters {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.around.push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.around.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let names: Vec<&str> = self.around.iter().map(|(name, _)| name.as_str()).collect();
        let value = param.val();
        let is_on_tape = value.is_autodiff();
        let value = if is_on_tape { value.inner() } else { value };
        self.found.push(Parameter {
            id: param.id,
            path: names.join("."),
            shape: unpacked_shape(&value).to_vec(),
            is_on_tape,
            owner: self.around.last().map_or_else(String::new, |(_, kind)| kind.clone()),
            value: Box::new(move || {
                let value = dense(value.clone());
                let elements = value.shape().num_elements();
                value.reshape([elements])
            }),
        });
    }
}

impl<M: LanguageModel> Frozen<M> {
    /// Replaces all parameters with the values returned by [`read_tensors`]. `path` is used in error
    /// messages.
    ///
    /// # Errors
    /// Returns an error if a parameter is missing or has the wrong size, or if a tensor does not
    /// belong to any parameter.
    pub fn with_values(
        self,
        values: BTreeMap<String, TensorData>,
        path: &Path,
    ) -> Result<Self, ModelError> {
        let paths = parameters(self.model()).into_iter().map(|parameter| parameter.path).collect();
        let mut mapper = Replace { paths, values, file: path, fault: None };
        let model = self.into_model().map(&mut mapper);
        match (mapper.fault, mapper.values.into_keys().next()) {
            (Some(fault), _) => Err(fault),
            (None, Some(name)) => Err(ModelError::unknown_tensor(path, &name)),
            (None, None) => Ok(Self::of_model(model)),
        }
    }
}

struct Replace<'a> {
    /// Remaining parameters.
    paths: VecDeque<String>,
    values: BTreeMap<String, TensorData>,
    file: &'a Path,
    fault: Option<ModelError>,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name =
            self.paths.pop_front().expect("the mapper visits the same parameters as the visitor");
        let shape = unpacked_shape(&param.val());
        let expected = shape.iter().product::<usize>();
        let Some(values) = self.values.remove(&name) else {
            self.fault.get_or_insert(ModelError::missing_tensor(self.file, &name));
            return param;
        };
        if values.num_elements() != expected {
            let found = values.shape().to_vec();
            self.fault.get_or_insert(ModelError::shape(self.file, &name, &found, &[expected]));
            return param;
        }
        param.map(|value| {
            let device = value.device();
            Tensor::<1>::from_data(values, &device).reshape(shape)
        })
    }
}

/// Reads all tensors from a safetensors file.
///
/// # Errors
/// Returns an error if the file cannot be read, is truncated, or contains non-finite numbers.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, TensorData>, ModelError> {
    let mut file = Checkpoint::of_file(path)?;
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    let read = names.into_iter().map(|name| {
        let stored = file.take(&name)?;
        Ok((name, TensorData::new(stored.values, stored.shape)))
    });
    read.collect()
}

//! The parameters of a module by their paths: what belongs to them (an optimizer's moments), and other values for them.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};

use crate::checkpoint::Checkpoint;
use crate::precision::dense;
use crate::stored::StoredTensors;
use crate::{CausalLm, Frozen, ModelError};

/// Id and path of each float parameter, as `blocks.0.attention.query.weight`, in the order of the module.
///
/// Ids are new in every process; paths are what outlasts it.
pub fn parameter_paths<M: Module>(model: &M) -> Vec<(ParamId, String)> {
    let mut visitor = Paths { path: Vec::new(), found: Vec::new() };
    model.visit(&mut visitor);
    visitor.found
}

struct Paths {
    path: Vec<String>,
    found: Vec<(ParamId, String)>,
}

impl ModuleVisitor for Paths {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((param.id, self.path.join(".")));
    }
}

impl<M: CausalLm> Frozen<M> {
    /// Its parameters by their paths, to be written.
    pub fn stored(&self) -> StoredTensors {
        let mut visitor = Values { path: Vec::new(), found: Vec::new() };
        self.model().visit(&mut visitor);
        StoredTensors::named(visitor.found)
    }

    /// The same model with the values of [`read_tensors`], which `path` is named by in errors.
    ///
    /// # Errors
    /// A parameter that is not there or has another size there; a tensor that no parameter is for.
    pub fn with_values(
        self,
        values: BTreeMap<String, TensorData>,
        path: &Path,
    ) -> Result<Self, ModelError> {
        let mut mapper = Replace { path: Vec::new(), values, file: path, fault: None };
        let model = self.into_model().map(&mut mapper);
        match (mapper.fault, mapper.values.into_keys().next()) {
            (Some(fault), _) => Err(fault),
            (None, Some(name)) => Err(ModelError::UnknownTensor { path: path.to_owned(), name }),
            (None, None) => Ok(Self::of_model(model)),
        }
    }
}

struct Values {
    path: Vec<String>,
    found: Vec<(String, Tensor<1>)>,
}

impl ModuleVisitor for Values {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = dense(param.val().inner());
        let elements = value.shape().num_elements();
        self.found.push((self.path.join("."), value.reshape([elements])));
    }
}

struct Replace<'a> {
    path: Vec<String>,
    values: BTreeMap<String, TensorData>,
    file: &'a Path,
    fault: Option<ModelError>,
}

impl ModuleMapper for Replace<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.join(".");
        let (file, expected) = (self.file.to_owned(), param.dims().iter().product::<usize>());
        let Some(values) = self.values.remove(&name) else {
            self.fault.get_or_insert(ModelError::MissingTensor { path: file, name });
            return param;
        };
        if values.num_elements() != expected {
            let (expected, found) = (vec![expected], values.shape().to_vec());
            self.fault.get_or_insert(ModelError::Shape { path: file, name, expected, found });
            return param;
        }
        param.map(|value| {
            let device = value.device();
            Tensor::<1>::from_data(values, &device).reshape(value.dims())
        })
    }
}

/// The tensors of a safetensors file, which are finite.
///
/// # Errors
/// A file that cannot be read or is not whole, or has numbers that are not finite.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, TensorData>, ModelError> {
    let mut file = Checkpoint::of_file(path)?;
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    let read = names.into_iter().map(|name| {
        let stored = file.take(&name)?;
        Ok((name, TensorData::new(stored.values, stored.shape)))
    });
    read.collect()
}

//! The parameters of a module by their paths: what belongs to them (an optimizer's moments), and other values for them.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};

use crate::checkpoint::Checkpoint;
use crate::precision::dense;
use crate::{Frozen, LanguageModel, ModelError};

/// A float parameter of a module.
pub struct Parameter {
    /// New in every process.
    pub id: ParamId,
    /// As `blocks.0.attention.query.weight`: what outlasts the process.
    pub path: String,
    /// Lengths of its axes.
    pub shape: Vec<usize>,
    /// Whether a gradient could reach it.
    pub is_on_tape: bool,
    /// What it is a part of, in Burn's words, such as `Struct:Linear`.
    pub(crate) owner: String,
    value: Box<dyn Fn() -> Tensor<1>>,
}

impl Parameter {
    /// How many numbers it has.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its numbers in the order of rows, off the tape, and in f32 however they are held. Made when they are asked for;
    /// what is held in f32, row after row, is shared.
    pub fn value(&self) -> Tensor<1> {
        (self.value)()
    }

    /// Whether it is the matrix of a linear layer.
    pub(crate) fn is_linear_weight(&self) -> bool {
        self.owner == "Struct:Linear" && self.path.rsplit('.').next() == Some("weight")
    }
}

/// Each float parameter that `module` shows to a visitor, in its order.
pub fn parameters<M: Module>(module: &M) -> Vec<Parameter> {
    let mut visitor = Parameters { around: Vec::new(), found: Vec::new() };
    module.visit(&mut visitor);
    visitor.found
}

/// Burn tells the path piece by piece.
struct Parameters {
    /// Names and kinds of the modules around the parameter.
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
            shape: value.dims().to_vec(),
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
    /// The same model with the values of [`read_tensors`], which `path` is named by in errors.
    ///
    /// # Errors
    /// A parameter that is not there or has another size there; a tensor that no parameter is for.
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
    /// Of the parameters that are left.
    paths: VecDeque<String>,
    values: BTreeMap<String, TensorData>,
    file: &'a Path,
    fault: Option<ModelError>,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.paths.pop_front().expect("a mapper sees what a visitor sees");
        let expected = param.dims().iter().product::<usize>();
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

//! Tensors of a base model that an adapter replaces: those of `modules_to_save` and trained biases.

use std::any::Any;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::precision::off_tape;

/// Tensors that are trained in full, by their paths in the base model. The output layer has the path
/// `head.weight`, even if the base ties it to the token embedding.
#[derive(Module, Debug, Default)]
pub(crate) struct Saved {
    /// Weights of linear layers, `[in, out]`.
    pub(crate) matrices: Vec<SavedMatrix>,
    /// Embedding tables.
    pub(crate) tables: Vec<SavedMatrix>,
    /// Biases and scales of norms.
    pub(crate) vectors: Vec<SavedVector>,
}

/// A matrix in place of one of the base.
#[derive(Module, Debug)]
pub(crate) struct SavedMatrix {
    pub(crate) value: Param<Tensor<2>>,
    #[module(skip)]
    pub(crate) path: String,
}

/// A vector in place of one of the base.
#[derive(Module, Debug)]
pub(crate) struct SavedVector {
    pub(crate) value: Param<Tensor<1>>,
    #[module(skip)]
    pub(crate) path: String,
}

/// The kind of a replaced tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedKind {
    Matrix,
    Table,
    Vector,
}

/// A tensor of the base that can be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Savable {
    /// Path in this crate's naming scheme.
    pub(crate) path: String,
    /// Name in the checkpoint.
    pub(crate) stored: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: SavedKind,
}

impl Savable {
    /// Returns whether the path of the module of the tensor, or of one around it, ends with `name`, as
    /// PEFT compares them: `norm` also means `input_layernorm`.
    pub(crate) fn is_of_module(&self, name: &str) -> bool {
        let module = self.stored.rsplit_once('.').map_or("", |(module, _)| module);
        let ends = module.match_indices('.').map(|(end, _)| end).chain([module.len()]);
        // Every module ends with an empty name, which nobody means.
        !name.is_empty() && ends.map(|end| &module[..end]).any(|module| module.ends_with(name))
    }

    pub(crate) fn is_bias(&self) -> bool {
        self.path.ends_with(".bias")
    }
}

impl Saved {
    pub(crate) fn is_empty(&self) -> bool {
        self.matrices.is_empty() && self.tables.is_empty() && self.vectors.is_empty()
    }

    /// Adds a tensor with these values in row-major order.
    pub(crate) fn push(&mut self, of: &Savable, values: Tensor<1>) {
        let path = of.path.clone();
        let matrix =
            |values: Tensor<1>| Param::from_tensor(values.reshape([of.shape[0], of.shape[1]]));
        match of.kind {
            SavedKind::Matrix => self.matrices.push(SavedMatrix { value: matrix(values), path }),
            SavedKind::Table => self.tables.push(SavedMatrix { value: matrix(values), path }),
            SavedKind::Vector => {
                self.vectors.push(SavedVector { value: Param::from_tensor(values), path });
            }
        }
    }

    /// Returns the paths and values of all tensors, without autodiff and in row-major order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, Tensor<1>)> {
        let flat = |value: Tensor<2>| {
            let elements = value.shape().num_elements();
            off_tape(value).reshape([elements])
        };
        let matrices = self.matrices.iter().chain(&self.tables);
        let matrices = matrices.map(move |saved| (saved.path.as_str(), flat(saved.value.val())));
        let vectors = self.vectors.iter();
        matrices.chain(vectors.map(|saved| (saved.path.as_str(), off_tape(saved.value.val()))))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        let matrices = self.matrices.iter().chain(&self.tables).map(|saved| &saved.path);
        matrices.chain(self.vectors.iter().map(|saved| &saved.path)).any(|found| found == path)
    }

    /// Returns whether a table of embeddings is replaced.
    pub(crate) fn has_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Returns the PEFT setting that replaces tensors, if any is.
    pub(crate) fn setting(&self) -> Option<&'static str> {
        if !self.matrices.is_empty() || !self.tables.is_empty() {
            return Some("modules_to_save");
        }
        (!self.vectors.is_empty()).then_some("bias or modules_to_save")
    }

    pub(crate) fn find<const D: usize>(&self, path: &str) -> Option<Tensor<D>> {
        let matrix = self.matrices.iter().chain(&self.tables).find(|saved| saved.path == path);
        if let Some(saved) = matrix {
            return same_rank(saved.value.val());
        }
        let vector = self.vectors.iter().find(|saved| saved.path == path)?;
        same_rank(vector.value.val())
    }
}

/// Returns the tensor if its number of axes is `D`.
fn same_rank<const E: usize, const D: usize>(tensor: Tensor<E>) -> Option<Tensor<D>> {
    (&tensor as &dyn Any).downcast_ref::<Tensor<D>>().cloned()
}

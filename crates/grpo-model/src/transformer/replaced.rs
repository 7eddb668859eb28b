//! Models in which an adapter replaces tensors.

use std::collections::VecDeque;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};

use crate::lora::Adapter;
use crate::names::{HEAD_WEIGHT, TOKENS};
use crate::precision::off_tape;
use crate::saved::{Savable, Saved, SavedKind};
use crate::{NormOrder, Transformer, parameters};

impl Adapter {
    /// Sets every B to 0, lengths to those of `base`, and replaced tensors to its values, so that the
    /// adapter has no effect.
    pub(crate) fn without_effect(mut self, base: &Transformer) -> Self {
        for pair in self.pairs_mut() {
            pair.b = pair.b.clone().map(|b| b.zeros_like());
            if pair.magnitude.is_some() {
                pair.magnitude = Some(Param::from_tensor(pair.norms(base.weight_of(pair))));
            }
        }
        self.saved = self.saved.reset_to(base);
        self
    }
}

impl Saved {
    /// Returns the same tensors with the values that `base` has.
    pub(crate) fn reset_to(mut self, base: &Transformer) -> Self {
        let of_base = |path: &str, device: &Device| {
            let value = base.value_of(path).expect("the base has the tensors that are replaced");
            Tensor::<1>::from_data(value.into_data(), device)
        };
        for saved in self.matrices.iter_mut().chain(&mut self.tables) {
            let shape = saved.value.dims();
            let device = saved.value.lazy_device();
            saved.value = Param::from_tensor(of_base(&saved.path, &device).reshape(shape));
        }
        for saved in &mut self.vectors {
            let device = saved.value.lazy_device();
            saved.value = Param::from_tensor(of_base(&saved.path, &device));
        }
        self
    }
}

impl Transformer {
    /// Returns the tensors that an adapter can replace.
    pub(crate) fn savable(&self) -> Vec<Savable> {
        let names = self.names();
        let mut found: Vec<Savable> = parameters(self)
            .into_iter()
            .filter(|of| !of.path.starts_with("prefix.") && !names.is_led(&of.path))
            // In this order, the norm belongs to the embeddings.
            .filter(|of| {
                self.description().order == NormOrder::Pre || !of.path.starts_with("norm.")
            })
            .map(|of| Savable {
                stored: names.parameter(&of.path),
                kind: match (of.shape.len(), of.is_linear_weight()) {
                    (1, _) => SavedKind::Vector,
                    (_, true) => SavedKind::Matrix,
                    (_, false) => SavedKind::Table,
                },
                path: of.path,
                shape: of.shape,
            })
            .collect();
        if self.ties_head() && names.has_head() {
            let table = found.iter().find(|of| of.path == format!("{TOKENS}.weight"));
            let table = table.expect("a tied output layer has a table");
            let (path, shape) =
                (HEAD_WEIGHT.to_owned(), table.shape.iter().rev().copied().collect());
            let stored = names.parameter(&path);
            found.push(Savable { path, stored, shape, kind: SavedKind::Matrix });
        }
        found
    }

    /// Returns the values of a tensor in row-major order, without autodiff.
    pub(crate) fn value_of(&self, path: &str) -> Option<Tensor<1>> {
        if path == HEAD_WEIGHT && self.ties_head() {
            let head = off_tape(self.head_weight());
            let elements = head.shape().num_elements();
            return Some(head.reshape([elements]));
        }
        parameters(self).iter().find(|of| of.path == path).map(crate::Parameter::value)
    }

    /// Returns the model with the tensors that an adapter replaces, which are on the tape if the
    /// adapter is. If one of a tied pair of embedding and output layer is replaced, they are separated,
    /// as in PEFT.
    pub(crate) fn with_saved(&self, saved: &Saved) -> Self {
        if saved.is_empty() {
            return self.clone();
        }
        let separate = saved.has(HEAD_WEIGHT) || saved.has(&format!("{TOKENS}.weight"));
        let base = if separate { self.clone().untied() } else { self.clone() };
        let paths = parameters(&base).into_iter().map(|parameter| parameter.path).collect();
        base.map(&mut Replace { paths, saved })
    }
}

struct Replace<'a> {
    /// Remaining parameters.
    paths: VecDeque<String>,
    saved: &'a Saved,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.paths.pop_front().expect("the mapper visits the parameters in order");
        match self.saved.find(&path) {
            Some(value) => Param::initialized(param.id, value),
            None => param,
        }
    }
}

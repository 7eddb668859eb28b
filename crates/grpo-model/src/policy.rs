//! Trainable policies: a whole model, or an adapter on a frozen base.

use burn::module::Module;

use crate::lora::Adapter;
use crate::{LanguageModel, Transformer};

/// What is trained.
#[derive(Module, Debug)]
pub enum Policy {
    /// Every parameter.
    Whole(Transformer),
    /// An adapter.
    Adapted(Adapted),
}

/// An adapter and its frozen base model.
///
/// Clones share the base, so a policy, its reference and further adapters hold it once.
#[derive(Module, Debug)]
pub struct Adapted {
    /// Without autodiff, and not visible to module visitors.
    #[module(skip)]
    pub(crate) base: Transformer,
    pub(crate) adapter: Adapter,
}

impl Adapted {
    /// Combines `adapter` and `base`, which loses its autodiff.
    pub fn new(base: &Transformer, adapter: Adapter) -> Self {
        let base = if base.device().is_autodiff() { base.valid() } else { base.clone() };
        Self { base, adapter }
    }

    /// Returns the base model.
    pub fn base(&self) -> &Transformer {
        &self.base
    }

    /// Returns the adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }
}

impl Policy {
    /// Returns the model and its adapter, if any.
    pub fn parts(&self) -> (&Transformer, Option<&Adapter>) {
        match self {
            Self::Whole(model) => (model, None),
            Self::Adapted(adapted) => (&adapted.base, Some(&adapted.adapter)),
        }
    }
}

//! A language model in training: all of it, or an adapter on a base that stays as it is.

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

/// An adapter and the model that it adapts, whose parameters nobody trains.
///
/// Clones share the base: its tensors are counted references. A policy, its reference and further adapters so
/// hold it once.
#[derive(Module, Debug)]
pub struct Adapted {
    /// Off the tape, and no parameter to whoever visits the module.
    #[module(skip)]
    pub(crate) base: Transformer,
    pub(crate) adapter: Adapter,
}

impl Adapted {
    /// `adapter` on `base`, which is taken off the tape.
    pub fn new(base: &Transformer, adapter: Adapter) -> Self {
        let base = if base.device().is_autodiff() { base.valid() } else { base.clone() };
        Self { base, adapter }
    }

    /// The model without the adapter.
    pub fn base(&self) -> &Transformer {
        &self.base
    }

    /// The adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }
}

impl Policy {
    /// The model, with what it adds to it where only an adapter is trained.
    pub fn parts(&self) -> (&Transformer, Option<&Adapter>) {
        match self {
            Self::Whole(model) => (model, None),
            Self::Adapted(adapted) => (&adapted.base, Some(&adapted.adapter)),
        }
    }
}

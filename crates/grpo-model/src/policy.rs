//! Trainable policies: an entire model, or an adapter on a frozen base.

use std::borrow::Cow;

use burn::module::Module;

use crate::lora::Adapter;
use crate::{LanguageModel, Transformer};

/// A trainable policy.
#[derive(Module, Debug)]
pub enum Policy {
    /// Trains all parameters of a model.
    Whole(Transformer),
    /// Trains an adapter on a frozen model.
    Adapted(Adapted),
}

/// An adapter and its frozen base model.
///
/// Clones share the base. A policy, its reference and any further adapters therefore keep only a
/// single copy in memory.
#[derive(Module, Debug)]
pub struct Adapted {
    /// The base model. It has no autodiff and is hidden from module visitors.
    #[module(skip)]
    pub(crate) base: Transformer,
    pub(crate) adapter: Adapter,
}

impl Adapted {
    /// Combines a base model with an adapter. Autodiff is removed from the base.
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
    /// Returns the model with the tensors that its adapter replaces, and the adapter, which changes the
    /// layers during a pass.
    pub fn effective(&self) -> (Cow<'_, Transformer>, Option<&Adapter>) {
        match self {
            Self::Adapted(Adapted { base, adapter }) if !adapter.saved.is_empty() => {
                (Cow::Owned(base.with_saved(&adapter.saved)), Some(adapter))
            }
            _ => {
                let (model, adapter) = self.parts();
                (Cow::Borrowed(model), adapter)
            }
        }
    }

    /// Returns the model, without what its adapter changes, and the adapter if there is one.
    pub fn parts(&self) -> (&Transformer, Option<&Adapter>) {
        match self {
            Self::Whole(model) => (model, None),
            Self::Adapted(adapted) => (&adapted.base, Some(&adapted.adapter)),
        }
    }
}

//! Random variants of training examples.

use std::fmt;
use std::sync::Arc;

use crate::Example;

/// Replaces training examples with variants of the same data, such as another spelling of a
/// molecule. Validation examples are never replaced.
#[derive(Clone)]
pub struct Augmentation(Arc<Variant>);

type Variant = dyn Fn(&Example, u32, u32) -> Option<Example> + Send + Sync;

impl Augmentation {
    /// Creates an augmentation from a function that takes an example, its index and the epoch. The
    /// function returns `None` to keep the example unchanged. It must not depend on anything else,
    /// so that a resumed run reads the same examples.
    pub fn new(
        variant: impl Fn(&Example, u32, u32) -> Option<Example> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(variant))
    }

    /// Returns the variant of an example for an epoch, or `None` if the example is used unchanged.
    pub fn variant(&self, example: &Example, index: u32, epoch: u32) -> Option<Example> {
        (self.0)(example, index, epoch)
    }
}

impl fmt::Debug for Augmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Augmentation")
    }
}

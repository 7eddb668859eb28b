//! Sizes of a new model in a configuration.

use grpo_train::in_range;

use crate::config::Origin;

/// Keys of the section `[model]` that all new models have.
pub struct ModelSizes {
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Number of attention heads.
    pub n_head: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
}

impl ModelSizes {
    /// Validates the sizes. The limits are those of the model folders that this program reads.
    ///
    /// # Errors
    /// Returns an error with the location of the key.
    pub fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        let Self { n_layer, n_head, n_embd } = *self;
        for (key, size, most) in [
            ("model.n_layer", n_layer, 1 << 10),
            ("model.n_head", n_head, 1 << 12),
            ("model.n_embd", n_embd, 1 << 16),
        ] {
            in_range(key, size as f64, 1.0..=f64::from(most))
                .map_err(|fault| origin.locate(fault))?;
        }
        anyhow::ensure!(
            n_embd.is_multiple_of(n_head),
            "{}model.n_embd = {n_embd} is not a multiple of model.n_head = {n_head}; change one of them",
            origin.place("model.n_embd")
        );
        Ok(())
    }
}

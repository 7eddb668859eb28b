//! Reading prompts: sampling of a single token, whose cost is that of the prompts in front of it.

use crate::case::{Measured, Repetition};
use crate::kinds::sampling::{Sampling, Shape};
use crate::models::Model;

/// The work is prompts, however many completions share one.
pub(crate) struct Prefill {
    sampling: Sampling,
    prompts: f64,
}

impl Prefill {
    pub(crate) fn new(
        model: Model,
        prompts: usize,
        prompt_tokens: usize,
        group: usize,
    ) -> anyhow::Result<Self> {
        let shape = Shape { prompts, prompt_tokens, group, tokens: 1 };
        Ok(Self { sampling: Sampling::new(model, shape)?, prompts: prompts as f64 })
    }
}

impl Measured for Prefill {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        Ok(Repetition { work: self.prompts, ..self.sampling.run()? })
    }
}

//! Resident memory over hundreds of whole steps: a leak of a few kilobytes a step shows.

use std::time::Instant;

use anyhow::Context;
use grpo_process::ResidentMemory;
use serde_json::json;

use crate::case::{Measured, Repetition};
use crate::kinds::sampling::Shape;
use crate::kinds::step::Step;
use crate::models::{Model, Size};

pub(crate) struct Resident {
    step: Step,
    steps: u32,
}

/// Steps between two readings.
const EVERY: u32 = 10;

impl Resident {
    /// `steps` steps of a model so small that what grows with the steps is no small part of the memory.
    pub(crate) fn new(steps: u32) -> anyhow::Result<Self> {
        let shape = Shape { prompts: 2, prompt_tokens: 1, group: 8, tokens: 24 };
        let model = Model { size: Size::Tiny, context: 32 };
        Ok(Self { step: Step::new(model, shape, 1)?, steps })
    }
}

impl Measured for Resident {
    /// Pairs of step and bytes. The growth is from a tenth of the steps on, when all buffers have been made once.
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let started = Instant::now();
        let mut readings: Vec<(u32, u64)> = Vec::new();
        for step in 1..=self.steps {
            self.step.run()?;
            if step % EVERY == 0 {
                let memory = ResidentMemory::of_this_process();
                readings.push((step, memory.context("the system does not tell the memory")?.now));
            }
        }
        let settled = readings.iter().find(|(step, _)| *step >= self.steps / 10);
        let growth = match (settled, readings.last()) {
            (Some(first), Some(last)) => last.1 as i64 - first.1 as i64,
            _ => anyhow::bail!("{} steps are too few", self.steps),
        };
        let repetition = Repetition::since(started, f64::from(self.steps), None);
        let details = json!({"resident_bytes": readings, "growth_bytes": growth});
        Ok(Repetition { details: Some(details), ..repetition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_read_every_ten_steps() {
        let details = Resident::new(30).unwrap().run().unwrap().details.unwrap();
        let readings = details["resident_bytes"].as_array().unwrap();
        let steps: Vec<u64> = readings.iter().map(|r| r[0].as_u64().unwrap()).collect();
        assert_eq!(steps, [10, 20, 30]);
        let bytes = |i: usize| readings[i][1].as_i64().unwrap();
        assert_eq!(details["growth_bytes"].as_i64(), Some(bytes(2) - bytes(0)));
    }
}

//! Repeatable work.

mod sampling;
mod step;
mod training;

use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Tensor};
use serde_json::Value;

pub use self::sampling::{Shape, rollout, sampling, timed_sampling};
pub use self::step::{grpo_config, resident, step};
pub use self::training::training;
use crate::models::Size;

/// Performs a repetition.
pub type Work = Box<dyn FnMut() -> anyhow::Result<Repetition>>;

/// Result of a repetition.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// Wall-clock time of the work.
    pub seconds: f64,
    /// Amount of work in the case's unit.
    pub work: f64,
    /// Floating-point operations of the model's matrix products that the work requires, without
    /// additional or repeated computation.
    pub flops: Option<f64>,
    /// Other measurements.
    pub details: Option<Value>,
}

impl Repetition {
    /// Returns the result of `work` that started at `started`.
    pub fn since(started: Instant, work: f64, flops: Option<f64>) -> Self {
        Self { seconds: started.elapsed().as_secs_f64(), work, flops, details: None }
    }
}

/// Burn's f32 matrix product, an upper bound of the rate of models: half a second of the two
/// products of a block's MLP, two thirds of a model's, on `rows` tokens.
pub fn matmul(size: Size, rows: usize) -> Work {
    const LEAST: Duration = Duration::from_millis(500);
    let width = size.width();
    let random = |shape: [usize; 2]| {
        Tensor::<2>::random(shape, Distribution::Uniform(-0.1, 0.1), &Device::flex())
    };
    let (x, up, down) =
        (random([rows, width]), random([width, 4 * width]), random([4 * width, width]));
    Box::new(move || {
        let started = Instant::now();
        let mut flops = 0.0;
        while started.elapsed() < LEAST {
            let y = x.clone().matmul(up.clone()).matmul(down.clone());
            // Reading a number forces lazy backends to compute.
            let _one: Vec<f32> = y.slice([0..1, 0..1]).into_data().iter::<f32>().collect();
            flops += 2.0 * (2 * rows * width * 4 * width) as f64;
        }
        Ok(Repetition::since(started, flops, Some(flops)))
    })
}

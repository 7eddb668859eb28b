//! Work that is built once and can be repeated.

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

/// Does the work of one repetition.
pub type Work = Box<dyn FnMut() -> anyhow::Result<Repetition>>;

/// What came of one repetition.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// Wall-clock time of the work alone.
    pub seconds: f64,
    /// How much was done, in the case's unit.
    pub work: f64,
    /// Floating-point operations of the model's matrix products that the work needs, whoever does it: what an
    /// implementation computes beside them or once more does not count.
    pub flops: Option<f64>,
    /// What else was measured.
    pub details: Option<Value>,
}

impl Repetition {
    /// `work` that took from `started` until now.
    pub fn since(started: Instant, work: f64, flops: Option<f64>) -> Self {
        Self { seconds: started.elapsed().as_secs_f64(), work, flops, details: None }
    }
}

/// Burn's matrix product in f32, whose rate no model that is made of it can pass: half a second of the two products of a
/// block's perceptron, which are two thirds of a model's, on `rows` tokens.
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
            // A number is read, so that a backend that computes later has computed it now.
            let _one: Vec<f32> = y.slice([0..1, 0..1]).into_data().iter::<f32>().collect();
            flops += 2.0 * (2 * rows * width * 4 * width) as f64;
        }
        Ok(Repetition::since(started, flops, Some(flops)))
    })
}

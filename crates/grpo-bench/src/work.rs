//! The work that is measured by the benchmarks.

mod sampling;
mod scoring;
mod step;
mod training;

use std::time::{Duration, Instant};

use burn::tensor::{Distribution, Tensor};
use grpo_data::{CounterRng, Purpose};
use grpo_kernels::half_linear;
use grpo_model::ProductPrecision;
use grpo_task::device::device;
use serde_json::Value;

pub use self::sampling::{Shape, rollout, sampling, timed_sampling};
pub use self::scoring::scoring;
pub use self::step::{adapter_step, grpo_config, resident, step};
pub use self::training::training;
use crate::models::{Model, Size};

/// A function that runs a single repetition.
pub type Work = Box<dyn FnMut() -> anyhow::Result<Repetition>>;

/// The result of a repetition.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// Amount of work in the unit of the case.
    pub work: f64,
    /// Minimum number of floating-point operations for the matrix products of the model. Additional
    /// or repeated computations are not included.
    pub flops: Option<f64>,
    /// Bytes of weights that are read, once for each token of a completion for all completions.
    pub weight_bytes: Option<f64>,
    /// Additional measurements.
    pub details: Option<Value>,
}

impl Repetition {
    /// Creates the result for `work` that began at `started`.
    pub fn since(started: Instant, work: f64, flops: Option<f64>) -> Self {
        Self { seconds: started.elapsed().as_secs_f64(), work, flops, ..Self::default() }
    }
}

/// Returns `count` random token ids of a row.
fn random_ids(seed: u64, row: usize, count: usize, model: Model) -> Vec<u32> {
    let rng = CounterRng::new(seed, Purpose::EVALUATION);
    let vocabulary = model.size.vocabulary() as u64;
    let id = |place: usize| rng.below([place as u32, row as u32, 0, 0], vocabulary) as u32;
    (0..count).map(id).collect()
}

/// Measures matrix products, an upper bound for the throughput of models. It
/// runs the two MLP products of a block for half a second, which account for two thirds of a
/// model's FLOPs. `rows` is the number of tokens.
pub fn matmul(size: Size, rows: usize, precision: ProductPrecision) -> anyhow::Result<Work> {
    const LEAST: Duration = Duration::from_millis(500);
    let width = size.width();
    let product = move |a, b| match precision.half() {
        None => grpo_kernels::matmul(a, b),
        Some(format) => half_linear(a, b, None, format),
    };
    let device = device()?;
    let random =
        |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Uniform(-0.1, 0.1), &device);
    let (x, up, down) =
        (random([rows, width]), random([width, 4 * width]), random([4 * width, width]));
    Ok(Box::new(move || {
        let started = Instant::now();
        let mut flops = 0.0;
        while started.elapsed() < LEAST {
            let y = product(product(x.clone(), up.clone()), down.clone());
            // Read a number to force lazy backends to perform the computation.
            let _one: Vec<f32> = y.slice([0..1, 0..1]).into_data().iter::<f32>().collect();
            flops += 2.0 * (2 * rows * width * 4 * width) as f64;
        }
        Ok(Repetition::since(started, flops, Some(flops)))
    }))
}

/// Measures copying within the memory of the device, in bytes read and written. This is an upper
/// bound for reading weights.
pub fn copy() -> anyhow::Result<Work> {
    const ROUNDS: usize = 20;
    // 128 MiB, the largest buffer of some drivers.
    let values = 32 * 1024 * 1024;
    let x = Tensor::<1>::ones([values], &device()?);
    Ok(Box::new(move || {
        let started = Instant::now();
        let mut y = x.clone();
        for _ in 0..ROUNDS {
            y = y + 1.0;
        }
        let _one: Vec<f32> = y.narrow(0, 0, 1).into_data().iter::<f32>().collect();
        Ok(Repetition::since(started, (2 * 4 * values * ROUNDS) as f64, None))
    }))
}

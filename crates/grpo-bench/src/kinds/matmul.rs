//! The rate of Burn's matrix product in f32, which no model that is made of it can pass.

use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};

use crate::case::{Measured, Repetition, repeat_for};
use crate::models::Size;

/// The two products of a block's perceptron, which are two thirds of a model's, on `rows` tokens.
pub(crate) struct Matmul {
    x: Tensor<2>,
    up: Tensor<2>,
    down: Tensor<2>,
}

const LEAST: Duration = Duration::from_millis(500);

impl Matmul {
    pub(crate) fn new(size: Size, rows: usize) -> Self {
        let width = size.width();
        let random = |shape: [usize; 2]| {
            Tensor::random(shape, Distribution::Uniform(-0.1, 0.1), &Device::flex())
        };
        Self {
            x: random([rows, width]),
            up: random([width, 4 * width]),
            down: random([4 * width, width]),
        }
    }
}

impl Measured for Matmul {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let (times, seconds) = repeat_for(LEAST, || {
            let y = self.x.clone().matmul(self.up.clone()).matmul(self.down.clone());
            // A number is read, so that a backend that computes later has computed it now.
            let _one: Vec<f32> = y.slice([0..1, 0..1]).into_data().iter::<f32>().collect();
        });
        let [rows, width] = self.x.dims();
        let flops = f64::from(times) * 2.0 * (2 * rows * width * 4 * width) as f64;
        Ok(Repetition { seconds, work: flops, flops: Some(flops), details: None })
    }
}

//! Tests log-probabilities. The reference implementation in f64 loops is part of grpo-oracle.
//!
//! Scores are tested on the device that `BURN_DEVICE` names.

mod draw;
mod gradients;
mod settings;
mod values;

use burn::tensor::{DType, Device};

/// Returns the device under test: the CPU, or the device that Burn's environment variable
/// `BURN_DEVICE` names.
fn device() -> Device {
    #[cfg(feature = "flex")]
    if std::env::var_os("BURN_DEVICE").is_none() {
        return Device::flex();
    }
    Device::default()
}

/// Returns the formats in which the device computes, with their tolerances.
fn formats([of_f32, of_f64]: [f64; 2]) -> impl Iterator<Item = (DType, f64)> {
    let formats = [(DType::F32, of_f32), (DType::F64, of_f64)];
    formats.into_iter().filter(|(format, _)| grpo_kernels::computes_in(&device(), *format))
}

/// Returns the most accurate format in which the device computes, with its tolerance.
fn most_accurate(tolerances: [f64; 2]) -> (DType, f64) {
    formats(tolerances).last().expect("all devices compute in f32")
}

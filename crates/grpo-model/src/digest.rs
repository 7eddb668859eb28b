//! Weight hashes. Two modules have the same hash if and only if their parameters are equal.

use std::fmt;

use burn::module::Module;
use grpo_kernels::on_host;

use crate::parameters;

/// A BLAKE3 hash of a module's parameters, written as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightsDigest(blake3::Hash);

impl fmt::Display for WeightsDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl From<WeightsDigest> for String {
    fn from(digest: WeightsDigest) -> Self {
        digest.to_string()
    }
}

/// Computes a hash over all float parameters that `module` exposes to a visitor.
///
/// The hash covers the path, the shape and the exact f32 bits of each parameter in row-major order.
/// As a consequence, `0.0` and `-0.0` hash differently. The result does not depend on the memory
/// layout, on [`burn::module::ParamId`]s, on the device, or on the number of threads. Matrices
/// stored with fewer bits are hashed as the f32 values they represent.
///
/// An adapted policy exposes only its adapter. To hash the base model, use
/// [`crate::Adapted::base`].
///
/// On the CPU, parameters are hashed in place without a copy.
pub fn weights_digest<M: Module>(module: &M) -> WeightsDigest {
    let mut digester = Digester::default();
    for parameter in parameters(module) {
        on_host(parameter.value(), |numbers| {
            digester.add(&parameter.path, &parameter.shape, numbers);
        });
    }
    digester.finish()
}

/// Returns the largest absolute value in the matrices that `module` exposes to a visitor. Vectors,
/// such as biases, are ignored.
pub fn largest_weight<M: Module>(module: &M) -> f32 {
    let mut largest = 0.0_f32;
    for parameter in parameters(module).iter().filter(|parameter| parameter.shape.len() > 1) {
        on_host(parameter.value(), |numbers| {
            largest = numbers.iter().fold(largest, |largest, number| largest.max(number.abs()));
        });
    }
    largest
}

/// A digest in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digester(blake3::Hasher);

impl Digester {
    /// Adds a tensor whose values are given in row-major order.
    pub(crate) fn add(&mut self, path: &str, shape: &[usize], numbers: &[f32]) {
        let hasher = &mut self.0;
        // Length prefixes make the encoding unambiguous.
        number(hasher, path.len());
        hasher.update(path.as_bytes());
        number(hasher, shape.len());
        shape.iter().for_each(|&length| number(hasher, length));
        match bytemuck::cast_slice(numbers) {
            bytes if bytes.len() >= ON_THREADS => hasher.update_rayon(bytes),
            bytes => hasher.update(bytes),
        };
    }

    pub(crate) fn finish(&self) -> WeightsDigest {
        WeightsDigest(self.0.finalize())
    }
}

/// Tensors of at least this many bytes are hashed by several threads.
const ON_THREADS: usize = 1 << 17;

fn number(hasher: &mut blake3::Hasher, number: usize) {
    hasher.update(&(number as u64).to_le_bytes());
}

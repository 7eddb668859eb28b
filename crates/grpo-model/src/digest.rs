//! Hashes of weights: two modules have equal hashes if and only if they have equal parameters.

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

/// Computes the hash of every float parameter that `module` shows to a visitor: path, shape, and
/// the bits of its numbers as f32 in row order.
///
/// `0.0` and `-0.0` differ. Memory layout, [`burn::module::ParamId`], device and thread count have
/// no effect. An adapted policy shows only its adapter; hash [`crate::Adapted::base`] for the base.
/// Matrices in less than f32 count as the f32 numbers that they represent.
///
/// On the CPU the numbers are read in place.
pub fn weights_digest<M: Module>(module: &M) -> WeightsDigest {
    let mut digester = Digester::default();
    for parameter in parameters(module) {
        on_host(parameter.value(), |numbers| {
            digester.add(&parameter.path, &parameter.shape, numbers);
        });
    }
    digester.finish()
}

/// Returns the largest absolute value of the matrices that `module` shows to a visitor.
pub fn largest_weight<M: Module>(module: &M) -> f32 {
    let mut largest = 0.0_f32;
    for parameter in parameters(module).iter().filter(|parameter| parameter.shape.len() > 1) {
        on_host(parameter.value(), |numbers| {
            largest = numbers.iter().fold(largest, |largest, number| largest.max(number.abs()));
        });
    }
    largest
}

/// An unfinished digest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digester(blake3::Hasher);

impl Digester {
    /// Adds a tensor in row order.
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

/// Smallest size for which several threads are faster.
const ON_THREADS: usize = 1 << 17;

fn number(hasher: &mut blake3::Hasher, number: usize) {
    hasher.update(&(number as u64).to_le_bytes());
}

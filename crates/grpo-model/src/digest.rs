//! A hash of weights: two modules have the same one exactly where they hold the same numbers in the same places.

use std::fmt;

use burn::module::Module;
use grpo_kernels::on_host;

use crate::parameters;

/// A BLAKE3 hash of the parameters of a module; as text, 64 hexadecimal digits.
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

/// The hash of every float parameter that `module` shows to a visitor: its path, its shape, and the bits of its numbers
/// in f32, in the order of rows.
///
/// Bits count, so that `0.0` and `-0.0` differ. How a tensor lies in memory, its [`burn::module::ParamId`], the device and
/// the number of threads do not count. An adapted policy shows its adapter alone: hash [`crate::Adapted::base`] for what it
/// stands on. Matrices that are held in less than f32 count as the f32 numbers that they stand for.
///
/// On the CPU the numbers are read where they lie.
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

/// A digest that is not finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digester(blake3::Hasher);

impl Digester {
    /// A tensor, in the order of rows.
    pub(crate) fn add(&mut self, path: &str, shape: &[usize], numbers: &[f32]) {
        let hasher = &mut self.0;
        // Lengths in front, so that no two lists of parts are the same bytes.
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

/// From this size on, more threads pay.
const ON_THREADS: usize = 1 << 17;

fn number(hasher: &mut blake3::Hasher, number: usize) {
    hasher.update(&(number as u64).to_le_bytes());
}

//! A hash of weights: two modules have the same one exactly where they hold the same numbers in the same places.

use std::fmt;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use grpo_kernels::on_host;

use crate::precision::dense;

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
    let mut hash = Hashing { hasher: blake3::Hasher::new(), path: Vec::new() };
    module.visit(&mut hash);
    WeightsDigest(hash.hasher.finalize())
}

struct Hashing {
    hasher: blake3::Hasher,
    /// Names of the modules around the parameter.
    path: Vec<String>,
}

/// From this size on, more threads pay.
const ON_THREADS: usize = 1 << 17;

impl Hashing {
    /// Lengths in front, so that no two lists of parts are the same bytes.
    fn number(&mut self, number: usize) {
        self.hasher.update(&(number as u64).to_le_bytes());
    }
}

impl ModuleVisitor for Hashing {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let value = dense(if value.is_autodiff() { value.inner() } else { value });
        let path = self.path.join(".");
        self.number(path.len());
        self.hasher.update(path.as_bytes());
        self.number(D);
        value.dims().into_iter().for_each(|length| self.number(length));
        on_host(value, |numbers| match bytemuck::cast_slice(numbers) {
            bytes if bytes.len() >= ON_THREADS => self.hasher.update_rayon(bytes),
            bytes => self.hasher.update(bytes),
        });
    }
}

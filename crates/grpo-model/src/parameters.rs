//! Sources of initial parameter values: a random number generator or a checkpoint.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};
use rayon::prelude::*;

use crate::checkpoint::Checkpoint;
use crate::description::Description;
use crate::digest::Digester;
use crate::names::Names;
use crate::{ModelError, WeightPrecision, WeightsDigest};

/// Provides the initial value of each parameter by path.
#[derive(Debug)]
pub(crate) struct Parameters {
    source: Source,
    device: Device,
    /// Precision of the block matrices.
    precision: WeightPrecision,
    linears: usize,
}

#[derive(Debug)]
enum Source {
    Random {
        rng: CounterRng,
        tensors: u32,
        deviation: f64,
        residual_deviation: f64,
    },
    Checkpoint {
        checkpoint: Box<Checkpoint>,
        names: Names,
        prefix: &'static str,
        read: Box<Digester>,
    },
}

impl Parameters {
    /// Creates a source of random values with the standard deviations in `of`. Equal seeds give
    /// equal models.
    pub(crate) fn random(seed: u64, of: &Description, device: &Device) -> Self {
        let rng = CounterRng::new(seed, Purpose::INITIALISATION);
        let (deviation, residual_deviation) = (of.initial_deviation, of.residual_deviation);
        let source = Source::Random { rng, tensors: 0, deviation, residual_deviation };
        Self { source, device: device.clone(), precision: WeightPrecision::F32, linears: 0 }
    }

    /// Creates a source that reads from a checkpoint. Tensor names may omit the family's prefix.
    pub(crate) fn of(
        checkpoint: Checkpoint,
        names: Names,
        precision: WeightPrecision,
        device: &Device,
    ) -> Self {
        let prefixed = checkpoint.names().any(|name| name.starts_with(names.prefix));
        let prefix = if prefixed { "" } else { names.prefix };
        let read = Box::<Digester>::default();
        let checkpoint = Box::new(checkpoint);
        let source = Source::Checkpoint { checkpoint, names, prefix, read };
        Self { source, device: device.clone(), precision, linears: 0 }
    }

    /// Returns whether the checkpoint has an output layer that differs from its token embedding. As
    /// in transformers 5, such a model uses its output layer even if `config.json` ties the two.
    ///
    /// # Errors
    /// Returns an error if one of the two cannot be read.
    pub(crate) fn has_own_head(&mut self) -> Result<bool, ModelError> {
        let Source::Checkpoint { checkpoint, names, prefix, .. } = &mut self.source else {
            return Ok(false);
        };
        let (head, table) =
            (names.parameter("head.weight"), names.parameter("token_embedding.weight"));
        let table = table.strip_prefix(*prefix).unwrap_or(&table);
        match checkpoint.contains(&head) && checkpoint.contains(table) {
            true => Ok(!checkpoint.are_equal(&head, table)?),
            false => Ok(false),
        }
    }

    /// Checks that all tensors of a model with this many `layers` have been used. For a checkpoint, returns the hash of its values,
    /// which depends neither on the precision in memory nor on the number of files.
    ///
    /// # Errors
    /// Returns an error if a tensor was not used and the family does not ignore it.
    pub(crate) fn finish(self, layers: usize) -> Result<Option<WeightsDigest>, ModelError> {
        let Source::Checkpoint { checkpoint, names, read, .. } = self.source else {
            return Ok(None);
        };
        match checkpoint.names().find(|name| !(names.ignored)(name)) {
            Some(name) => {
                let index = name.split('.').find_map(|part| part.parse::<usize>().ok());
                Err(match index.is_some_and(|index| index >= layers) {
                    true => ModelError::further_layer(checkpoint.path(), name, layers),
                    false => ModelError::unknown_tensor(checkpoint.path(), name),
                })
            }
            None => Ok(Some(read.finish())),
        }
    }

    /// Returns the device of the parameters.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the index of the next linear layer.
    pub(crate) fn next_linear(&mut self) -> usize {
        self.linears += 1;
        self.linears - 1
    }

    pub(crate) fn normal<const D: usize>(
        &mut self,
        path: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(path, shape, First::Normal).map(Param::from_tensor)
    }

    pub(crate) fn zeros<const D: usize>(
        &mut self,
        path: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(path, shape, First::Constant(0.0)).map(Param::from_tensor)
    }

    pub(crate) fn ones<const D: usize>(
        &mut self,
        path: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<D>>, ModelError> {
        self.take(path, shape, First::Constant(1.0)).map(Param::from_tensor)
    }

    /// Returns the matrix of a linear layer. The shape is `[input, output]`.
    pub(crate) fn linear_weight(
        &mut self,
        path: &str,
        [input, output]: [usize; 2],
    ) -> Result<Param<Tensor<2>>, ModelError> {
        let swapped = match &self.source {
            Source::Random { .. } => true,
            Source::Checkpoint { names, .. } => names.is_swapped(path),
        };
        let held = if swapped {
            let stored = self.take(path, [output, input], First::Normal)?;
            // Make it contiguous, because every matrix product reads rows.
            Tensor::from_data(stored.transpose().into_data(), &self.device)
        } else {
            self.take(path, [input, output], First::Normal)?
        };
        // The output layer stays in f32: rounding it would distort the probabilities directly.
        let held = if path.starts_with("blocks.") { self.precision.hold(held) } else { held };
        Ok(Param::from_tensor(held))
    }

    fn take<const D: usize>(
        &mut self,
        path: &str,
        shape: [usize; D],
        first: First,
    ) -> Result<Tensor<D>, ModelError> {
        let values = match &mut self.source {
            Source::Random { rng, tensors, deviation, residual_deviation } => {
                *tensors += 1;
                let deviation =
                    if adds_to_the_residual(path) { residual_deviation } else { deviation };
                let numbers = shape.iter().product();
                let values = first.values(rng, *tensors, *deviation, numbers);
                values.ok_or_else(|| {
                    ModelError::Unfit(format!(
                        "out of memory: cannot allocate tensor '{path}' of {numbers} values"
                    ))
                })?
            }
            Source::Checkpoint { checkpoint, names, prefix, read } => {
                let name = names.parameter(path);
                let name = name.strip_prefix(*prefix).unwrap_or(&name);
                let stored = checkpoint.take(name)?;
                let mut expected = shape.to_vec();
                if names.is_led(path) {
                    expected.insert(0, 1);
                }
                if stored.shape != expected {
                    let file = checkpoint.path();
                    return Err(ModelError::shape(file, name, &stored.shape, &expected));
                }
                read.add(path, &stored.shape, &stored.values);
                stored.values
            }
        };
        Ok(Tensor::from_data(TensorData::new(values, shape), &self.device))
    }
}

/// Returns whether the layer's output is added to the residual stream.
fn adds_to_the_residual(path: &str) -> bool {
    path.starts_with("blocks.")
        && (path.ends_with(".attention.output.weight") || path.ends_with(".mlp.down.weight"))
}

/// Initial distribution of a parameter.
enum First {
    Normal,
    Constant(f32),
}

impl First {
    /// Returns the initial values, or `None` if the memory cannot be allocated.
    fn values(&self, rng: &CounterRng, tensor: u32, deviation: f64, n: usize) -> Option<Vec<f32>> {
        let mut values = Vec::new();
        values.try_reserve_exact(n).ok()?;
        match self {
            Self::Constant(value) => values.resize(n, *value),
            Self::Normal => (0..n)
                .into_par_iter()
                .map(|i| rng.normal([i as u32, (i as u64 >> 32) as u32, tensor, 0]))
                .map(|normal| (deviation * normal) as f32)
                .collect_into_vec(&mut values),
        }
        Some(values)
    }
}

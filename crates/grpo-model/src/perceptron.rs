//! A multilayer perceptron with a single output.

use std::path::Path;

use burn::module::Module;
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};

use crate::layers::Linear;
use crate::stored::{StoredAs, StoredTensors};
use crate::{Dropout, ModelError, read_tensors};

/// A perceptron that computes `σ(W₃ · drop(relu(W₂ · drop(relu(W₁ · x + b₁)) + b₂)) + b₃)` for
/// features `x`.
///
/// The value before applying σ is the *logit*. It is used to learn pairwise preferences
/// (Bradley–Terry).
#[derive(Module, Debug)]
pub struct Perceptron {
    layers: Vec<Linear>,
}

impl Perceptron {
    /// Default hidden layer sizes.
    pub const HIDDEN: [usize; 2] = [256, 128];

    /// Creates a perceptron with random weights and zero biases.
    ///
    /// Weights are normally distributed with standard deviation `√(2 / in)` (He et al. 2015). The
    /// last layer uses a tenth of that, so initial outputs are close to ½. Equal seeds give equal
    /// weights.
    ///
    /// # Panics
    /// Panics if a size is 0.
    pub fn random(features: usize, hidden: [usize; 2], seed: u64, device: &Device) -> Self {
        let rng = CounterRng::new(seed, Purpose::INITIALISATION);
        let layer = |(number, [input, output]): (usize, [usize; 2])| {
            assert!(input > 0 && output > 0, "a {input} × {output} layer has no weights");
            let last = if output == 1 { 0.1 } else { 1.0 };
            let deviation = last * (2.0 / input as f64).sqrt();
            let value = |i| (deviation * rng.normal([i, 0, 1 + number as u32, 0])) as f32;
            let weight: Vec<f32> = (0..(input * output) as u32).map(value).collect();
            let weight = Tensor::from_data(TensorData::new(weight, [input, output]), device);
            Linear::of(number, &path(number), weight, Tensor::zeros([output], device))
        };
        Self { layers: shapes(features, hidden).into_iter().enumerate().map(layer).collect() }
    }

    /// Loads a perceptron of the given sizes from a file written by [`Self::write`].
    ///
    /// # Errors
    /// Returns an error if the file is damaged, or if a tensor is missing, unexpected or has the
    /// wrong shape.
    pub fn load(
        file: &Path,
        features: usize,
        hidden: [usize; 2],
        device: &Device,
    ) -> Result<Self, ModelError> {
        let mut tensors = read_tensors(file)?;
        let mut take = |name: String, expected: Vec<usize>| {
            let Some(data) = tensors.remove(&name) else {
                return Err(ModelError::missing_tensor(file, &name));
            };
            match data.shape().to_vec() {
                found if found == expected => Ok(data),
                found => {
                    let message = format!(
                        "tensor '{name}' has shape {found:?}, but its configuration requires {expected:?}"
                    );
                    Err(ModelError::in_file(file, message))
                }
            }
        };
        let mut layers = Vec::new();
        for (number, shape) in shapes(features, hidden).into_iter().enumerate() {
            let weight = take(format!("{}.weight", path(number)), shape.to_vec())?;
            let bias = take(format!("{}.bias", path(number)), vec![shape[1]])?;
            let weight = Tensor::from_data(weight, device);
            layers.push(Linear::of(number, &path(number), weight, Tensor::from_data(bias, device)));
        }
        match tensors.into_keys().next() {
            Some(name) => Err(ModelError::unknown_tensor(file, &name)),
            None => Ok(Self { layers }),
        }
    }

    /// Writes the weights to a safetensors file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), ModelError> {
        StoredTensors::of_parameters(self).write(file, StoredAs::F32, None)
    }

    /// Returns the number of input features.
    pub fn features(&self) -> usize {
        self.layers[0].shape()[0]
    }

    /// Returns the device that holds the weights.
    pub fn device(&self) -> Device {
        self.layers[0].weight.val().device()
    }

    /// Computes logits, i.e. outputs before applying σ.
    ///
    /// # Shapes
    /// `features`: `[items, features]`; result: `[items]`.
    pub fn logits(&self, features: Tensor<2>, dropout: &mut Dropout) -> Tensor<1> {
        let (last, hidden) = self.layers.split_last().expect("the perceptron has three layers");
        let hidden = hidden.iter().fold(features, |x, layer| dropout.apply(relu(layer.product(x))));
        last.product(hidden).squeeze_dim(1)
    }

    /// Computes scores between 0 and 1.
    ///
    /// # Shapes
    /// `features`: `[items, features]`; result: `[items]`.
    pub fn forward(&self, features: Tensor<2>, dropout: &mut Dropout) -> Tensor<1> {
        sigmoid(self.logits(features, dropout))
    }

    /// Returns the score of a single item, between 0 and 1. It is computed without autodiff and
    /// does not depend on any other items.
    ///
    /// # Panics
    /// Panics if the number of features is wrong.
    pub fn predict(&self, features: &[f32]) -> f64 {
        1.0 / (1.0 + (-self.logit(features)).exp())
    }

    /// Returns the logit of a single item.
    ///
    /// # Panics
    /// Panics if the number of features is wrong.
    pub fn logit(&self, features: &[f32]) -> f64 {
        assert_eq!(features.len(), self.features(), "wrong number of features");
        let device = self.device();
        let off_tape;
        let head = if device.is_autodiff() {
            off_tape = self.valid();
            &off_tape
        } else {
            self
        };
        let features = TensorData::new(features.to_vec(), [1, features.len()]);
        let features = Tensor::from_data(features, &device.inner());
        let logit = head.logits(features, &mut Dropout::off()).into_data();
        logit.iter::<f64>().next().expect("the output has one value per item")
    }

    /// Returns the hidden layer sizes.
    pub fn hidden(&self) -> [usize; 2] {
        [self.layers[0].shape()[1], self.layers[1].shape()[1]]
    }
}

/// Returns the shape `[in, out]` of each layer.
fn shapes(features: usize, [first, second]: [usize; 2]) -> [[usize; 2]; 3] {
    [[features, first], [first, second], [second, 1]]
}

fn path(number: usize) -> String {
    format!("layers.{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation with plain loops.
    fn by_hand(head: &Perceptron, features: &[f32]) -> f64 {
        let stored = StoredTensors::of_parameters(head).read();
        let mut x: Vec<f64> = features.iter().copied().map(f64::from).collect();
        for number in 0..3 {
            let read = |part: &str| -> Vec<f64> {
                stored[&format!("layers.{number}.{part}")].iter::<f64>().collect()
            };
            let (weight, mut y) = (read("weight"), read("bias"));
            let outputs = y.len();
            for (i, x) in x.iter().enumerate() {
                for (o, y) in y.iter_mut().enumerate() {
                    *y += x * weight[i * outputs + o];
                }
            }
            if number < 2 {
                y.iter_mut().for_each(|y| *y = y.max(0.0));
            }
            x = y;
        }
        assert_eq!(x.len(), 1);
        1.0 / (1.0 + (-x[0]).exp())
    }

    fn features(seed: u64, n: usize) -> Vec<f32> {
        let rng = CounterRng::new(seed, Purpose::SAMPLING);
        (0..n as u32).map(|i| 3.0 * rng.normal([i, 0, 0, 0]) as f32).collect()
    }

    fn head(seed: u64) -> Perceptron {
        let head = Perceptron::random(10, [7, 5], seed, &Device::flex());
        // Use nonzero biases, so that ignoring them would be noticed.
        let layers = head.layers.into_iter().enumerate().map(|(number, layer)| {
            let outputs = layer.shape()[1];
            let bias = features(seed + number as u64, outputs);
            let bias = Tensor::from_data(TensorData::new(bias, [outputs]), &Device::flex());
            Linear::of(number, &path(number), layer.weight.val(), bias)
        });
        Perceptron { layers: layers.collect() }
    }

    #[test]
    fn its_output_is_that_of_plain_loops() {
        for seed in 1..6 {
            let head = head(seed);
            let rows: Vec<Vec<f32>> = (0..4).map(|row| features(10 * seed + row, 10)).collect();
            let batch = TensorData::new(rows.concat(), [4, 10]);
            let batch = Tensor::from_data(batch, &Device::flex());
            let together = head.forward(batch, &mut Dropout::off()).into_data();
            for (row, together) in rows.iter().zip(together.iter::<f64>()) {
                let expected = by_hand(&head, row);
                assert!((head.predict(row) - expected).abs() < 1e-6, "{expected}");
                assert!((together - expected).abs() < 1e-6, "{expected}");
            }
        }
    }

    #[test]
    fn a_new_head_begins_near_a_half_and_depends_on_its_seed_alone() {
        let new = |seed| Perceptron::random(10, [7, 5], seed, &Device::flex());
        let x = features(1, 10);
        assert!((new(1).predict(&x) - 0.5).abs() < 0.25);
        assert_eq!(new(1).predict(&x), new(1).predict(&x));
        assert_ne!(new(1).predict(&x), new(2).predict(&x));
        assert_eq!((new(1).features(), new(1).hidden()), (10, [7, 5]));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("head.safetensors");
        let written = head(1);
        written.write(&file).unwrap();
        let load = |features, hidden| {
            Perceptron::load(&file, features, hidden, &Device::flex())
                .map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
        };
        let read = load(10, [7, 5]).unwrap();
        let x = features(2, 10);
        assert_eq!(read.predict(&x), written.predict(&x));
        let refused = load(10, [7, 6]).unwrap_err();
        assert_eq!(
            refused,
            "FILE: tensor 'layers.1.weight' has shape [7, 5], but its configuration requires [7, 6]"
        );
        assert!(load(12, [7, 5]).is_err());

        let named = StoredTensors::from_matrices([(
            "layers.0.weight".to_owned(),
            Tensor::zeros([10, 7], &Device::flex()),
        )]);
        named.write(&file, StoredAs::F32, None).unwrap();
        assert_eq!(
            load(10, [7, 5]).unwrap_err(),
            "FILE is missing tensor 'layers.0.bias'; is it a checkpoint of this model family?"
        );
    }

    #[test]
    fn dropout_of_a_training_is_a_function_of_its_seed_and_step() {
        let head = head(3);
        let x = || {
            let data = TensorData::new(features(4, 10), [1, 10]);
            Tensor::from_data(data, &Device::flex())
        };
        let output = |seed, step| {
            let mut dropout = Dropout::new(seed, step, 0.5);
            head.forward(x(), &mut dropout).into_data().iter::<f64>().next().unwrap()
        };
        assert_eq!(output(1, 1), output(1, 1));
        let all: Vec<f64> = (0..8).map(|step| output(1, step)).collect();
        assert!(all.iter().any(|one| *one != all[0]), "{all:?}");
    }
}

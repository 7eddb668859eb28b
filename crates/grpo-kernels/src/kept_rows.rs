//! Outputs of linear layers that are kept from one pass to another.

use burn::tensor::{Device, Tensor, TensorData};

use crate::chunks::write_chunks;
use crate::linear::check_shapes;
use crate::{bf16_linear, linear, on_host};

/// Rows of matrices with the same number of columns, in the memory of the host.
///
/// A pass appends its output, which costs a copy. Another pass over the same tokens gathers the rows
/// that it needs, in its own order, instead of computing them.
#[derive(Clone, Debug)]
pub struct KeptRows {
    columns: usize,
    /// All but the last ones in use have [`ROWS`] rows. A single vector would have to be copied when it
    /// grows.
    parts: Vec<Vec<f32>>,
    rows: usize,
}

/// Number of rows in a part.
const ROWS: usize = 256;

impl KeptRows {
    /// Creates an empty store for rows with this number of columns.
    pub fn new(columns: usize) -> Self {
        Self { columns, parts: Vec::new(), rows: 0 }
    }

    /// Returns the size of all rows in bytes.
    pub fn bytes(&self) -> usize {
        self.rows * self.columns * size_of::<f32>()
    }

    /// Removes all rows. The memory is kept for the next ones, because the operating system zeroes
    /// memory that it hands out: keeping rows in new memory is hardly faster than computing them.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(Vec::clear);
        self.rows = 0;
    }

    /// Appends the rows of `y`, `[n, columns]`.
    ///
    /// # Panics
    /// Panics if the number of columns differs.
    pub fn push(&mut self, y: &Tensor<2>) {
        let columns = y.dims()[1];
        assert_eq!(columns, self.columns, "all rows must have the same number of columns");
        on_host(y.clone(), |mut values| {
            while !values.is_empty() {
                let (part, row) = (self.rows / ROWS, self.rows % ROWS);
                if part == self.parts.len() {
                    self.parts.push(Vec::with_capacity(ROWS * columns));
                }
                let (now, later) = values.split_at(values.len().min((ROWS - row) * columns));
                self.parts[part].extend_from_slice(now);
                self.rows += now.len() / columns;
                values = later;
            }
        });
    }

    /// Creates a matrix `[places, columns]` on `device` from rows of several stores. Each place is the
    /// index of a store and that of a row.
    ///
    /// # Panics
    /// Panics if there is no store, or if a place does not exist.
    pub fn gather(stores: &[&Self], places: &[[u32; 2]], device: &Device) -> Tensor<2> {
        /// Number of rows per task.
        const TASK: usize = 16;
        let columns = stores[0].columns;
        let [rows] = write_chunks(places.len() * columns, TASK * columns, |task, [out]| {
            let places = &places[task * TASK..];
            for (out, place) in out.chunks_exact_mut(columns).zip(places) {
                let [store, row] = place.map(|index| index as usize);
                let part = &stores[store].parts[row / ROWS];
                out.copy_from_slice(&part[row % ROWS * columns..][..columns]);
            }
        });
        Tensor::from_data(TensorData::new(rows, [places.len(), columns]), device)
    }
}

/// Same as [`linear`] with its output `y`, which another pass has computed from the same values. On the
/// CPU, only what the gradients need is recorded. Other devices ignore `y`.
///
/// # Panics
/// Panics if the shapes do not match.
pub fn known_linear(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    check_shapes(&x, weight.dims(), bias.as_ref());
    assert_eq!(y.dims(), [x.dims()[0], weight.dims()[1]], "the known output has another shape");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::known_linear(y, x, weight, bias);
    }
    linear(x, weight, bias)
}

/// Same as [`bf16_linear`] with its output `y`. See [`known_linear`].
///
/// # Panics
/// Panics if the shapes do not match.
pub fn known_bf16_linear(
    y: Tensor<2>,
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    check_shapes(&x, weight.dims(), bias.as_ref());
    assert_eq!(y.dims(), [x.dims()[0], weight.dims()[1]], "the known output has another shape");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && crate::backend::is_fusable(&weight) {
        return crate::backend::known_bf16_linear(y, x, weight, bias);
    }
    bf16_linear(x, weight, bias)
}

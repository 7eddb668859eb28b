//! Outputs of linear layers that are kept from one pass to another.

use burn::tensor::{Device, Tensor, TensorData};

use crate::chunks::write_chunks;
use crate::on_host;

/// Rows of matrices with the same number of columns, in the memory of the host.
///
/// A pass appends its output, which costs a copy. Another pass over the same tokens gathers the rows
/// that it needs, in its own order, instead of computing them.
#[derive(Clone, Debug)]
pub struct KeptRows {
    columns: usize,
    /// Blocks of [`ROWS`] rows. A single vector would have to be copied when it grows.
    blocks: Vec<Vec<f32>>,
    rows: usize,
}

/// Number of rows in a block.
const ROWS: usize = 256;

impl KeptRows {
    /// Creates an empty store for rows with this number of columns.
    pub fn new(columns: usize) -> Self {
        Self { columns, blocks: Vec::new(), rows: 0 }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the size of all rows in bytes.
    pub fn bytes(&self) -> usize {
        self.rows * self.columns * size_of::<f32>()
    }

    /// Removes all rows. The memory is kept for the next ones, because the operating system zeroes
    /// memory that it hands out: keeping rows in new memory is hardly faster than computing them.
    pub fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
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
                let (block, row) = (self.rows / ROWS, self.rows % ROWS);
                if block == self.blocks.len() {
                    self.blocks.push(Vec::with_capacity(ROWS * columns));
                }
                let (now, later) = values.split_at(values.len().min((ROWS - row) * columns));
                self.blocks[block].extend_from_slice(now);
                self.rows += now.len() / columns;
                values = later;
            }
        });
    }

    /// Creates a matrix `[n, columns]` on `device` from `n` rows of several stores, each given by the
    /// index of a store and that of a row in it.
    ///
    /// # Panics
    /// Panics if there is no store, or if a row does not exist.
    pub fn gather(stores: &[&Self], rows: &[[u32; 2]], device: &Device) -> Tensor<2> {
        /// Number of rows per task.
        const TASK: usize = 16;
        let columns = stores[0].columns;
        let [values] = write_chunks(rows.len() * columns, TASK * columns, |task, [out]| {
            let rows = &rows[task * TASK..];
            for (out, indices) in out.chunks_exact_mut(columns).zip(rows) {
                let [store, row] = indices.map(|index| index as usize);
                let block = &stores[store].blocks[row / ROWS];
                out.copy_from_slice(&block[row % ROWS * columns..][..columns]);
            }
        });
        Tensor::from_data(TensorData::new(values, [rows.len(), columns]), device)
    }
}

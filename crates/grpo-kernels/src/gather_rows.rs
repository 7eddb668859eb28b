//! Gathers rows of a matrix, e.g. for embeddings or to pick positions from a batch.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Returns row `ids[i]` of the table for each `i`. If a row occurs several times, its gradients are
/// summed in order of position.
///
/// # Shapes
/// - table: `[rows, width]`; ids: `[n]`
/// - result: `[n, width]`
///
/// # Panics
/// Panics if an ID is not a valid row index. GPUs do not check this.
pub fn gather_rows(table: Tensor<2>, ids: Tensor<1, Int>) -> Tensor<2> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&table) {
        let [rows, _] = table.dims();
        let ids = ids.into_data();
        let row = |id: i64| match usize::try_from(id) {
            Ok(id) if id < rows => id,
            _ => panic!("row {id} is out of bounds for a table of {rows} rows"),
        };
        return crate::backend::gather_rows(table, ids.iter::<i64>().map(row).collect());
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&table) {
        return crate::gpu::gather_rows(table, ids);
    }
    crate::plain::gather_rows(table, ids)
}

/// Converts row indices to a tensor that can be passed to [`gather_rows`] and to Burn's operations.
///
/// # Shapes
/// - result: `[n]`, where n is the number of `rows`
pub fn indices(rows: impl IntoIterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i32> = rows.into_iter().map(|row| row as i32).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}

//! Selects rows of a matrix: embeddings, and positions of a batch.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Returns row `ids[i]` of the table for each `i`. The gradient of a repeated row is summed in
/// position order.
///
/// # Shapes
/// - table: `[rows, width]`; ids: `[n]`
/// - result: `[n, width]`
///
/// # Panics
/// Panics if an id is not a row of the table.
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
    crate::plain::gather_rows(table, ids)
}

/// Returns row numbers as a tensor for [`gather_rows`] and Burn's operations.
///
/// # Shapes
/// - result: `[n]`, one for each of `rows`
pub fn indices(rows: impl IntoIterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i32> = rows.into_iter().map(|row| row as i32).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}

//! Rows of a matrix by their numbers: an embedding, and the positions of a batch that count.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Row `ids[i]` of the table for each `i`. Where a row is asked for several times, its gradient is the sum in the order
/// of the positions.
///
/// # Shapes
/// - table: `[rows, width]`; ids: `[n]`
/// - result: `[n, width]`
///
/// # Panics
/// Where an id is no row of the table.
pub fn gather_rows(table: Tensor<2>, ids: Tensor<1, Int>) -> Tensor<2> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&table) {
        let [rows, _] = table.dims();
        let ids = ids.into_data();
        let row = |id: i64| match usize::try_from(id) {
            Ok(id) if id < rows => id,
            _ => panic!("row {id} of a table with {rows}"),
        };
        return crate::backend::gather_rows(table, ids.iter::<i64>().map(row).collect());
    }
    crate::plain::gather_rows(table, ids)
}

/// The numbers of rows, as [`gather_rows`] and Burn's operations take them.
///
/// # Shapes
/// - result: `[n]`, one for each of `rows`
pub fn indices(rows: impl IntoIterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i32> = rows.into_iter().map(|row| row as i32).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}

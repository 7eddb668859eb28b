//! Rows of a matrix by their numbers: an embedding, and the places of a batch that count.

use burn::tensor::{Device, Int, Tensor, TensorData};
#[cfg(feature = "flex")]
use multiversion::multiversion;

/// Row `ids[i]` of the table for each `i`. Where a row is asked for several times, its gradient is the sum in the order
/// of the places.
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

/// The places of each id in their order: those of id `i` are `places[starts[i]..starts[i + 1]]`.
#[cfg(feature = "flex")]
pub(crate) struct PlacesOfIds {
    places: Vec<usize>,
    starts: Vec<usize>,
}

#[cfg(feature = "flex")]
impl PlacesOfIds {
    /// For ids below `rows`.
    pub(crate) fn new(ids: &[usize], rows: usize) -> Self {
        let mut starts = vec![0; rows + 1];
        for &id in ids {
            starts[id + 1] += 1;
        }
        for id in 0..rows {
            starts[id + 1] += starts[id];
        }
        let (mut next, mut places) = (starts.clone(), vec![0; ids.len()]);
        for (place, &id) in ids.iter().enumerate() {
            places[next[id]] = place;
            next[id] += 1;
        }
        Self { places, starts }
    }

    pub(crate) fn of(&self, id: usize) -> &[usize] {
        &self.places[self.starts[id]..self.starts[id + 1]]
    }
}

/// Adds rows `places` of `dy` to `sum`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn add_rows(dy: &[f32], places: &[usize], sum: &mut [f32]) {
    let width = sum.len();
    for place in places {
        for (sum, dy) in sum.iter_mut().zip(&dy[place * width..(place + 1) * width]) {
            *sum += dy;
        }
    }
}

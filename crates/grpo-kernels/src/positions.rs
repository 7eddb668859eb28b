//! Where each ID occurs in a list.

/// The positions at which each ID occurs, in order. ID `i` occurs at
/// `positions[starts[i]..starts[i + 1]]`.
pub(crate) struct PositionsOfIds {
    pub(crate) positions: Vec<usize>,
    pub(crate) starts: Vec<usize>,
}

impl PositionsOfIds {
    /// Builds the index. All `ids` must be below `rows`.
    pub(crate) fn new(ids: &[usize], rows: usize) -> Self {
        let mut starts = vec![0; rows + 1];
        for &id in ids {
            starts[id + 1] += 1;
        }
        for id in 0..rows {
            starts[id + 1] += starts[id];
        }
        let (mut next, mut positions) = (starts.clone(), vec![0; ids.len()]);
        for (position, &id) in ids.iter().enumerate() {
            positions[next[id]] = position;
            next[id] += 1;
        }
        Self { positions, starts }
    }

    #[cfg(feature = "flex")]
    pub(crate) fn of(&self, id: usize) -> &[usize] {
        &self.positions[self.starts[id]..self.starts[id + 1]]
    }
}

//! What the kernels of attention are told: where queries, keys and values are, and who sees whom.

use burn_cubecl::tensor::CubeTensor;

use crate::{Heads, Packing};

/// Attention settings.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) heads: Heads,
    pub(crate) scale: f32,
    pub(crate) packing: Packing,
}

/// Queries, keys and values as columns of one matrix or three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Elements per row of the matrices of queries and of keys.
    pub(super) query_stride: usize,
    pub(super) key_stride: usize,
    /// First columns.
    pub(super) keys: usize,
    pub(super) values: usize,
}

impl Layout {
    pub(super) fn new<const N: usize>(heads: &Heads) -> Self {
        let (queries, keys) = (heads.query_columns(), heads.key_columns());
        match N {
            1 => {
                let all = queries + 2 * keys;
                let values = queries + keys;
                Self { query_stride: all, key_stride: all, keys: queries, values }
            }
            _ => Self { query_stride: queries, key_stride: keys, keys: 0, values: 0 },
        }
    }
}

/// Returns the matrices that contain queries, keys and values.
pub(super) fn parts<const N: usize>(inputs: &[CubeTensor; N]) -> [&CubeTensor; 3] {
    match &inputs[..] {
        [joint] => [joint; 3],
        [query, keys, values] => [query, keys, values],
        other => unreachable!("attention takes one matrix or three, not {}", other.len()),
    }
}

/// Returns the visible keys of each row: the first row of its own sequence and the number of rows
/// from there, then the same for the sequence that it continues.
pub(super) fn keys_of_rows(packing: &Packing) -> Vec<usize> {
    let mut keys = Vec::with_capacity(4 * packing.rows());
    for (index, sequence) in packing.sequences().iter().enumerate() {
        let prefix = packing.prefix(index);
        for row in sequence.rows.clone() {
            let end = if packing.is_causal() { row + 1 } else { sequence.rows.end };
            keys.extend([sequence.rows.start, end - sequence.rows.start]);
            keys.extend([prefix.start, prefix.len()]);
        }
    }
    keys
}

/// Ranges of rows that see a key.
pub(super) struct Viewers {
    /// For each row: start and end of the rows in its own sequence, then the first of `ranges` and
    /// their number.
    pub(super) of_rows: Vec<usize>,
    /// Start and end of the sequences that continue another one.
    pub(super) ranges: Vec<usize>,
}

impl Viewers {
    pub(super) fn new(packing: &Packing) -> Self {
        let sequences = packing.sequences();
        let mut viewers = Self { of_rows: Vec::new(), ranges: Vec::new() };
        let mut continued_by = vec![Vec::new(); sequences.len()];
        for sequence in sequences {
            if let Some(first) = sequence.behind {
                continued_by[first].push(sequence.rows.clone());
            }
        }
        for (sequence, continuations) in sequences.iter().zip(continued_by) {
            let first = viewers.ranges.len() / 2;
            viewers.ranges.extend(continuations.iter().flat_map(|rows| [rows.start, rows.end]));
            for row in sequence.rows.clone() {
                let start = if packing.is_causal() { row } else { sequence.rows.start };
                viewers.of_rows.extend([start, sequence.rows.end, first, continuations.len()]);
            }
        }
        // A buffer of length 0 is not allowed.
        viewers.ranges.resize(viewers.ranges.len().max(2), 0);
        viewers
    }
}

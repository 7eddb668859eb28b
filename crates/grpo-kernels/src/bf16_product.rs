//! Products of bf16 factors on the CPU.
//!
//! Factors are rounded and packed in pairs of terms. Blocks of a few rows and one strip of columns
//! are then computed from the first term to the last, with sums in registers. Threads share the
//! blocks, which never changes the order of a sum.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod factors;
mod portable;
mod sizes;
mod unit;

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use rayon::prelude::*;

use crate::awake::available_threads;
pub(crate) use factors::{Left, Matrix, Right};
use sizes::{ROWS, STRIP};
use unit::{Sums, Unit};

/// Returns `left · right` row by row. `bias` is added to each row.
pub(crate) fn product(left: &Left, right: &Right, bias: Option<&[f32]>) -> Vec<f32> {
    static FASTEST: LazyLock<Unit> = LazyLock::new(Unit::fastest);
    product_by(*FASTEST, left, right, bias)
}

fn product_by(unit: Unit, left: &Left, right: &Right, bias: Option<&[f32]>) -> Vec<f32> {
    assert_eq!(left.inner(), right.inner(), "inner dimensions differ");
    let (rows, columns) = (left.rows(), right.columns());
    assert!(bias.is_none_or(|bias| bias.len() == columns), "one bias per column");
    let elements = rows.checked_mul(columns).expect("the number of elements overflows usize");
    let mut out = Vec::with_capacity(elements);
    if elements == 0 {
        return out;
    }
    // Twice as many panels of columns as threads balance their load.
    let threads = available_threads();
    let width = STRIP * columns.div_ceil(STRIP).div_ceil(2 * threads);
    let mut panels: Vec<Vec<&mut [MaybeUninit<f32>]>> = Vec::new();
    panels.resize_with(columns.div_ceil(width), || Vec::with_capacity(rows));
    for row in out.spare_capacity_mut()[..elements].chunks_mut(columns) {
        panels
            .iter_mut()
            .zip(row.chunks_mut(width))
            .for_each(|(panel, columns)| panel.push(columns));
    }
    // If there are few panels, divide the rows as well to use all threads.
    let parts = threads.div_ceil(panels.len());
    panels.into_par_iter().enumerate().for_each(|(index, mut panel)| {
        let first = index * width;
        let mut blocks = divided(left, &mut panel);
        let per_task = blocks.len().div_ceil(parts);
        blocks.par_chunks_mut(per_task).for_each(|blocks| {
            let mut sums = [[0.0; STRIP]; ROWS];
            for column in (0..width.min(columns - first)).step_by(STRIP) {
                let bias = bias.map(|bias| &bias[first + column..]);
                let strip = right.strip(first + column);
                for block in blocks.iter_mut() {
                    unit.sum(block.x, block.y.len(), strip, &mut sums);
                    block.write(&sums, column, bias);
                }
            }
        });
    });
    #[expect(unsafe_code, reason = "zeroing the output would take as long as a small product")]
    // SAFETY: the capacity is sufficient. Each element is in exactly one row of one panel. A
    // panel's rows are divided into blocks without a remainder, and `Block::write` writes the
    // columns of a strip in each row of the block. It was called for all strips of the panel, and
    // the bias has a value for each column.
    unsafe {
        out.set_len(elements);
    }
    out
}

/// A block of rows of a panel.
struct Block<'a, 'y> {
    /// Factors, `[pairs][rows]`.
    x: &'a [u32],
    /// Output, one slice per row.
    y: &'a mut [&'y mut [MaybeUninit<f32>]],
}

/// Divides the rows of a panel into blocks.
fn divided<'a, 'y>(
    left: &'a Left,
    mut panel: &'a mut [&'y mut [MaybeUninit<f32>]],
) -> Vec<Block<'a, 'y>> {
    let blocks = left.blocks().map(|(rows, x)| {
        let y = panel.split_off_mut(..rows).expect("a panel has all rows");
        Block { x, y }
    });
    blocks.collect()
}

impl Block<'_, '_> {
    /// Writes sums to the columns of a strip, which start at `column` of the panel.
    fn write(&mut self, sums: &Sums, column: usize, bias: Option<&[f32]>) {
        for (y, sums) in self.y.iter_mut().zip(sums) {
            let y = y[column..].iter_mut().zip(sums);
            match bias {
                Some(bias) => y.zip(bias).for_each(|((y, sum), bias)| _ = y.write(sum + bias)),
                None => y.for_each(|(y, sum)| _ = y.write(*sum)),
            }
        }
    }
}

#[cfg(test)]
mod tests;

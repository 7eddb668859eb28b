//! Products of bf16 factors on the CPU.
//!
//! Factors are rounded and packed in pairs of terms. Blocks of a few rows and one strip of columns
//! are then computed from the first term to the last, with sums in registers.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod factors;
mod portable;
mod unit;

use std::sync::LazyLock;

use crate::product::{Output, ROWS, STRIP, blocks, in_tasks};
pub(crate) use factors::{Left, Matrix, Right};
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
    #[expect(unsafe_code, reason = "see `in_tasks`")]
    // SAFETY: `write` writes the columns of a strip in each row of a block. It is called for all strips
    // of all blocks, and the bias has a value for each column.
    unsafe {
        in_tasks([rows, left.inner(), columns], |row, first, y| {
            let mut sums = [[0.0; STRIP]; ROWS];
            for column in (0..y[0].len()).step_by(STRIP) {
                let strip = right.strip(first + column);
                let bias = bias.map(|bias| &bias[first + column..]);
                for block in blocks(y.len()) {
                    let x = left.rows_from(row + block.start);
                    unit.sum(x, block.len(), strip, &mut sums);
                    write(&sums, column, bias, &mut y[block]);
                }
            }
        })
    }
}

/// Writes sums to the columns of a strip, which start at `column` of a panel. The bias starts with the
/// strip.
fn write(sums: &Sums, column: usize, bias: Option<&[f32]>, y: Output<'_, '_>) {
    for (y, sums) in y.iter_mut().zip(sums) {
        let y = y[column..].iter_mut().zip(sums);
        match bias {
            Some(bias) => y.zip(bias).for_each(|((y, sum), bias)| _ = y.write(sum + bias)),
            None => y.for_each(|(y, sum)| _ = y.write(*sum)),
        }
    }
}

#[cfg(test)]
mod tests;

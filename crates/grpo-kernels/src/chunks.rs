//! Vectors that parallel tasks fill.

use std::mem::MaybeUninit;

use rayon::prelude::*;

/// Creates `N` vectors of `len` numbers. Calls `write` in parallel for each chunk, with its index and its
/// part of each vector, which is filled with zeros. The last chunk may be shorter. A `chunk` of 0 counts
/// as 1.
///
/// One thread would need as long to zero the vectors as all threads need for an element-wise operation.
/// Here, each task zeroes its chunk, which is then in the cache.
pub(crate) fn write_chunks<const N: usize>(
    len: usize,
    chunk: usize,
    write: impl Fn(usize, [&mut [f32]; N]) + Sync,
) -> [Vec<f32>; N] {
    collect_chunks(len, chunk, write).0
}

/// Same as [`write_chunks`], and returns what `write` returns for each chunk, in order.
#[expect(
    unsafe_code,
    reason = "while a single thread zeroed vectors, the others waited for 4 % of the time of training"
)]
pub(crate) fn collect_chunks<const N: usize, R: Send>(
    len: usize,
    chunk: usize,
    write: impl Fn(usize, [&mut [f32]; N]) -> R + Sync,
) -> ([Vec<f32>; N], Vec<R>) {
    let chunk = chunk.max(1);
    let mut vectors: [Vec<f32>; N] = std::array::from_fn(|_| Vec::with_capacity(len));
    let mut tasks: Vec<[&mut [MaybeUninit<f32>]; N]> = Vec::with_capacity(len.div_ceil(chunk));
    let mut parts =
        vectors.each_mut().map(|vector| vector.spare_capacity_mut()[..len].chunks_mut(chunk));
    for _ in 0..len.div_ceil(chunk) {
        tasks.push(parts.each_mut().map(|parts| parts.next().expect("a part for each chunk")));
    }
    let write = |(index, parts): (usize, [&mut [MaybeUninit<f32>]; N])| {
        let parts = parts.map(|part| {
            part.fill(MaybeUninit::new(0.0));
            // SAFETY: all elements of the part were just written.
            unsafe { part.assume_init_mut() }
        });
        write(index, parts)
    };
    let returned = tasks.into_par_iter().enumerate().map(write).collect();
    for vector in &mut vectors {
        // SAFETY: the capacity is at least `len`, and the chunks, which cover these elements, were written.
        unsafe {
            vector.set_len(len);
        }
    }
    (vectors, returned)
}

/// Creates zeros, in parallel.
#[cfg(feature = "flex")]
pub(crate) fn zeros(len: usize) -> Vec<f32> {
    /// Numbers per chunk (1 MiB).
    const CHUNK: usize = 1 << 18;
    let [zeros] = write_chunks(len, CHUNK, |_, _| ());
    zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_numbers_and_keep_their_order() {
        for len in 0..20 {
            for chunk in 0..7 {
                let ([a, b], starts) = collect_chunks(len, chunk, |index, [a, b]| {
                    let start = index * chunk.max(1);
                    assert!(a.iter().chain(&*b).all(|number| *number == 0.0));
                    a.iter_mut().zip(b).enumerate().for_each(|(i, (a, b))| {
                        *a = (start + i) as f32;
                        *b = -*a;
                    });
                    start
                });
                let expected: Vec<f32> = (0..len).map(|i| i as f32).collect();
                assert_eq!(a, expected);
                assert_eq!(b, expected.iter().map(|number| -number).collect::<Vec<_>>());
                assert_eq!(starts, (0..len).step_by(chunk.max(1)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn zeros_are_zeros() {
        for len in [0, 1, (1 << 18) + 3] {
            assert_eq!(zeros(len), vec![0.0; len]);
        }
    }
}

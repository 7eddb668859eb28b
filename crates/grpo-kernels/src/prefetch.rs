//! Loading of data into the cache before it is needed.

/// Bytes in a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Numbers in a cache line.
pub(crate) const LINE: usize = LINE_BYTES / 4;

/// Starts loading the cache line of `value` into the L2 cache. Does nothing on processors other
/// than x86-64.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

        #[expect(unsafe_code, reason = "there is no safe prefetch; see docs/decisions/0014")]
        // SAFETY: a prefetch is a hint. It doesn't access memory as far as the program can tell, it
        // cannot fault, and the instruction is part of every x86-64 processor.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(value).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Starts loading all cache lines of numbers.
#[inline(always)]
pub(crate) fn prefetch_all(numbers: &[f32]) {
    numbers.iter().step_by(LINE).for_each(prefetch);
}
